import assert from 'node:assert/strict';
import { test } from 'node:test';
import { applied, type IStatus } from '../src/protocol/status';
import { headline, tableOf } from '../src/protocol/table';
import { pushed } from './golden';

/** What the panel shows after each message of the recorded story. */
const shown = (() => {
  let status: IStatus | null = null;
  return pushed('gpus').map(message => {
    status = applied(status, message)!;
    const { heads, rows } = tableOf(status, message.now);
    return { head: headline(status), heads, rows, cells: rows.map(row => row.cells) };
  });
})();

test('before anybody has looked there is no memory and no column for GPUs', () => {
  assert.equal(shown[0]!.head, '3 ranks, idle');
  assert.deepEqual(shown[0]!.heads, ['rank', 'state', 'pid', 'cell', 'memory']);
  assert.deepEqual(shown[0]!.cells[2], ['2', 'idle', '1002', '', '']);
});

test('what each rank holds of the machine and of a GPU', () => {
  assert.deepEqual(shown[1]!.heads, ['rank', 'state', 'pid', 'cell', 'memory', 'GPU']);
  assert.deepEqual(shown[1]!.cells, [
    ['0', 'idle', '1000', '', '500 MB', '12 GB'],
    ['1', 'idle', '1001', '', '1.0 GB', '1.0 GB'],
    ['2', 'idle', '1002', '', '1.5 GB', ''] // a rank without one
  ]);
});

test('ranks at work, and who is done', () => {
  assert.deepEqual(shown[2]!.cells[0], ['0', 'busy', '1000', '1.0 s', '500 MB', '12 GB']);
  assert.equal(shown[3]!.head, '3 ranks; the cell still runs on 0,2');
  assert.deepEqual(shown[3]!.rows.map(row => row.state), ['busy', 'idle', 'busy']);
});

test('what a rank asks', () => {
  assert.equal(shown[4]!.head, '3 ranks; rank 0 waits for your answer: go on? ');
});

test('what a rank died of', () => {
  const [row] = shown[5]!.rows;
  assert.equal(row!.state, 'dead');
  assert.match(row!.cause!, /SIGKILL/);
  assert.equal(shown[5]!.head, '3 ranks; the cell still runs on 2');
});

test('how long each took when all is over', () => {
  assert.equal(shown.at(-1)!.head, '3 ranks, idle');
  assert.deepEqual(shown.at(-1)!.cells.map(cells => cells[3]), ['', '1.0 s', '7.1 s']);
});
