/**
 * Labelled text as it grows: what one rank said, and who said anything.
 *
 * Lines that are complete never change again (a carriage return rewrites the last one only), so each
 * is read once, however often the text is shown.
 */

import { parseLabel } from './labels';

/** One rank, or everybody. */
export type Choice = number | null;

export const WINDOW = 200_000; // characters of a text that are drawn

/** The lines of `rank` in `text.slice(from, to)`, without their labels. */
export function linesOf(text: string, rank: Choice, from = 0, to = text.length): string {
  if (rank === null) {
    return text.slice(from, to);
  }
  const lines: string[] = [];
  while (from < to) {
    const found = text.indexOf('\n', from);
    const end = found < 0 || found >= to ? to : found + 1;
    const label = parseLabel(text, from);
    if (label === null) {
      lines.push(text.slice(from, end));
    } else if (label.ranks.includes(rank)) {
      lines.push(text.slice(label.end, end));
    }
    from = end;
  }
  return lines.join('');
}

/** Where the last `size` characters begin: at a line, unless one alone is longer. */
export function cutAt(text: string, size: number): number {
  const excess = text.length - size;
  if (excess <= 0) {
    return 0;
  }
  const line = text.indexOf('\n', excess - 1) + 1;
  return line > 0 && line < text.length ? line : excess;
}

/** The last part of what a rank said in a text that grows. */
export class TextWindow {
  constructor(
    readonly rank: Choice,
    readonly size = WINDOW
  ) {}

  /** Lines that are not shown, or not from their beginning on, because they are too early. */
  get hidden(): number {
    return this._hidden + (this._isCut ? 1 : 0);
  }

  /** What is to be drawn of `text`, which goes on where it ended the last time, or is another. */
  update(text: string): string {
    const end = text.lastIndexOf('\n') + 1;
    if (end < this._read) {
      this._read = this._lines = 0;
      this._begins = false;
      this._kept = '';
    }
    this._kept += linesOf(text, this.rank, this._read, end);
    this._read = end;
    this._trim();
    const shown = this._kept + linesOf(text.slice(end), this.rank);
    const cut = cutAt(shown, this.size);
    this._hidden = this._lines + newlines(shown, cut);
    this._isCut = cut > 0 ? shown[cut - 1] !== '\n' : this._begins;
    return shown.slice(cut);
  }

  private _trim(): void {
    const cut = cutAt(this._kept, this.size);
    if (cut > 0) {
      this._lines += newlines(this._kept, cut);
      this._begins = this._kept[cut - 1] !== '\n';
      this._kept = this._kept.slice(cut);
    }
  }

  private _kept = '';
  private _read = 0;
  private _lines = 0; // complete ones before what is kept
  private _begins = false; // what is kept begins in the midst of a line
  private _hidden = 0;
  private _isCut = false;
}

function newlines(text: string, to: number): number {
  let count = 0;
  for (let at = text.indexOf('\n'); at >= 0 && at < to; at = text.indexOf('\n', at + 1)) {
    count++;
  }
  return count;
}

/** Which ranks have lines of their own in a text that grows, and whose are the same. */
export class TextLedger {
  /** Take note of what is new in `text`. */
  update(text: string): void {
    const end = text.lastIndexOf('\n') + 1;
    if (end < this._read) {
      this._read = this._shared = 0;
      this._sums.clear();
    }
    for (let from = this._read; from < end; ) {
      const next = text.indexOf('\n', from) + 1;
      this._note(this._sums, text, from, next);
      from = next;
    }
    this._read = end;
    this._tail = text.slice(end);
  }

  /** Ranks that are named by a label. */
  get ranks(): Set<number> {
    const ranks = new Set(this._sums.keys());
    parseLabel(this._tail)?.ranks.forEach(rank => ranks.add(rank));
    return ranks;
  }

  /** It has lines of this rank, or of everybody. */
  hasLinesFor(rank: number): boolean {
    if (this._shared > 0 || this._sums.has(rank)) {
      return true;
    }
    const label = parseLabel(this._tail);
    return label ? label.ranks.includes(rank) : this._tail !== '';
  }

  /** Equal for two ranks that said the same; 0 for one that has no line of its own. */
  sum(rank: number): number {
    const before = this._sums.get(rank) ?? 0;
    const label = parseLabel(this._tail);
    return label?.ranks.includes(rank)
      ? mixed(before, this._shared, hashed(this._tail, label.end, this._tail.length))
      : before;
  }

  private _note(sums: Map<number, number>, text: string, from: number, to: number): void {
    const label = parseLabel(text, from);
    if (label === null) {
      this._shared++;
      return;
    }
    const line = hashed(text, label.end, to);
    for (const rank of label.ranks) {
      sums.set(rank, mixed(sums.get(rank) ?? 0, this._shared, line));
    }
  }

  private _sums = new Map<number, number>();
  private _read = 0;
  private _shared = 0; // lines of everybody so far: where among them a rank's own line stands
  private _tail = '';
}

function hashed(text: string, from: number, to: number): number {
  let hash = 0x811c9dc5;
  for (let at = from; at < to; at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return hash;
}

function mixed(before: number, ...values: number[]): number {
  return values.reduce((hash, value) => Math.imul(hash ^ value, 0x01000193) + 1, before || 1);
}
