import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { IMark } from '../src/protocol/outputs';
import { tabsOf, type ICellFacts } from '../src/protocol/tabs';

const mark = (ranks: number[] | null, more: Partial<IMark> = {}): IMark => ({
  ranks,
  role: '',
  failed: false,
  died: false,
  ...more
});

function facts(more: Partial<ICellFacts>): ICellFacts {
  return {
    size: 0,
    marks: [],
    named: new Set(),
    running: [],
    fresh: false,
    dead: [],
    signature: rank => `${rank}`,
    ...more
  };
}

const titles = (known: ICellFacts, choice: number | null = null): string[] =>
  tabsOf(known, choice).map(tab => tab.title);

test('nothing of one rank alone: no tabs', () => {
  assert.deepEqual(titles(facts({ size: 4 })), []);
  assert.deepEqual(titles(facts({ size: 4, marks: [mark([0, 1, 2, 3]), mark(null)] })), []);
  assert.deepEqual(titles(facts({ size: 1, running: [0] })), []);
  assert.deepEqual(titles(facts({ size: 1, named: new Set([7]) }), 7), []); // the program's own
});

test('without a kernel the highest rank that is named tells how many', () => {
  assert.deepEqual(titles(facts({ named: new Set([2]) })), ['All', '0', '1', '2']);
  assert.deepEqual(titles(facts({ marks: [mark([0]), mark([1])] })), ['All', '0', '1']);
});

test('while it runs there are tabs, and they say so', () => {
  const tabs = tabsOf(facts({ size: 2, running: [1] }), 1);
  assert.deepEqual(tabs.map(tab => tab.state), ['', '', 'running']);
  assert.equal(tabs[2]!.spoken, 'rank 1, still running');
  assert.deepEqual(tabs.map(tab => tab.selected), [false, false, true]);
});

test('a cell that has only just begun has tabs if a rank has said something', () => {
  assert.deepEqual(titles(facts({ size: 2, running: [0, 1], fresh: true })), []);
  const known = facts({ size: 2, running: [0], fresh: true, named: new Set([1]) });
  assert.deepEqual(titles(known), ['All', '0', '1']);
});

test('failed and dead ranks', () => {
  const marks = [mark([1], { failed: true }), mark([2], { failed: true, died: true })];
  const tabs = tabsOf(facts({ size: 4, marks, running: [1, 3], dead: [] }), null);
  assert.deepEqual(tabs.map(tab => tab.state), ['', '', 'failed', 'dead', 'running']);
});

test('an error of all ranks', () => {
  const known = facts({ size: 2, named: new Set([0]), marks: [mark(null, { failed: true })] });
  assert.deepEqual(tabsOf(known, null).map(tab => tab.state), ['', 'failed', 'failed']);
});

test('beyond eight ranks equal ones are together', () => {
  const known = facts({ size: 64, named: new Set([7]), signature: r => (r === 7 ? 'b' : 'a') });
  assert.deepEqual(titles(known), ['All', '0-6,8-63', '7']);
  assert.equal(tabsOf(known, 9).find(tab => tab.selected)?.title, '0-6,8-63');
});

test('what is chosen elsewhere stays visible', () => {
  const known = facts({ size: 2, named: new Set([1]) });
  assert.deepEqual(titles(known, 5), ['All', '0', '1', '5']);
});
