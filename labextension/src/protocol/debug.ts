/** Which rank the debugger shows, and which it could: the answer of `spmdRanks` (docs/debugger.md). */

import type { IStatus } from './status';

export type DebugState = 'stopped' | 'running' | 'detached' | 'not answering' | 'dead';

export interface IPlace {
  readonly name: string;
  readonly line: number | null;
  readonly path: string | null;
}

export interface IDebugRank {
  readonly rank: number;
  readonly state: DebugState;
  readonly threadId: number | null;
  /** Why it is stopped: breakpoint, step, exception, pause … */
  readonly reason: string | null;
  readonly place?: IPlace | null;
}

export interface IDebugRanks {
  readonly focus: number | null;
  readonly pinned: number | null;
  readonly ranks: readonly IDebugRank[];
}

export interface IRow {
  readonly rank: number;
  readonly state: 'stopped' | 'failed' | 'running' | 'idle' | 'lost' | 'dead';
  /** Where it is, or what it does. */
  readonly text: string;
  readonly spoken: string;
  readonly selected: boolean;
}

/** The rank of a thread's number; null: it is no number of ours, such as JupyterLab's 1. */
export function rankOf(threadId: number | undefined): number | null {
  return threadId !== undefined && threadId >= 1 << 16 && threadId < 2 ** 40
    ? Math.floor(threadId / (1 << 16)) - 1
    : null;
}

/**
 * What there is to choose from; nothing with a single rank.
 *
 * `shown`: the thread that the front end shows; without one the chosen rank is the selected one.
 */
export function rows(
  told: IDebugRanks | null,
  status: IStatus | null,
  shown: number | undefined
): IRow[] {
  if (told === null || told.ranks.length < 2) {
    return [];
  }
  const selected = rankOf(shown) ?? told.pinned;
  return told.ranks.map(entry => row(entry, status, entry.rank === selected));
}

function row(entry: IDebugRank, status: IStatus | null, selected: boolean): IRow {
  const known = status?.ranks.find(each => each.rank === entry.rank);
  const idle = known !== undefined && known.state !== 'busy';
  const [state, text] = described(entry, idle && known.state !== 'dead' ? known.state : '');
  const cause = state === 'dead' && known?.cause ? `: ${known.cause}` : '';
  const stopped = state === 'stopped' || state === 'failed' ? 'stopped: ' : '';
  const spoken = `rank ${entry.rank}, ${stopped}${text}${cause}`;
  return { rank: entry.rank, state, text, spoken, selected };
}

/** `still`: what it is if not busy with a cell. */
function described(entry: IDebugRank, still: string): [IRow['state'], string] {
  switch (entry.state) {
    case 'stopped':
      return [entry.reason === 'exception' ? 'failed' : 'stopped', whereabouts(entry)];
    case 'running':
      return still ? ['idle', still] : ['running', 'running'];
    case 'detached':
      return ['lost', 'no debugger'];
    case 'not answering':
      return ['lost', 'not answering'];
    case 'dead':
      return ['dead', 'dead'];
  }
}

/** A stop at a breakpoint or after a step is what one expects: no word of it. */
function whereabouts({ place, reason }: IDebugRank): string {
  const where = place ? `${place.name}:${place.line ?? '?'}` : '';
  const why = reason === 'breakpoint' || reason === 'step' ? '' : (reason ?? '');
  return [where, why].filter(Boolean).join(' · ') || 'stopped';
}

/** What of a status makes the answer an old one. */
export function signature(status: IStatus | null): string {
  const ranks = status?.ranks ?? [];
  const lines = ranks.map(r => `${r.generation} ${r.state} ${r.stopped ?? ''}`);
  return [status?.state, ...lines].join('\n'); // new ranks have a debugger when the kernel is idle again
}
