import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nameRanks, parseLabel, rankRanges } from '../src/protocol/labels';
import { labels } from './golden';

test('labels are read as the kernel reads them', () => {
  for (const [line, ranks, rest] of labels()) {
    const label = parseLabel(line);
    assert.deepEqual(label?.ranks ?? null, ranks, line);
    assert.equal(label ? line.slice(label.end) : line, rest);
  }
});

test('a label is looked for where a line begins', () => {
  const text = 'ab\n12 │ x';
  assert.equal(parseLabel(text, 1), null);
  assert.deepEqual(parseLabel(text, 3), { ranks: [12], end: 8 });
});

test('ranks are named as in labels', () => {
  assert.equal(rankRanges([5, 0, 1, 2]), '0-2,5');
  assert.equal(rankRanges([]), '');
  assert.equal(nameRanks([3]), 'rank 3');
  assert.equal(nameRanks([0, 1]), 'ranks 0-1');
});
