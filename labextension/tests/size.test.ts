import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ERROR, TEXT, markOf, type IOutput } from '../src/protocol/outputs';
import { savedSize, toSave } from '../src/protocol/size';
import { tabsOf } from '../src/protocol/tabs';
import { TextLedger } from '../src/protocol/text';
import { recorded, type IRecorded } from './golden';

const TYPES: Record<string, string> = { stdout: 'stream', stderr: 'stream' };

/** A recorded cell as a notebook saves it. */
function saved({ shown }: IRecorded): IOutput[] {
  return shown.map(([kind, text]) => {
    const type = TYPES[kind] ?? kind;
    const error = { ename: 'ValueError', traceback: text.split('\n') };
    return {
      type,
      data: type === 'error' ? { [ERROR]: error } : { [TEXT]: text },
      metadata: type === 'display_data' ? { spmd: { ranks: [0, 1, 2, 3], live: true } } : {}
    };
  });
}

function tabs(outputs: readonly IOutput[], size: number): number {
  const texts = outputs.filter(output => output.type === 'stream');
  const named = texts.flatMap(output => {
    const ledger = new TextLedger();
    ledger.update(String(output.data[TEXT]));
    return [...ledger.ranks];
  });
  const facts = { size, marks: outputs.map(markOf), named: new Set(named), running: [], dead: [] };
  return tabsOf({ ...facts, fresh: false, signature: String }, null).length;
}

const stream = (text: string): IOutput => ({ type: 'stream', data: { [TEXT]: text }, metadata: {} });
const display = (metadata: object): IOutput => ({
  type: 'display_data',
  data: { [TEXT]: '1 │ x' },
  metadata: metadata as IOutput['metadata']
});

test('what several ranks said, saved and opened again, has tabs', () => {
  const labelled = recorded().filter(cell => tabs(saved(cell), 0) > 0);
  assert.ok(labelled.length > 5);
  for (const cell of labelled) {
    assert.equal(savedSize(saved(cell), undefined, 3), 0, cell.name);
    assert.equal(tabs(saved(cell), savedSize(saved(cell), undefined, 3)), cell.size + 1, cell.name);
  }
});

test('the same text, when one rank printed it, has none', () => {
  for (const cell of recorded()) {
    const texts = saved(cell).filter(output => output.type === 'stream');
    const noted = toSave(1, true, texts, 3);
    assert.deepEqual(noted, { size: 1, execution_count: 3 });
    assert.equal(tabs(texts, savedSize(texts, noted, 3)), 0, cell.name);
    const drawn = [...texts, display({})]; // only one rank's display has no mark
    assert.equal(tabs(drawn, savedSize(drawn, undefined, 3)), 0, cell.name);
    assert.equal(toSave(1, true, drawn, 3), null);
  }
});

test('what is noted of one run says nothing of another', () => {
  const noted = { size: 1, execution_count: 3 };
  assert.equal(savedSize([stream('1 │ x')], noted, 4), 0);
  assert.equal(savedSize([stream('1 │ x')], noted, null), 0);
  assert.equal(savedSize([display({ spmd: { ranks: [0, 1] } })], noted, 3), 0);
  for (const nonsense of [null, 3, 'x', [], { size: 2, execution_count: 3 }, { size: 1 }]) {
    assert.equal(savedSize([stream('1 │ x')], nonsense, 3), 0);
  }
});

test('nothing is noted that is not needed', () => {
  assert.equal(toSave(1, false, [stream('x')], 3), null);
  assert.equal(toSave(4, true, [stream('1 │ x')], 3), null);
  assert.equal(toSave(0, true, [stream('1 │ x')], 3), null); // not known
  assert.equal(toSave(1, true, [stream('1 │ x')], null), null);
});

test('a notice of the kernel carries no ranks and tells nothing', () => {
  assert.equal(savedSize([stream('1 │ x'), display({ spmd: { role: 'hang' } })], undefined, 3), 0);
});
