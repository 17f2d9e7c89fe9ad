/** The table of the Ranks panel, in words. */

import { bytes, seconds } from './format';
import { nameRanks, parseLabel, rankRanges } from './labels';
import { secondsOf, slowRanks, type IRank, type IStatus } from './status';

export interface IRow {
  readonly rank: number;
  readonly state: IRank['state'];
  readonly isSlow: boolean;
  readonly cells: readonly string[];
  readonly cause: string | null;
}

export interface ITable {
  readonly heads: readonly string[];
  readonly rows: readonly IRow[];
}

export function tableOf(status: IStatus, now: number): ITable {
  const hasGpu = status.ranks.some(rank => rank.gpu_memory != null);
  const slow = new Set(slowRanks(status, now)); // but those that the debugger holds
  status.ranks.forEach(rank => rank.stopped && slow.delete(rank.rank));
  return {
    heads: ['rank', 'state', 'pid', 'cell', 'memory', ...(hasGpu ? ['GPU'] : [])],
    rows: status.ranks.map(rank => rowOf(rank, slow.has(rank.rank), hasGpu, now))
  };
}

function rowOf(rank: IRank, isSlow: boolean, hasGpu: boolean, now: number): IRow {
  const busy = rank.stopped ? 'stopped' : isSlow ? 'slow' : rank.state;
  const cells = [
    `${rank.rank}`,
    rank.state === 'busy' ? busy : rank.state,
    `${rank.pid ?? ''}`,
    seconds(secondsOf(rank, now)),
    bytes(rank.rss),
    ...(hasGpu ? [bytes(rank.gpu_memory)] : [])
  ];
  return { rank: rank.rank, state: rank.state, isSlow, cells, cause: rank.cause };
}

export function headline(status: IStatus): string {
  const ranks = `${status.size} ${status.size === 1 ? 'rank' : 'ranks'}`;
  const { question } = status;
  if (question) {
    const verb = question.ranks.length === 1 ? 'waits' : 'wait';
    const prompt = question.prompt.slice(parseLabel(question.prompt)?.end ?? 0);
    return `${ranks}; ${nameRanks(question.ranks)} ${verb} for your answer: ${prompt}`;
  }
  const running = status.running?.ranks ?? [];
  if (status.running && running.length > 0 && running.length < status.size) {
    return `${ranks}; the cell still runs on ${rankRanges(running)}`;
  }
  const { queued } = status;
  const waits = queued ? `, ${queued} ${queued === 1 ? 'cell waits' : 'cells wait'}` : '';
  return `${ranks}, ${status.state}${waits}`;
}
