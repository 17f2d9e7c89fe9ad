/** One code cell: its tabs, and which of its outputs are shown. */

import type { CodeCell } from '@jupyterlab/cells';
import type { IOutputAreaModel } from '@jupyterlab/outputarea';
import type { IOutputModel } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { Panel, PanelLayout, Widget } from '@lumino/widgets';
import { appendQuickly, LONG } from '../model/append';
import { isShown, markOf, TEXT, type IMark, type IOutput } from '../protocol/outputs';
import { isSaved, KEY, savedSize, toSave } from '../protocol/size';
import { tabsOf, type ICellFacts } from '../protocol/tabs';
import { TextLedger, type Choice } from '../protocol/text';
import type { Change, INotebookRanks } from '../tokens';
import { RankTabs, type IChosen } from './tabs';
import { adopt, refresh } from './text';

const WRAPPER = 'jp-Cell-outputWrapper';
const FRESH = 1; // seconds that a cell runs before its tabs show that it does
const PAUSE = 100; // milliseconds
const HIDDEN = 'spmd-mod-hidden';

export class CellRanks implements IDisposable {
  constructor(
    readonly cell: CodeCell,
    private readonly _notebook: INotebookRanks
  ) {
    const layout = cell.layout as PanelLayout;
    const place = layout.widgets.findIndex(widget => widget.hasClass(WRAPPER));
    layout.insertWidget(place < 0 ? layout.widgets.length - 1 : place, this._tabs);
    cell.outputArea.id ||= `spmd-outputs-${cell.model.id}`;
    this._undo = appendQuickly(cell.model.outputs);
    this._tabs.chosen.connect(this._onChosen, this);
    cell.model.outputs.changed.connect(this._onOutputs, this);
    cell.model.stateChanged.connect(this._schedule, this);
    cell.inViewportChanged.connect(this._schedule, this);
    cell.disposed.connect(this.dispose, this);
    _notebook.changed.connect(this._onNotebook, this);
    this._follow(0);
    this._update();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    cancelAnimationFrame(this._frame);
    window.clearTimeout(this._timer);
    window.clearTimeout(this._later);
    this._undo();
    Signal.disconnectReceiver(this);
    this._tabs.dispose();
    if (!this.cell.isDisposed) {
      this._show(this._outputs.map(markOf), null);
    }
  }

  private get _outputs(): IOutputModel[] {
    const { outputs } = this.cell.model;
    return Array.from({ length: outputs.length }, (_, index) => outputs.get(index));
  }

  private _onOutputs(_: unknown, change: IOutputAreaModel.ChangedArgs): void {
    if (change.type === 'add') {
      this._follow(change.newIndex);
    }
    this._schedule();
  }

  /** Streams grow without a word of the list that they are in. */
  private _follow(from: number): void {
    for (const output of this._outputs.slice(from)) {
      output.streamText?.changed.connect(this._onText, this);
    }
  }

  /** A long text is looked at now and then. */
  private _onText({ text }: { text: string }): void {
    if (text.length < LONG) {
      this._schedule();
    } else if (!this._later) {
      this._later = window.setTimeout(() => {
        this._later = 0;
        this._schedule();
      }, PAUSE);
    }
  }

  private _onNotebook(_: unknown, change: Change): void {
    if (change === 'choice' && this.cell.isAttached) {
      this._update(); // others follow when they come into view
    } else if (change === 'status') {
      const before = this._runs;
      this._runs = this._notebook.session?.status?.running?.cell_id === this.cell.model.id;
      const size = this._notebook.sizeOf(this.cell.model.id);
      if (before || this._runs || size !== this._size) {
        this._size = size;
        this._schedule();
      }
    }
  }

  private _onChosen(_: unknown, { choice, only }: IChosen): void {
    this._notebook.choose(choice, only ? this.cell.model.id : undefined);
  }

  private _schedule(): void {
    if (!this._frame) {
      this._frame = requestAnimationFrame(() => this._update());
    }
  }

  private _update(): void {
    this._frame = 0;
    if (this._isDisposed || this.cell.isDisposed) {
      return;
    }
    const id = this.cell.model.id;
    const outputs = this._outputs as readonly IOutput[];
    const marks = outputs.map(markOf);
    const facts = this._facts(marks, this._sizeOf(outputs));
    const choice = this._notebook.choiceOf(id);
    const tabs = tabsOf(facts, choice);
    const nothing = !this._show(marks, choice) && marks.length > 0 && choice !== null;
    this._tabs.display(
      tabs,
      this.cell.outputArea.id,
      this._notebook.isChosenAlone(id),
      nothing ? `rank ${choice} wrote nothing here` : ''
    );
    this._findHang(marks);
    this._save(outputs, facts.named.size > 0);
  }

  /** How many ranks ran it; 0: not known. */
  private _sizeOf(outputs: readonly IOutput[]): number {
    const { model } = this.cell;
    const saved = savedSize(outputs, model.getMetadata(KEY), model.executionCount);
    this._notebook.suppose(model.id, saved);
    return this._notebook.sizeOf(model.id) || saved;
  }

  /** For a page that knows the notebook only. */
  private _save(outputs: readonly IOutput[], looks: boolean): void {
    const { model } = this.cell;
    const size = this._notebook.sizeOf(model.id);
    if (size === 0 || model.executionState !== 'idle') {
      return;
    }
    const saved = toSave(size, looks, outputs, model.executionCount);
    const before: unknown = model.getMetadata(KEY);
    if (saved && !(isSaved(before) && before.execution_count === saved.execution_count)) {
      model.setMetadata(KEY, saved);
    } else if (!saved && isSaved(before)) {
      model.deleteMetadata(KEY);
    }
  }

  private _facts(marks: readonly IMark[], size: number): ICellFacts {
    const ledgers = this._outputs.map(output => this._ledger(output));
    const status = this._notebook.session?.status;
    const running = status?.running;
    // Lab hears of the end before the status tells.
    const isMine =
      running?.cell_id === this.cell.model.id && this.cell.model.executionState !== 'idle';
    const signs = marks.map(mark => mark.ranks);
    return {
      size,
      marks,
      named: new Set(ledgers.flatMap(ledger => [...(ledger?.ranks ?? [])])),
      running: isMine ? running.ranks : [],
      fresh: isMine && this._isFresh(running.started),
      dead: isMine && status ? status.ranks.filter(r => r.state === 'dead').map(r => r.rank) : [],
      signature: rank =>
        ledgers.map((ledger, i) => ledger?.sum(rank) ?? `${signs[i]?.includes(rank)}`).join()
    };
  }

  private _isFresh(started: number): boolean {
    const left = started + FRESH - this._notebook.session!.now();
    window.clearTimeout(this._timer);
    if (left > 0) {
      this._timer = window.setTimeout(() => this._schedule(), 1000 * left);
    }
    return left > 0;
  }

  private _ledger(output: IOutputModel): TextLedger | undefined {
    if (output.streamText === undefined) {
      return undefined;
    }
    let ledger = this._ledgers.get(output);
    if (ledger === undefined) {
      this._ledgers.set(output, (ledger = new TextLedger()));
    }
    ledger.update(output.streamText.text);
    return ledger;
  }

  /** Whether anything of what was chosen is there. */
  private _show(marks: readonly IMark[], choice: Choice): boolean {
    const area = this.cell.outputArea;
    let any = false;
    marks.forEach((mark, index) => {
      const output = this.cell.model.outputs.get(index);
      const shown = isShown(mark, choice) && this._says(output, choice);
      any ||= shown;
      if (shown && choice !== null && index >= area.maxNumberOutputs) {
        area.maxNumberOutputs = marks.length; // others' outputs must not crowd it out
      }
      const item = area.widgets[index];
      if (item && index < area.maxNumberOutputs) {
        item.toggleClass(HIDDEN, !shown);
        item.toggleClass('spmd-mod-caption', mark.role === 'caption');
        item.toggleClass('spmd-mod-hang', mark.role === 'hang' && this._textOf(output) !== '');
        this._refresh(item, output);
      }
    });
    return any;
  }

  /** A stream says something to everybody, or to this rank. */
  private _says(output: IOutputModel, choice: Choice): boolean {
    const ledger = choice === null ? undefined : this._ledger(output);
    return ledger === undefined || ledger.hasLinesFor(choice!);
  }

  private _refresh(item: Widget, output: IOutputModel): void {
    const widgets = (item as Panel).widgets as readonly Widget[] | undefined;
    for (const widget of widgets ?? []) {
      if ('renderModel' in widget) {
        const renderer = widget as unknown as IRenderMime.IRenderer & { mimeType?: string };
        adopt(renderer, this._notebook, renderer.mimeType ?? '');
        refresh(renderer, output);
      }
    }
  }

  private _findHang(marks: readonly IMark[]): void {
    const running = this._notebook.session?.status?.running;
    if (running?.cell_id !== this.cell.model.id) {
      return;
    }
    const index = marks.findIndex(mark => mark.role === 'hang');
    this._notebook.setHang(index < 0 ? '' : this._textOf(this.cell.model.outputs.get(index)));
  }

  private _textOf(output: IOutputModel): string {
    return String(output.data[TEXT] ?? '');
  }

  private readonly _tabs = new RankTabs();
  private readonly _ledgers = new WeakMap<IOutputModel, TextLedger>();
  private readonly _undo: () => void;
  private _frame = 0;
  private _later = 0;
  private _timer = 0;
  private _runs = false;
  private _size = 0;
  private _isDisposed = false;
}
