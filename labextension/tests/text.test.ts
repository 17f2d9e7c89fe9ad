import assert from 'node:assert/strict';
import { test } from 'node:test';
import { linesOf, TextLedger, TextWindow } from '../src/protocol/text';
import { recorded } from './golden';

const plain = (text: string): string =>
  text
    .replace(/\x1b\[\d*m|\x1f/g, '')
    .replace(/(cuda:)\d/g, '$1*')
    .replace(/at 0x[0-9a-f]+/g, 'at 0x');

for (const { name, size, events, shown } of recorded()) {
  // A warning's path differs by process and is folded; bars are rewritten.
  if (name === 'warn_log.json' || name === 'tqdm_write.json') {
    continue;
  }
  test(`${name}: each rank's view is what that rank said`, () => {
    for (let rank = 0; rank < size; rank++) {
      for (const kind of ['stdout', 'stderr']) {
        const said = events.filter(([, who, what]) => who === rank && what === kind);
        const view = shown.filter(([what]) => what === kind).map(([, text]) => linesOf(text, rank));
        assert.equal(plain(view.join('')), plain(said.map(([, , , text]) => text).join('')));
      }
    }
  });
}

test('a text that grows by pieces is shown as one that is there at once', () => {
  const text = '0 │ a\nboth\n1 │ b\n0-1 │ c\n1 │ d';
  for (const rank of [null, 0, 1, 2]) {
    const window = new TextWindow(rank);
    let drawn = '';
    for (let end = 0; end <= text.length; end++) {
      drawn = window.update(text.slice(0, end));
    }
    assert.equal(drawn, linesOf(text, rank));
    assert.equal(window.hidden, 0);
  }
});

test('a window keeps whole lines and says how many are above', () => {
  const lines = Array.from({ length: 1000 }, (_, i) => `${i % 4} │ line ${i}\n`);
  const window = new TextWindow(1, 100);
  let text = '';
  let drawn = '';
  for (const line of lines) {
    drawn = window.update((text += line));
  }
  const own = linesOf(text, 1);
  assert.ok(own.endsWith(drawn) && drawn.startsWith('line ') && drawn.length <= 100);
  assert.equal(window.hidden + drawn.split('\n').length - 1, 250);
});

test('a text that was cleared begins anew', () => {
  const window = new TextWindow(0, 1000);
  window.update('0 │ a\n0 │ b\n');
  assert.equal(window.update('0 │ c\n'), 'c\n');
  assert.equal(window.hidden, 0);
});

test('a line that is rewritten counts once it is complete', () => {
  const window = new TextWindow(0);
  window.update('0 │ 10%');
  window.update('0 │ 100%');
  assert.equal(window.update('0 │ 100%\n'), '100%\n');
});

test('whose lines are the same', () => {
  const ledger = new TextLedger();
  const text = 'all\n0-1 │ x\n2 │ y\n0 │ z\n1 │ z\n3 │ unfinished';
  for (let end = 0; end <= text.length; end += 7) {
    ledger.update(text.slice(0, end));
  }
  ledger.update(text);
  assert.deepEqual([...ledger.ranks].sort(), [0, 1, 2, 3]);
  assert.equal(ledger.sum(0), ledger.sum(1)); // said one by one, but the same
  assert.notEqual(ledger.sum(0), ledger.sum(2));
  assert.notEqual(ledger.sum(3), ledger.sum(4));
  assert.equal(ledger.sum(4), 0);
  assert.ok(ledger.hasLinesFor(4)); // "all"
});

test('no line of everybody: ranks without their own have none', () => {
  const ledger = new TextLedger();
  ledger.update('1 │ a\n2 │ b');
  assert.deepEqual([0, 1, 2].map(rank => ledger.hasLinesFor(rank)), [false, true, true]);
});

test('of a line that is longer than the window the end is drawn', () => {
  const window = new TextWindow(1, 100);
  const long = 'x'.repeat(150) + 'end';
  assert.equal(window.update(`0 │ short\n1 │ ${long}`), long.slice(-100)); // it may go on
  assert.equal(window.hidden, 1);
  assert.equal(window.update(`0 │ short\n1 │ ${long}\n`), `${long}\n`.slice(-100));
  assert.equal(window.hidden, 1);
  assert.equal(window.update(`0 │ short\n1 │ ${long}\n1 │ ${'y'.repeat(60)}\n1 │ z\n`), `${'y'.repeat(60)}\nz\n`);
  assert.equal(window.hidden, 1);
  assert.equal(window.update(`1 │ new\n`), 'new\n');
  assert.equal(window.hidden, 0);
});
