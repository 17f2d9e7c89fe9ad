import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applied, secondsOf, slowRanks, type IRank, type IStatus } from '../src/protocol/status';

function rank(number: number, more: Partial<IRank> = {}): IRank {
  return {
    rank: number,
    state: 'idle',
    pid: 100 + number,
    generation: 0,
    busy_since: null,
    last_seconds: null,
    cause: null,
    ...more
  };
}

function status(ranks: IRank[], more: Partial<IStatus> = {}): IStatus {
  return {
    state: 'idle',
    size: ranks.length,
    kernel: 'python3',
    running: null,
    queued: 0,
    question: null,
    ranks,
    settings: { pinned: null, max_processes: null, show: null },
    ...more
  };
}

const running = (ranks: number[]): IStatus['running'] => ({
  msg_id: 'm',
  cell_id: 'c',
  execution_count: 1,
  started: 10,
  ranks
});

test('changes are put over what is known', () => {
  const first = status([rank(0), rank(1), rank(2)]);
  const full = applied(null, { kind: 'full', now: 1, status: first });
  const dead = rank(1, { state: 'dead', cause: 'SIGKILL' });
  const next = applied(full, { kind: 'change', now: 2, status: { state: 'busy', ranks: [dead] } });
  assert.deepEqual(next?.ranks, [rank(0), dead, rank(2)]);
  assert.equal(next?.state, 'busy');
  assert.deepEqual(first.ranks[1], rank(1)); // nothing is changed in place
});

test('ranks beyond the size are forgotten, new ones are added', () => {
  const two = status([rank(0), rank(1)]);
  const one = applied(two, { kind: 'change', now: 2, status: { size: 1 } });
  assert.deepEqual(one?.ranks, [rank(0)]);
  const change = { size: 3, ranks: [rank(2), rank(1)] };
  const three = applied(one, { kind: 'change', now: 3, status: change });
  assert.deepEqual(three?.ranks.map(entry => entry.rank), [0, 1, 2]);
});

test('a change of something unknown changes nothing', () => {
  assert.equal(applied(null, { kind: 'change', now: 1, status: { size: 3 } }), null);
});

test('how long a rank has been at its cell', () => {
  assert.equal(secondsOf(rank(0, { busy_since: 10, last_seconds: 3 }), 15), 5);
  assert.equal(secondsOf(rank(0, { last_seconds: 3 }), 15), 3);
  assert.equal(secondsOf(rank(0), 15), null);
});

test('a rank that the others have waited for long', () => {
  const done = [0, 1, 2].map(number => rank(number, { last_seconds: 1 }));
  const late = rank(3, { state: 'busy', busy_since: 10 });
  const now = status([...done, late], { running: running([3]) });
  assert.deepEqual(slowRanks(now, 11.5), []);
  assert.deepEqual(slowRanks(now, 14), [3]);
});

test('while most still run nobody is slow', () => {
  const busy = [0, 1, 2].map(number => rank(number, { state: 'busy', busy_since: 0 }));
  const now = status([...busy, rank(3, { last_seconds: 1 })], { running: running([0, 1, 2]) });
  assert.deepEqual(slowRanks(now, 100), []);
});

test('after the cell, who took much longer', () => {
  const times = [1, 1.1, 0.9, 5].map((seconds, i) => rank(i, { last_seconds: seconds }));
  assert.deepEqual(slowRanks(status(times), 0), [3]);
  const quick = [0.01, 0.01, 0.9].map((seconds, i) => rank(i, { last_seconds: seconds }));
  assert.deepEqual(slowRanks(status(quick), 0), []);
});
