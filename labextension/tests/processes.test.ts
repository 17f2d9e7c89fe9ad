import assert from 'node:assert/strict';
import { test } from 'node:test';
import { wished } from '../src/protocol/processes';

const free = { pinned: null, max_processes: null };

test('a number of processes', () => {
  assert.deepEqual(wished(' 4 ', free), { size: 4 });
  assert.deepEqual(wished('8', null), { size: 8 });
});

test('what is none', () => {
  for (const text of ['', '0', '-1', '1.5', '1e3', 'four', '4 4', '99999']) {
    assert.ok('problem' in wished(text, free), text);
  }
});

test('what the kernel would refuse', () => {
  assert.ok('problem' in wished('4', { pinned: 2, max_processes: null }));
  assert.ok('problem' in wished('5', { pinned: null, max_processes: 4 }));
  assert.deepEqual(wished('4', { pinned: null, max_processes: 4 }), { size: 4 });
});
