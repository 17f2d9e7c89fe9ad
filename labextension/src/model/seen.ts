/**
 * Up to which execution count this browser has seen cells end, kernel by kernel.
 *
 * A cell that ended before somebody's eyes and whose outputs he then deleted is not brought back.
 */

const KEY = 'spmd-kernel:seen';
const MOST = 50; // kernels

type Seen = Record<string, number>;

export function lastSeen(kernel: string): number {
  return read()[kernel] ?? 0;
}

export function note(kernel: string, count: number): void {
  const seen = read();
  if (count <= (seen[kernel] ?? 0)) {
    return;
  }
  delete seen[kernel]; // the newest is last
  const kept = Object.entries({ ...seen, [kernel]: count }).slice(-MOST);
  try {
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(kept)));
  } catch {
    // No storage, no memory: then some outputs come back.
  }
}

function read(): Seen {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') as Seen;
  } catch {
    return {};
  }
}
