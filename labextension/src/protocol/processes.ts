/** What somebody typed for the number of processes. */

export interface ILimits {
  readonly pinned: number | null;
  readonly max_processes: number | null;
}

export type Wish = { readonly size: number } | { readonly problem: string };

const MOST = 4096; // as %processes has it

export function wished(text: string, limits: ILimits | null): Wish {
  const digits = text.trim();
  if (!/^\d+$/.test(digits) || Number(digits) < 1) {
    return { problem: 'a whole number from 1 on, please' };
  }
  const size = Number(digits);
  if (limits?.pinned != null) {
    return { problem: `SPMD_PROCESSES keeps it at ${limits.pinned}` };
  }
  const most = limits?.max_processes ?? MOST;
  if (size > most) {
    const why = limits?.max_processes != null ? 'SPMD_MAX_PROCESSES' : 'the kernel';
    return { problem: `${why} allows no more than ${most}` };
  }
  return { size };
}
