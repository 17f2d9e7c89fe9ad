/**
 * How many ranks ran a cell, by what is saved with it.
 *
 * Streams can carry no mark (docs/outputs.md): what reads like a label may be what the program of a
 * single rank printed. Displays tell, and where there are none the cell's metadata do.
 */

import type { IOutput } from './outputs';

export const KEY = 'spmd'; // of a cell's metadata

/** What the metadata of such a cell say: this run of it was one rank's. */
export interface ISaved {
  readonly size: 1;
  readonly execution_count: number;
}

/** 1: a single one; 0: several, or nobody knows. */
export function savedSize(
  outputs: readonly IOutput[],
  saved: unknown,
  count: number | null
): 0 | 1 {
  const marks = outputs.filter(isRich).map(output => output.metadata[KEY]);
  if (marks.some(hasRanks)) {
    return 0;
  }
  if (marks.some(mark => mark === undefined)) {
    return 1; // where there are several, each display is marked
  }
  return isSaved(saved) && count !== null && saved.execution_count === count ? 1 : 0;
}

/**
 * What the metadata are to say, null: nothing. Only what would be misread is noted: the notebook
 * of a single rank stays that of the bare kernel.
 *
 * `size`: how many ranks ran it, as the kernel says. `looks`: its text reads as if it had labels.
 */
export function toSave(
  size: number,
  looks: boolean,
  outputs: readonly IOutput[],
  count: number | null
): ISaved | null {
  const needed = size === 1 && looks && count !== null && savedSize(outputs, null, count) === 0;
  return needed ? { size: 1, execution_count: count } : null;
}

export function isSaved(saved: unknown): saved is ISaved {
  const { size, execution_count } = (saved ?? {}) as Partial<ISaved>;
  return size === 1 && Number.isInteger(execution_count);
}

function isRich({ type }: IOutput): boolean {
  return type === 'display_data' || type === 'execute_result';
}

function hasRanks(mark: unknown): boolean {
  return Array.isArray((mark as { ranks?: unknown } | null | undefined)?.ranks);
}
