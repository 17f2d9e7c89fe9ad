/** What the parts of this extension, and other extensions, may ask for. */

import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IOutputModel } from '@jupyterlab/rendermime';
import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';
import type { IRow } from './protocol/debug';
import type { IStatus } from './protocol/status';
import type { Choice } from './protocol/text';

/** A live kernel of ours. */
export interface ISession {
  /** null until the kernel has told. */
  readonly status: IStatus | null;
  readonly changed: ISignal<ISession, void>;
  /** Seconds of the kernel's clock, about now. */
  now(): number;
  /** A control request (docs/control.md). Rejects with a `Refusal`. */
  request<T>(command: string, args?: object): Promise<IAnswer<T>>;
  /** Whether to be told what each rank holds of the machine. */
  watchResources(on: boolean): void;
}

export interface IAnswer<T> {
  readonly data: T;
  readonly buffers: readonly (ArrayBuffer | ArrayBufferView)[];
}

/** What changed of a notebook. */
export type Change = 'kernel' | 'status' | 'choice' | 'hang';

/** A notebook as far as ranks go. */
export interface INotebookRanks {
  readonly panel: NotebookPanel;
  /** Its kernel is ours, or would be if it ran. */
  readonly isOurs: boolean;
  readonly session: ISession | null;
  /** The notice of the running cell that it hangs; empty: it does not. */
  readonly hang: string;
  readonly changed: ISignal<INotebookRanks, Change>;
  /** The rank whose outputs are shown; null: all. */
  choiceOf(cellId: string): Choice;
  choiceFor(output: IOutputModel): Choice;
  /** With `only`, for that cell. */
  choose(choice: Choice, only?: string): void;
  isChosenAlone(cellId: string): boolean;
  /** How many ranks ran a cell, as the kernel says; 0: not known. */
  sizeOf(cellId: string): number;
  /** By what is saved with the cell; it counts where the kernel does not say. */
  suppose(cellId: string, size: number): void;
  setHang(text: string): void;
}

export interface INotebooks {
  readonly added: ISignal<INotebooks, INotebookRanks>;
  /** The one before the user. */
  readonly current: INotebookRanks | null;
  readonly currentChanged: ISignal<INotebooks, void>;
  of(panel: NotebookPanel): INotebookRanks;
  forEach(visit: (notebook: INotebookRanks) => void): void;
  /** Those that are open, and later ones as they are opened. */
  each(visit: (notebook: INotebookRanks) => void): void;
}

/** The ranks of the kernel that is being debugged. */
export interface IDebugging {
  /** Empty: nothing to choose from. */
  readonly rows: readonly IRow[];
  readonly changed: ISignal<IDebugging, void>;
  /** The rank that is shown from now on, whenever it is stopped. Rejects with a `Refusal`. */
  choose(rank: number): Promise<void>;
}

export const INotebooks = new Token<INotebooks>(
  'spmd-kernel:INotebooks',
  'The open notebooks, and for each which ranks there are and which are shown.'
);

/** The kernel said no. */
export class Refusal extends Error {
  constructor(
    what: string,
    readonly hint: string
  ) {
    super(what);
  }
}
