import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rankOf, rows, signature, type IDebugRanks } from '../src/protocol/debug';
import type { IRank, IStatus } from '../src/protocol/status';
import { debugRanks } from './golden';

const told = debugRanks();

function status(...ranks: Partial<IRank>[]): IStatus {
  const settings = { pinned: null, max_processes: null, show: null };
  const all = ranks.map((more, rank) => ({
    rank,
    state: 'busy' as const,
    pid: 100 + rank,
    generation: 0,
    busy_since: 1,
    last_seconds: null,
    cause: null,
    stopped: null,
    ...more
  }));
  const common = { state: 'busy' as const, kernel: 'python3', running: null, queued: 0, question: null, settings };
  return { ...common, size: ranks.length, ranks: all };
}

function ranks(...states: IDebugRanks['ranks'][number]['state'][]): IDebugRanks {
  const all = states.map((state, rank) => ({ rank, state, threadId: null, reason: null }));
  return { focus: null, pinned: null, ranks: all };
}

test('where each rank is', () => {
  const cause = 'killed by SIGKILL';
  const shown = rows(told, status({}, {}, {}, { state: 'dead', cause }), 131073);
  assert.deepEqual(shown.map(row => [row.state, row.text, row.selected]), [
    ['running', 'running', false],
    ['stopped', 'f:4', true],
    ['failed', 'exception', false],
    ['dead', 'dead', false]
  ]);
  assert.deepEqual(shown.map(row => row.spoken), [
    'rank 0, running',
    'rank 1, stopped: f:4',
    'rank 2, stopped: exception',
    'rank 3, dead: killed by SIGKILL'
  ]);
});

test('ranks without a cell, without a debugger, without an answer', () => {
  const states = ranks('running', 'detached', 'not answering');
  const shown = rows(states, status({ state: 'idle' }, {}, {}), undefined);
  assert.deepEqual(shown.map(row => row.text), ['idle', 'no debugger', 'not answering']);
  assert.deepEqual(shown.map(row => row.state), ['idle', 'lost', 'lost']);
  assert.equal(rows(ranks('running', 'running'), null, undefined)[0]!.text, 'running');
});

test('what is shown is selected, else what was chosen', () => {
  const selected = (pinned: number | null, shown: number | undefined): number[] =>
    rows({ ...told, pinned }, null, shown).flatMap(row => (row.selected ? row.rank : []));
  assert.deepEqual(selected(2, 131073), [1]);
  assert.deepEqual(selected(2, undefined), [2]);
  assert.deepEqual(selected(null, 1), []); // Lab's own number for nobody
  assert.deepEqual(selected(null, undefined), []);
});

test('there is nothing to choose with one rank, or without an answer', () => {
  assert.deepEqual(rows(ranks('stopped'), null, 65537), []);
  assert.deepEqual(rows(null, status({}, {}), 65537), []);
});

test('ranks of threads', () => {
  assert.deepEqual([65537, 131073, (64 << 16) | 9].map(rankOf), [0, 1, 63]);
  assert.deepEqual([undefined, 0, 1, 2 ** 40].map(rankOf), [null, null, null, null]);
});

test('what makes an answer old', () => {
  const before = signature(status({}, {}));
  assert.equal(signature(status({ rss: 5 }, { busy_since: 3 })), before);
  for (const other of [
    status({}, { stopped: 'step' }),
    status({}, { state: 'idle' }),
    status({}, { generation: 1 }),
    status({}, {}, {}),
    { ...status({}, {}), state: 'idle' as const }
  ]) {
    assert.notEqual(signature(other), before);
  }
});
