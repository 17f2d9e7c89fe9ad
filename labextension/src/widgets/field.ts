/** The Processes field of a notebook's toolbar. */

import { Notification } from '@jupyterlab/apputils';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { twinOf } from '../model/specs';
import { wished } from '../protocol/processes';
import type { IStatus } from '../protocol/status';
import { Refusal, type Change, type INotebookRanks } from '../tokens';
import { confirmRestart, confirmSwitch } from './dialog';

/** Where the field is shown. */
export type FieldMode = 'always' | 'distributed' | 'never';

interface IStarted {
  readonly text: string;
  readonly size: number;
}

const READ = 15_000; // milliseconds to read why the kernel refused

let counter = 0;

export class ProcessesField extends Widget {
  constructor(
    private readonly _notebook: INotebookRanks,
    private _mode: FieldMode
  ) {
    super();
    this.addClass('spmd-Processes');
    this.addClass('jp-ToolbarLabeledItem');
    this._build();
    const context = _notebook.panel.sessionContext;
    _notebook.changed.connect(this._onChange, this);
    context.specsManager.specsChanged.connect(this._show, this);
    context.kernelChanged.connect(this._show, this);
    this._show();
  }

  set mode(mode: FieldMode) {
    this._mode = mode;
    this._show();
  }

  override dispose(): void {
    window.clearTimeout(this._timer);
    Signal.disconnectReceiver(this);
    super.dispose();
  }

  private _build(): void {
    const id = `spmd-processes-${counter++}`;
    const label = document.createElement('label');
    label.textContent = 'Processes';
    label.htmlFor = id;
    Object.assign(this._input, { id, type: 'text', inputMode: 'numeric', autocomplete: 'off' });
    this._input.title = 'How many ranks run every cell: type a number and press Enter';
    this._input.setAttribute('aria-describedby', `${id}-problem`);
    this._problem.id = `${id}-problem`;
    this._problem.className = 'spmd-Processes-problem';
    this._problem.setAttribute('role', 'alert');
    this._input.addEventListener('keydown', this._onKey);
    this._input.addEventListener('input', () => this._refuse(''));
    this._input.addEventListener('focus', () => this._input.select());
    this._input.addEventListener('blur', () => this._isPending || this._reset());
    this.node.append(label, this._input, this._problem);
  }

  /** As many as there are; on a plain kernel that has a twin of ours, 1. */
  private get _size(): number {
    return this._notebook.session?.status?.size ?? 1;
  }

  private get _twin(): { name: string; display_name: string } | undefined {
    const { session, specsManager } = this._notebook.panel.sessionContext;
    const name = session?.kernel?.name;
    return name ? twinOf(specsManager.specs, name) : undefined;
  }

  private _onChange(_: unknown, change: Change): void {
    if (change === 'kernel' || change === 'status') {
      this._show();
    }
  }

  private _show(): void {
    if (this.isDisposed || this._notebook.panel.isDisposed) {
      return;
    }
    const live = this._notebook.session !== null;
    const offers = !live && this._mode === 'always' && this._twin !== undefined;
    this.setHidden(this._mode === 'never' || !(live || offers));
    const waits = this._isPending || (live && this._notebook.session?.status === null);
    this._input.setAttribute('aria-busy', `${waits}`);
    this._input.disabled = this._isPending;
    if (document.activeElement !== this._input && !this._isPending) {
      this._input.value = `${this._size}`;
    }
  }

  private _reset(): void {
    this._input.value = `${this._size}`;
    this._refuse('');
  }

  private readonly _onKey = (event: KeyboardEvent): void => {
    event.stopPropagation(); // none of the notebook's shortcuts
    if (event.key === 'Enter') {
      event.preventDefault(); // or it presses the first button of the dialog that it opens
      void this._submit();
    } else if (event.key === 'Escape') {
      this._reset();
    }
  };

  private async _submit(): Promise<void> {
    const wish = wished(this._input.value, this._notebook.session?.status?.settings ?? null);
    if ('problem' in wish) {
      this._refuse(wish.problem);
      return;
    }
    if (wish.size === this._size) {
      this._reset();
      return;
    }
    this._isPending = true;
    this._show();
    try {
      await (this._notebook.session ? this._start(wish.size) : this._switch(wish.size));
      this._isPending = false;
      this._reset();
    } catch (error) {
      this._isPending = false;
      this._refuse(said(error));
      this._timer = window.setTimeout(() => this._reset(), READ);
    }
    this._show();
  }

  private async _start(size: number): Promise<void> {
    const now = await this._notebook.session!.request<IStatus>('status'); // what is pushed may be old
    if (now.data.running) {
      const count = now.data.running.execution_count;
      throw new Error(
        `${count ? `cell [${count}]` : 'a cell'} is running: wait for it, or press Stop`
      );
    }
    const answer = await confirmRestart(this._size, size);
    if (answer) {
      await this._ask({ size, ...(answer.keep ? { keep: true } : {}) });
    }
  }

  private async _switch(size: number): Promise<void> {
    const twin = this._twin;
    if (twin && (await confirmSwitch(twin.display_name, size))) {
      await this._notebook.panel.sessionContext.changeKernel({ name: twin.name });
      await this._ask({ size });
    }
  }

  private async _ask(args: object): Promise<void> {
    const session = this._notebook.session;
    if (session === null) {
      throw new Error('the kernel did not start');
    }
    const { data } = await session.request<IStarted>('processes', args);
    Notification.emit(data.text.trim(), 'default', { autoClose: 5000 });
  }

  private _refuse(problem: string): void {
    window.clearTimeout(this._timer);
    this._problem.textContent = problem;
    this._input.setAttribute('aria-invalid', `${problem !== ''}`);
  }

  private readonly _input = document.createElement('input');
  private readonly _problem = document.createElement('span');
  private _isPending = false;
  private _timer = 0;
}

export function said(error: unknown): string {
  if (error instanceof Refusal && error.hint) {
    return `${error.message}; hint: ${error.hint}`;
  }
  return error instanceof Error ? error.message : String(error);
}
