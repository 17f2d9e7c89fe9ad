/** What the comm `spmd.status` tells (docs/control.md), put together again. */

import type { Ranks } from './labels';

export type RankState = 'idle' | 'busy' | 'starting' | 'stopping' | 'dead';

export interface IRank {
  readonly rank: number;
  readonly state: RankState;
  readonly pid: number | null;
  readonly generation: number;
  readonly busy_since: number | null;
  readonly last_seconds: number | null;
  readonly cause: string | null;
  /** Why the debugger has stopped it. */
  readonly stopped?: string | null;
  readonly cpu?: number | null;
  readonly rss?: number | null;
  readonly gpu_memory?: number | null;
}

export interface IRunning {
  readonly msg_id: string;
  readonly cell_id: string | null;
  readonly execution_count: number | null;
  readonly started: number;
  readonly ranks: Ranks;
}

/** What ranks want a person to answer. */
export interface IQuestion {
  readonly msg_id: string;
  /** Of the cell's execute_request. */
  readonly cell: string;
  readonly prompt: string;
  readonly password: boolean;
  readonly ranks: Ranks;
}

export interface IStatus {
  readonly state: 'starting' | 'idle' | 'busy' | 'closing';
  readonly size: number;
  readonly kernel: string;
  readonly running: IRunning | null;
  readonly queued: number;
  readonly question: IQuestion | null;
  readonly ranks: readonly IRank[];
  readonly settings: {
    readonly pinned: number | null;
    readonly max_processes: number | null;
    readonly show: Ranks | null;
  };
}

export interface IStatusMessage {
  readonly kind: 'full' | 'change';
  readonly now: number;
  readonly status: Partial<IStatus>;
}

/** `message` put over what was known. A change of something unknown changes nothing. */
export function applied(known: IStatus | null, message: IStatusMessage): IStatus | null {
  if (message.kind === 'full') {
    return message.status as IStatus;
  }
  if (known === null) {
    return null;
  }
  const size = message.status.size ?? known.size;
  const ranks = new Map(known.ranks.map(entry => [entry.rank, entry]));
  message.status.ranks?.forEach(entry => ranks.set(entry.rank, entry));
  const kept = [...ranks.values()].filter(entry => entry.rank < size);
  return { ...known, ...message.status, ranks: kept.sort((a, b) => a.rank - b.rank) };
}

/** Seconds that a rank has been at its cell, or its last one took. */
export function secondsOf(rank: IRank, now: number): number | null {
  return rank.busy_since === null ? rank.last_seconds : Math.max(0, now - rank.busy_since);
}

const SLOW = 2; // times the median of the others
const WORTH = 1; // seconds more than that: less is nobody's trouble

/** Ranks that the others wait, or waited, for. */
export function slowRanks(status: IStatus, now: number): Ranks {
  const running = new Set(status.running?.ranks ?? []);
  const times = status.ranks.map(rank => ({ rank: rank.rank, seconds: secondsOf(rank, now) }));
  const rest = times.filter(each => !running.has(each.rank));
  const compared = running.size > 0 ? rest : times;
  if (times.length < 2 || 2 * compared.length < times.length) {
    return [];
  }
  const usual = median(compared.flatMap(each => each.seconds ?? []));
  const candidates = running.size > 0 ? times.filter(each => running.has(each.rank)) : times;
  return candidates
    .filter(each => (each.seconds ?? 0) > Math.max(SLOW * usual, usual + WORTH))
    .map(each => each.rank);
}

function median(values: number[]): number {
  const sorted = values.sort((a, b) => a - b);
  const half = sorted.length >> 1;
  const upper = sorted[half] ?? 0;
  return sorted.length % 2 ? upper : ((sorted[half - 1] ?? upper) + upper) / 2;
}
