/** The row of tabs over a cell's outputs: who is on it, and how they fare. */

import { nameRanks, rankRanges, type Ranks } from './labels';
import type { IMark } from './outputs';
import type { Choice } from './text';

export type State = '' | 'running' | 'failed' | 'dead';

export interface ITab {
  /** null: all ranks together. */
  readonly ranks: Ranks | null;
  readonly title: string; // 0-6
  readonly spoken: string; // ranks 0-6, still running
  readonly state: State;
  readonly selected: boolean;
}

/** What is known of a cell. */
export interface ICellFacts {
  /** As many as the cell ran on, if that is known. */
  readonly size: number;
  readonly marks: readonly IMark[];
  /** Ranks that its text names. */
  readonly named: ReadonlySet<number>;
  readonly running: Ranks;
  /** It has only just begun: a row of tabs that comes and goes would disturb. */
  readonly fresh: boolean;
  readonly dead: Ranks;
  /** Equal for ranks whose outputs are. */
  readonly signature: (rank: number) => string;
}

export const SINGLE = 8; // more ranks than this are grouped
export const FIT = 16; // tabs beside each other; the others are in a menu

/** Empty: nobody said anything of his own, so there is nothing to choose. */
export function tabsOf(facts: ICellFacts, choice: Choice): ITab[] {
  if (facts.size === 1) {
    return []; // what looks like a label is the program's own
  }
  const own = [...facts.named, ...facts.marks.flatMap(partial(facts))];
  const highest = own.reduce((a, b) => Math.max(a, b), -1);
  const size = Math.max(facts.size, highest + 1, lastMarked(facts) + 1);
  if (size < 2 || (own.length === 0 && (facts.fresh || facts.running.length === 0))) {
    return [];
  }
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  const groups = size > SINGLE ? grouped(ranks, facts) : ranks.map(rank => [rank]);
  if (choice !== null && choice >= size) {
    groups.push([choice]); // chosen elsewhere: it stays visible what is shown
  }
  return [
    { ranks: null, title: 'All', spoken: 'all ranks', state: '', selected: choice === null },
    ...groups.map(group => tab(group, facts, choice))
  ];
}

const WORDS: Record<State, string> = {
  '': '',
  running: ', still running',
  failed: ', failed',
  dead: ', died'
};

function tab(ranks: Ranks, facts: ICellFacts, choice: Choice): ITab {
  const state = stateOf(ranks[0]!, facts);
  return {
    ranks,
    title: rankRanges(ranks),
    spoken: nameRanks(ranks) + WORDS[state],
    state,
    selected: choice !== null && ranks.includes(choice)
  };
}

function stateOf(rank: number, facts: ICellFacts): State {
  const has = (mark: IMark): boolean => mark.ranks === null || mark.ranks.includes(rank);
  if (facts.dead.includes(rank) || facts.marks.some(m => m.died && m.ranks?.includes(rank))) {
    return 'dead';
  }
  if (facts.marks.some(m => m.failed && !m.died && has(m))) {
    return 'failed';
  }
  return facts.running.includes(rank) ? 'running' : '';
}

/** Ranks with equal outputs and state together, in order of their first. */
function grouped(ranks: Ranks, facts: ICellFacts): Ranks[] {
  const groups = new Map<string, number[]>();
  for (const rank of ranks) {
    const key = `${stateOf(rank, facts)} ${facts.signature(rank)}`;
    const group = groups.get(key);
    if (group) {
      group.push(rank);
    } else {
      groups.set(key, [rank]);
    }
  }
  return [...groups.values()];
}

/** The ranks of a mark that names some, not all. */
function partial(facts: ICellFacts): (mark: IMark) => Ranks {
  const size = Math.max(facts.size, lastMarked(facts) + 1);
  return mark => (mark.ranks && mark.ranks.length < size ? mark.ranks : []);
}

function lastMarked(facts: ICellFacts): number {
  const all = facts.marks.flatMap(mark => mark.ranks ?? []);
  return all.reduce((a, b) => Math.max(a, b), -1);
}
