import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gate, missed, sizes, type IHeaders, type IKnownCell } from '../src/protocol/replay';

const run = (cell: string | null, count: number | null, state: IKnownCell['state']): IKnownCell => ({
  msg_id: `${cell}-${count}`,
  cell_id: cell,
  execution_count: count,
  state,
  next: 1
});
const shown = (counts: Record<string, number | null>) =>
  new Map(Object.entries(counts).map(([id, count]) => [id, { execution_count: count }]));
const ids = (runs: IKnownCell[]): string[] => runs.map(each => each.msg_id);

test('cells that go on, and those that ended unseen', () => {
  const known = [run('a', 3, 'done'), run('b', 4, 'done'), run('c', 5, 'running')];
  const page = shown({ a: 3, b: null, c: null });
  assert.deepEqual(ids(missed(known, page, 0)), ['b-4', 'c-5']);
});

test('the last run of a cell is meant; others and strangers are not', () => {
  const known = [run('a', 3, 'done'), run('a', 7, 'done'), run('x', 8, 'running'), run(null, 9, 'done')];
  assert.deepEqual(ids(missed(known, shown({ a: 3 }), 0)), ['a-7']);
  assert.deepEqual(ids(missed(known, shown({ a: 7 }), 0)), []);
});

test('what somebody saw end is not brought back', () => {
  const known = [run('a', 3, 'done'), run('b', 4, 'done')];
  assert.deepEqual(ids(missed(known, shown({ a: null, b: null }), 3)), ['b-4']);
});

test('the size is that of the run whose outputs are there', () => {
  const known = [
    { ...run('a', 3, 'done'), size: 4 },
    { ...run('a', 5, 'done'), size: 1 },
    { ...run('b', 6, 'done'), size: 2 },
    { ...run('c', 7, 'done'), size: null },
    { ...run('d', 8, 'running'), size: 2 }
  ];
  const page = shown({ a: 5, b: 1, c: 7, d: null });
  assert.deepEqual([...sizes(known, page, [known[4]!])], [['a', 1], ['d', 2]]);
  assert.deepEqual([...sizes(known, shown({ a: 3 }), [])], []); // it has run since
});

const message = (parent: string, type: string, content: object = {}): IHeaders => ({
  header: { msg_type: type },
  parent_header: { msg_id: parent },
  content
});
const busy = (parent: string): IHeaders => message(parent, 'status', { execution_state: 'busy' });
const idle = (parent: string): IHeaders => message(parent, 'status', { execution_state: 'idle' });

test('live messages: nothing twice, nothing lost', () => {
  const seen: IHeaders[] = [];
  const gate = new Gate<IHeaders>('cell', each => seen.push(each));
  const text = [1, 2, 3, 4, 5].map(n => message('cell', 'stream', { text: `${n}` }));
  gate.hear(text[0]!); // in the answer
  gate.ask('first');
  gate.hear(busy('first'));
  gate.hear(idle('first'));
  gate.hear(text[1]!); // in the second answer, as it turns out
  gate.ask('second');
  gate.hear(text[2]!);
  gate.hear(busy('second'));
  gate.hear(idle('second'));
  gate.hear(text[3]!);
  gate.hear(message('other', 'stream'));
  assert.deepEqual(seen, []);
  gate.open();
  gate.hear(text[4]!);
  assert.deepEqual(seen, [text[3], text[4]]);
});
