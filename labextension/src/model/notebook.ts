/** What is known of a notebook's ranks, and which of them is shown. */

import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import type { IOutputModel } from '@jupyterlab/rendermime';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { IKnownCell } from '../protocol/replay';
import type { Choice } from '../protocol/text';
import type { Change, INotebookRanks } from '../tokens';
import { Session } from './session';
import { isOurs, rankKernel } from './specs';

export class NotebookRanks implements INotebookRanks, IDisposable {
  session: Session | null = null;
  isOurs = false;
  hang = '';
  readonly changed = new Signal<this, Change>(this);

  constructor(readonly panel: NotebookPanel) {
    const context = panel.sessionContext;
    context.kernelChanged.connect(this._look, this);
    context.specsManager.specsChanged.connect(this._look, this);
    panel.model?.metadataChanged.connect(this._look, this);
    NotebookActions.executed.connect(this._onExecuted, this);
    panel.disposed.connect(this.dispose, this);
    void panel.context.ready.then(() => this._look());
    this._look();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  choiceOf(cellId: string): Choice {
    if ((this._sizes.get(cellId) ?? this._saved.get(cellId)) === 1) {
      return null; // one rank has no labels: what looks like one is the program's own
    }
    const own = this._alone.get(cellId);
    return own === undefined ? this._choice : own;
  }

  choiceFor(output: IOutputModel): Choice {
    const cellId = this._cellOf(output);
    return cellId === undefined ? this._choice : this.choiceOf(cellId);
  }

  choose(choice: Choice, only?: string): void {
    if (only === undefined) {
      this._choice = choice;
      this._alone.clear();
    } else {
      this._alone.set(only, choice);
    }
    this.changed.emit('choice');
  }

  isChosenAlone(cellId: string): boolean {
    return this._alone.has(cellId);
  }

  sizeOf(cellId: string): number {
    return this._sizes.get(cellId) ?? 0;
  }

  suppose(cellId: string, size: number): void {
    this._saved.set(cellId, size);
  }

  /** The kernel remembers that so many ranks ran the cell. */
  ran(cellId: string, size: number): void {
    if (!this._sizes.has(cellId)) {
      this._sizes.set(cellId, size);
      this.changed.emit('status');
    }
  }

  setHang(text: string): void {
    if (text !== this.hang) {
      this.hang = text;
      this.changed.emit('hang');
    }
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this.session?.dispose();
    this.session = null;
    Signal.disconnectReceiver(this);
    Signal.clearData(this);
  }

  /** Whether the kernel, or the one the notebook was saved with, is ours. */
  private _look(): void {
    if (this._isDisposed || this.panel.isDisposed) {
      return;
    }
    const { specs } = this.panel.sessionContext.specsManager;
    const kernel = this.panel.sessionContext.session?.kernel ?? null;
    const live = kernel !== null && rankKernel(specs, kernel.name) !== undefined;
    const ours = live || (kernel === null && isOurs(this.panel.model, specs));
    const before = this.session?.kernel ?? null;
    if (ours === this.isOurs && before === (live ? kernel : null)) {
      return;
    }
    this.isOurs = ours;
    if (before !== (live ? kernel : null)) {
      this.session?.dispose();
      this.session = live ? new Session(kernel) : null;
      this.session?.changed.connect(this._onStatus, this);
      this.hang = '';
      this._size = 0;
    }
    this.changed.emit('kernel');
  }

  private _onStatus(): void {
    const status = this.session?.status;
    if (status?.running?.cell_id) {
      this._sizes.set(status.running.cell_id, status.size);
    }
    if (status) {
      this._sizeEnded(status.size);
    }
    if (!status?.running) {
      this.setHang('');
    }
    this.changed.emit('status');
  }

  /** Cells that ended since the last word of the kernel; if the size changed meanwhile, it is asked. */
  private _sizeEnded(size: number): void {
    const ended = [...this._ended];
    this._ended.clear();
    if (this._size === size) {
      ended.forEach(id => this._sizes.set(id, size));
    } else if (ended.length > 0) {
      void this._askSizes(ended).catch(console.warn);
    }
    this._size = size;
  }

  private async _askSizes(ids: readonly string[]): Promise<void> {
    const { data } = await this.session!.request<IRemembered>('outputs', { from: ALL });
    const sizes = new Map(data.cells?.map(cell => [cell.cell_id, cell.size]));
    for (const id of ids.filter(id => sizes.get(id))) {
      this._sizes.set(id, sizes.get(id)!);
    }
    this.changed.emit('status');
  }

  private _onExecuted(
    _: unknown,
    { notebook, cell }: { notebook: object; cell: { model: { id: string } } }
  ): void {
    const size = this.session?.status?.size;
    if (size && notebook === this.panel.content) {
      this._ended.add(cell.model.id);
      if (size > 1) {
        this._sizes.set(cell.model.id, size);
      } else {
        this._sizes.delete(cell.model.id); // it may be old: what is told next is not
      }
    }
  }

  private _cellOf(output: IOutputModel): string | undefined {
    const known = this._cells.get(output);
    if (known !== undefined) {
      return known;
    }
    for (const cell of this.panel.content.widgets) {
      const outputs = 'outputs' in cell.model ? (cell.model.outputs as Outputs) : null;
      for (let index = 0; outputs && index < outputs.length; index++) {
        if (outputs.get(index) === output) {
          this._cells.set(output, cell.model.id);
          return cell.model.id;
        }
      }
    }
    return undefined;
  }

  private _choice: Choice = null;
  private readonly _alone = new Map<string, Choice>();
  private readonly _ended = new Set<string>(); // cells since what was told last
  private _size = 0; // that was told last
  private readonly _sizes = new Map<string, number>();
  private readonly _saved = new Map<string, number>();
  private readonly _cells = new WeakMap<IOutputModel, string>();
  private _isDisposed = false;
}

/** The answer of `outputs` (docs/control.md). */
interface IRemembered {
  readonly cells?: readonly IKnownCell[];
}

const ALL = Number.MAX_SAFE_INTEGER; // outputs that are not wanted

interface Outputs {
  readonly length: number;
  get(index: number): IOutputModel;
}
