/** Outputs that a page has missed: which cells', and what of the live messages is new. */

/** A cell as the kernel remembers it (`outputs` in docs/control.md). */
export interface IKnownCell {
  readonly msg_id: string;
  readonly cell_id: string | null;
  readonly execution_count: number | null;
  readonly state: 'queued' | 'running' | 'done' | 'unknown';
  /** How many ranks there were; null: none ran it, undefined: the kernel is an older one. */
  readonly size?: number | null;
  readonly next: number;
}

/** A cell as the notebook has it. */
export interface IShownCell {
  readonly execution_count: number | null;
}

/**
 * The runs whose outputs are to be fetched: the last of each cell, if it goes on, or ended while
 * nobody looked. `seen`: runs up to this count ended before somebody's eyes.
 */
export function missed(
  known: readonly IKnownCell[],
  shown: ReadonlyMap<string, IShownCell>,
  seen: number
): IKnownCell[] {
  const last = new Map<string, IKnownCell>();
  for (const run of known) {
    if (run.cell_id !== null && shown.has(run.cell_id)) {
      last.set(run.cell_id, run);
    }
  }
  return [...last.values()].filter(run => {
    const count = run.execution_count ?? 0;
    const before = shown.get(run.cell_id!)!.execution_count ?? 0;
    return run.state !== 'done' || (count > seen && count !== before);
  });
}

/** How many ranks ran what the page shows, or will, of its cells: by their last runs. */
export function sizes(
  known: readonly IKnownCell[],
  shown: ReadonlyMap<string, IShownCell>,
  fetched: readonly IKnownCell[]
): Map<string, number> {
  const found = new Map<string, number>();
  for (const run of known) {
    const page = run.cell_id === null ? undefined : shown.get(run.cell_id);
    if (page === undefined) {
      continue;
    }
    found.delete(run.cell_id!);
    const isShown = run.execution_count !== null && run.execution_count === page.execution_count;
    if (run.size && (isShown || fetched.includes(run))) {
      found.set(run.cell_id!, run.size);
    }
  }
  return found;
}

export interface IHeaders {
  readonly header: { readonly msg_type: string };
  readonly parent_header: { readonly msg_id?: string };
  readonly content: unknown;
}

/**
 * Holds live messages of a cell back until the answers to our requests have been replayed.
 *
 * What came before the `busy` of a request is in its answer; what comes after its `idle` is not.
 */
export class Gate<T extends IHeaders> {
  constructor(
    readonly parent: string,
    private readonly _show: (message: T) => void
  ) {}

  /** A new request is on its way: only what comes after it will not be in its answer. */
  ask(request: string): void {
    this._request = request;
    this._answered = false;
    this._held = [];
  }

  /** A message from IOPub. */
  hear(message: T): void {
    const parent = message.parent_header.msg_id;
    if (parent === this._request && this._request !== '') {
      const state = (message.content as { execution_state?: string }).execution_state;
      this._answered ||= message.header.msg_type === 'status' && state === 'idle';
    } else if (parent === this.parent && this._open) {
      this._show(message);
    } else if (parent === this.parent && this._answered) {
      this._held.push(message);
    }
  }

  /** All that was missed is shown. */
  open(): void {
    this._open = true;
    this._held.splice(0).forEach(this._show);
  }

  private _request = '';
  private _answered = false;
  private _open = false;
  private _held: T[] = [];
}
