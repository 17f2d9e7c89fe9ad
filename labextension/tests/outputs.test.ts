import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ERROR, isShown, labellingOf, markOf, TEXT, type IOutput } from '../src/protocol/outputs';
import { recorded } from './golden';

function display(text: string, spmd: object = {}): IOutput {
  return { type: 'display_data', data: { [TEXT]: text }, metadata: { spmd } };
}

test('a display says its ranks in its metadata', () => {
  const mark = markOf(display('1', { ranks: [1, 2] }));
  assert.deepEqual([0, 1, 2, null].map(choice => isShown(mark, choice)), [false, true, true, true]);
});

test('no mark: every rank', () => {
  assert.ok(isShown(markOf({ type: 'display_data', data: {}, metadata: {} }), 7));
  assert.ok(isShown(markOf({ type: 'stream', data: {}, metadata: {} }), 7));
});

test('a caption is for the view of all ranks', () => {
  const mark = markOf(display('1 │', { ranks: [1], role: 'caption' }));
  assert.deepEqual([null, 1].map(choice => isShown(mark, choice)), [true, false]);
});

test('an error says its ranks before the first line of its traceback', () => {
  const [golden] = recorded().filter(({ name }) => name === 'exc_one.json');
  const text = golden!.shown.find(([kind]) => kind === 'error')![1];
  const error = { ename: 'ValueError', traceback: text.split('\n') };
  const mark = markOf({ type: 'error', data: { [ERROR]: error }, metadata: {} });
  assert.deepEqual(mark, { ranks: [1], role: '', failed: true, died: false });
});

test('a rank that died', () => {
  const error = { ename: 'RankLost', traceback: ['2 │ RankLost: rank 2 died'] };
  assert.ok(markOf({ type: 'error', data: { [ERROR]: error }, metadata: {} }).died);
});

test('a rank that was interrupted has not failed', () => {
  const error = { ename: 'KeyboardInterrupt', traceback: ['2 │ -----'] };
  assert.ok(!markOf({ type: 'error', data: { [ERROR]: error }, metadata: {} }).failed);
});

test('text that everybody has may look labelled and is not', () => {
  const all = display('1 │ x', { ranks: [0, 1] });
  const some = display('1 │ x', { ranks: [1] });
  const live = display('0 │ 10%\n1 │ 20%', { ranks: [0, 1], live: true });
  assert.deepEqual(
    [all, some, live].map(output => labellingOf(output, String(output.data[TEXT]))),
    ['none', 'lines', 'lines']
  );
  const foreign: IOutput = { type: 'display_data', data: {}, metadata: {} };
  assert.equal(labellingOf(foreign, '1 │ x'), 'none');
});

test('metadata that make no sense are no mark', () => {
  for (const spmd of [null, 3, 'x', [], { ranks: 'all' }]) {
    assert.equal(markOf({ type: 'display_data', data: {}, metadata: { spmd } }).ranks, null);
  }
});
