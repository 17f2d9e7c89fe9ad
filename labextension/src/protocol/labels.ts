/**
 * The plain-text label that says which ranks a line is from: `0-2,5 │ ready`.
 *
 * No label means every rank that ran the cell. The form is that of `spmd_kernel.core.outputs.labels`.
 */

export type Ranks = readonly number[];

export interface ILabel {
  readonly ranks: Ranks;
  /** Where the text after the label begins. */
  readonly end: number;
}

const LABEL = / *([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*) │ /y;
const MOST = 65536; // ranks one label may name: more is some program's own text
const KNOWN = 4096; // labels remembered; a cell has few different ones
const known = new Map<string, Ranks | null>();

/** The first label of the line that begins at `at`, or null. */
export function parseLabel(text: string, at = 0): ILabel | null {
  const code = text.charCodeAt(at);
  if (code !== 32 && !(code >= 48 && code <= 57)) {
    return null; // most lines: no regular expression for them
  }
  LABEL.lastIndex = at;
  const found = LABEL.exec(text);
  const ranks = found && ranksOf(found[1]!);
  return ranks ? { ranks, end: LABEL.lastIndex } : null;
}

/** `0-2,5` of ranks 0, 1, 2 and 5. */
export function rankRanges(ranks: Iterable<number>): string {
  const sorted = [...ranks].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let from = 0, i = 1; i <= sorted.length; i++) {
    if (i === sorted.length || sorted[i] !== sorted[i - 1]! + 1) {
      const first = sorted[from]!;
      const last = sorted[i - 1]!;
      parts.push(first === last ? `${first}` : `${first}-${last}`);
      from = i;
    }
  }
  return parts.join(',');
}

/** `rank 3`, `ranks 0-2,5`. */
export function nameRanks(ranks: Ranks): string {
  return `${ranks.length === 1 ? 'rank' : 'ranks'} ${rankRanges(ranks)}`;
}

function ranksOf(text: string): Ranks | null {
  let ranks = known.get(text);
  if (ranks === undefined) {
    if (known.size >= KNOWN) {
      known.clear();
    }
    known.set(text, (ranks = expand(text)));
  }
  return ranks;
}

function expand(text: string): Ranks | null {
  const ranks: number[] = [];
  for (const part of text.split(',')) {
    if (part.length > 15) {
      return null;
    }
    const [first, last] = part.split('-');
    const low = Number(first);
    const high = Number(last ?? first);
    const before = ranks[ranks.length - 1];
    if (high < low || high - low >= MOST || (before !== undefined && low <= before)) {
      return null;
    }
    for (let rank = low; rank <= high; rank++) {
      ranks.push(rank);
    }
  }
  return ranks;
}
