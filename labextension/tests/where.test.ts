import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cellHash, codeHash, folded } from '../src/protocol/where';

const frame = (pid: number, line = 2) => ({
  place: `cell line ${line}`,
  file: `/tmp/ipykernel_${pid}/123.py`,
  line,
  function: '<module>'
});

test('equal stacks are together, whatever their process is', () => {
  const busy = { state: 'busy', waits_in: 'all_reduce' };
  const stacks = folded([
    { rank: 0, ...busy, seconds: 3, frames: [frame(10)] },
    { rank: 1, ...busy, seconds: 5, frames: [frame(11)] },
    { rank: 2, ...busy, seconds: 1, frames: [frame(12, 3)] },
    { rank: 3, state: 'idle' }
  ]);
  assert.deepEqual(
    stacks.map(stack => [stack.ranks, stack.seconds, stack.frames.length]),
    [
      [[0, 1], 5, 1],
      [[2], 1, 1],
      [[3], null, 0]
    ]
  );
});

test('which cell a file is', () => {
  assert.equal(cellHash('/tmp/ipykernel_7/3290021454.py'), '3290021454');
  assert.equal(cellHash('/home/me/train.py'), '');
});

test('the name of a cell is that of ipykernel', () => {
  // ipykernel.compiler.get_file_name
  for (const [code, name] of CODES) {
    assert.equal(codeHash(code), name, code);
  }
});

const CODES: [string, string][] = [
  ['', '3990065800'],
  ['1', '224161117'],
  ['1 + 1', '2359671083'],
  ['print("ä│")\n', '4086298438'],
  ['import time\ntime.sleep(600)', '4072533976']
];
