/** Whose an output is, by the mark that it carries (docs/outputs.md). */

import { parseLabel, type Ranks } from './labels';
import type { Choice } from './text';

/** As much of an output of a notebook as a mark can be in. */
export interface IOutput {
  readonly type: string; // stream, display_data, execute_result, error
  readonly data: Readonly<Record<string, unknown>>;
  readonly metadata: Readonly<Record<string, unknown>>;
}

export interface IMark {
  /** null: of every rank that ran the cell, or, in a stream, said by each of its lines. */
  readonly ranks: Ranks | null;
  readonly role: 'caption' | 'hang' | '';
  readonly failed: boolean;
  readonly died: boolean;
}

export const ERROR = 'application/vnd.jupyter.error';
export const TEXT = 'text/plain';

export function markOf(output: IOutput): IMark {
  if (output.type === 'error') {
    const error = output.data[ERROR] as { ename?: string; traceback?: string[] } | undefined;
    const ranks = parseLabel(error?.traceback?.[0] ?? '')?.ranks ?? null;
    const failed = error?.ename !== 'KeyboardInterrupt'; // that was Stop, or what others did
    return { ranks, role: '', failed, died: error?.ename === 'RankLost' };
  }
  const spmd = ours(output);
  const role = spmd['role'];
  return {
    ranks: Array.isArray(spmd['ranks']) ? spmd['ranks'].filter(Number.isInteger) : null,
    role: role === 'caption' || role === 'hang' ? role : '',
    failed: false,
    died: false
  };
}

export function isShown(mark: IMark, choice: Choice): boolean {
  if (choice === null) {
    return true;
  }
  return mark.role !== 'caption' && (mark.ranks === null || mark.ranks.includes(choice));
}

/** Where labels are to be looked for in the text of an output. */
export type Labelling = 'lines' | 'first' | 'none';

/** `text` is what is drawn: for a result that many ranks have, it may read like a label and be none. */
export function labellingOf(output: IOutput, text: string): Labelling {
  if (output.type === 'stream') {
    return 'lines';
  }
  if (output.type === 'error') {
    return 'first';
  }
  const spmd = ours(output);
  const ranks = spmd['ranks'];
  if (!Array.isArray(ranks)) {
    return 'none';
  }
  if (spmd['live'] === true) {
    return 'lines';
  }
  return parseLabel(text)?.ranks.join() === ranks.join() ? 'lines' : 'none';
}

function ours(output: IOutput): Readonly<Record<string, unknown>> {
  const spmd = output.metadata['spmd'];
  return typeof spmd === 'object' && spmd !== null ? (spmd as Record<string, unknown>) : {};
}
