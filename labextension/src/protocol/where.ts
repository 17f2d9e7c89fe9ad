/** The answer of `where`, ranks with equal stacks together. */

import type { Ranks } from './labels';

export interface IFrame {
  readonly place: string;
  readonly file: string;
  readonly line: number;
  readonly function: string;
}

export interface IWhereRank {
  readonly rank: number;
  readonly state: string;
  readonly frames?: readonly IFrame[];
  readonly waits_in?: string | null;
  readonly seconds?: number | null;
}

export interface IStack {
  readonly ranks: Ranks;
  readonly state: string;
  readonly waits: string | null;
  /** The longest of them. */
  readonly seconds: number | null;
  readonly frames: readonly IFrame[];
}

export function folded(ranks: readonly IWhereRank[]): IStack[] {
  const groups = new Map<string, IWhereRank[]>();
  for (const entry of ranks) {
    const frames = (entry.frames ?? []).map(f => `${anonymous(f.file)}:${f.line}:${f.function}`);
    const key = [entry.state, ...frames].join('\n');
    groups.set(key, [...(groups.get(key) ?? []), entry]);
  }
  return [...groups.values()].map(stack);
}

function stack(entries: IWhereRank[]): IStack {
  const first = entries[0]!;
  const seconds = entries.flatMap(entry => entry.seconds ?? []);
  return {
    ranks: entries.map(entry => entry.rank),
    state: first.state,
    waits: first.waits_in ?? null,
    seconds: seconds.length ? Math.max(...seconds) : null,
    frames: first.frames ?? []
  };
}

/** Without what differs from rank to rank: the process number in the names of cells' files. */
function anonymous(file: string): string {
  return file.replace(/ipykernel_\d+\//, '');
}

/** What ipykernel's name of a cell's file says of its code; empty for any other file. */
export function cellHash(file: string): string {
  return /(?:^|\/)ipykernel_\d+\/(\d+)\.py$/.exec(file)?.[1] ?? '';
}

const SEED = 0xc70f6907; // ipykernel.compiler.get_tmp_hash_seed
const M = 0x5bd1e995;

/** The same of the code: MurmurHash2, 32 bits (Austin Appleby; public domain). */
export function codeHash(code: string): string {
  const bytes = new TextEncoder().encode(code);
  const words = bytes.length & ~3;
  let h = SEED ^ bytes.length;
  for (let at = 0; at < words; at += 4) {
    let k = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
    k = Math.imul(k, M);
    h = Math.imul(h, M) ^ Math.imul(k ^ (k >>> 24), M);
  }
  if (words < bytes.length) {
    for (let at = bytes.length - 1; at >= words; at--) {
      h ^= bytes[at]! << (8 * (at - words));
    }
    h = Math.imul(h, M);
  }
  h = Math.imul(h ^ (h >>> 13), M);
  return `${(h ^ (h >>> 15)) >>> 0}`;
}
