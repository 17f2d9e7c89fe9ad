import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytes, seconds } from '../src/protocol/format';

test('bytes', () => {
  const values = [null, 0, 999, 51_200_000, 1_500_000_000, 80_000_000_000];
  assert.deepEqual(values.map(bytes), ['', '0 B', '999 B', '51 MB', '1.5 GB', '80 GB']);
});

test('seconds', () => {
  const values = [null, 0.04, 9.95, 59.4, 61, 3725];
  assert.deepEqual(values.map(seconds), ['', '0.0 s', '9.9 s', '59 s', '1:01 min', '1:02 h']);
});
