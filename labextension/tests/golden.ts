/** The payloads that Python's tests read, too. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { IDebugRanks } from '../src/protocol/debug';
import type { IStatusMessage } from '../src/protocol/status';

// Compiled to labextension/build/test/tests.
const FOLDER = join(__dirname, '../../../../tests/golden');

export type Event = [at: number, rank: number, kind: string, text: string];

export interface IRecorded {
  readonly name: string;
  readonly size: number;
  readonly events: readonly Event[];
  readonly shown: readonly [kind: string, text: string][];
}

export function recorded(): IRecorded[] {
  const folder = join(FOLDER, 'outputs');
  return readdirSync(folder).map(name => ({ name, ...read(join(folder, name)) }) as IRecorded);
}

export function labels(): [line: string, ranks: number[] | null, rest: string][] {
  return read(join(FOLDER, 'labels', 'labels.json')) as ReturnType<typeof labels>;
}

export function pushed(name: string): IStatusMessage[] {
  return read(join(FOLDER, 'status', `${name}.json`)) as IStatusMessage[];
}

export function debugRanks(): IDebugRanks {
  return read(join(FOLDER, 'debug', 'ranks.json')) as IDebugRanks;
}

function read(path: string): object {
  return JSON.parse(readFileSync(path, 'utf-8')) as object;
}
