/**
 * Outputs that were published while nobody looked: fetched from the kernel's log and replayed.
 *
 * A page that is loaded anew has lost the requests of its cells, and Lab shows no output without
 * one. So a stand-in for the request is given to the cell's output area, which then does what it
 * always does: display ids, clear_output, updates, questions.
 */

import type { CodeCell } from '@jupyterlab/cells';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { PromiseDelegate } from '@lumino/coreutils';
import { Gate, missed, sizes, type IKnownCell } from '../protocol/replay';
import type { IQuestion } from '../protocol/status';
import type { NotebookRanks } from './notebook';
import { QUESTION } from './questions';
import { lastSeen } from './seen';
import type { Session } from './session';


type Future = Kernel.IShellFuture<
  KernelMessage.IExecuteRequestMsg,
  KernelMessage.IExecuteReplyMsg
>;

interface IOutputs extends IKnownCell {
  readonly more: boolean;
  readonly cells?: readonly IKnownCell[];
  readonly messages: readonly {
    readonly msg_type: string;
    readonly metadata: object;
    readonly content: object;
    readonly buffers: number;
  }[];
}

/** Bring the notebook's cells up to what its kernel has published. */
export async function restore(notebook: NotebookRanks, session: Session): Promise<void> {
  const { data } = await session.request<IOutputs>('outputs', { most: 0 });
  if (notebook.isDisposed || notebook.session !== session) {
    return;
  }
  const cells = codeCells(notebook);
  const shown = new Map(
    [...cells].map(([id, cell]) => [id, { execution_count: cell.model.executionCount }])
  );
  const runs = missed(data.cells ?? [], shown, lastSeen(session.kernel.id));
  sizes(data.cells ?? [], shown, runs).forEach((size, id) => notebook.ran(id, size));
  for (const run of runs) {
    const cell = cells.get(run.cell_id!)!;
    if (!session.hasSent(run.msg_id)) {
      await cell.ready;
      void new Replay(cell, session, run).run().catch(console.warn);
    }
  }
}

function codeCells(notebook: NotebookRanks): Map<string, CodeCell> {
  const cells = notebook.panel.content.widgets.filter(cell => cell.model.type === 'code');
  return new Map(cells.map(cell => [cell.model.id, cell as CodeCell]));
}

class Replay {
  constructor(
    private readonly _cell: CodeCell,
    private readonly _session: Session,
    private readonly _run: IKnownCell
  ) {
    this._gate = new Gate(_run.msg_id, message => this._show(message));
  }

  async run(): Promise<void> {
    const { kernel } = this._session;
    const future = (this._future = standIn(this._session, this._run.msg_id));
    kernel.iopubMessage.connect(this._onIOPub, this);
    this._cell.outputArea.future = future; // clears what is there
    this._isFollowed = true;
    this._cell.model.executionState = 'running';
    this._cell.model.executionCount = null;
    try {
      const state = await this._fetch();
      this._gate.open();
      this._session.changed.connect(this._onStatus, this);
      this._onStatus();
      if (state.state === 'done') {
        this._end(state.execution_count);
      }
    } catch (error) {
      this._end(null);
      throw error;
    }
  }

  /** Questions went to the page that sent the cell; it is gone, or shows them, too. */
  private _onStatus(): void {
    const asked = this._session.status?.question;
    this._put(asked?.cell === this._run.msg_id ? asked : null);
  }

  /** Instead of the question that was there. */
  private _put(question: IQuestion | null): void {
    const { isDisposed, outputArea } = this._cell;
    if (isDisposed || outputArea.future !== this._future || question?.msg_id === this._question) {
      return;
    }
    this._question = question?.msg_id;
    outputArea.widgets.filter(item => item.hasClass(QUESTION)).forEach(item => item.dispose());
    if (question) {
      void this._future.onStdin({
        header: { msg_id: question.msg_id, msg_type: 'input_request' },
        channel: 'stdin',
        content: { prompt: question.prompt, password: question.password }
      } as KernelMessage.IInputRequestMsg);
    }
  }

  private async _fetch(): Promise<IOutputs> {
    for (let from = 0; ; ) {
      const args = { msg_id: this._run.msg_id, from };
      const { id, answer } = this._session.send<IOutputs>('outputs', args);
      this._gate.ask(id);
      const { data, buffers } = await answer;
      let used = 0;
      for (const message of data.messages) {
        const own = buffers.slice(used, (used += message.buffers));
        this._show({
          header: { msg_type: message.msg_type },
          parent_header: { msg_id: this._run.msg_id },
          metadata: message.metadata,
          content: message.content,
          buffers: own
        } as unknown as KernelMessage.IIOPubMessage);
      }
      from = data.next;
      this._count = data.execution_count;
      if (!data.more) {
        await this._idle(id);
        return data;
      }
    }
  }

  /** The answer and the word on IOPub that it is complete come by different ways. */
  private _idle(id: string): Promise<void> {
    return id === this._heard ? Promise.resolve() : (this._awaited = id, this._caughtUp.promise);
  }

  private _onIOPub(_: unknown, message: KernelMessage.IIOPubMessage): void {
    this._gate.hear(message);
    const parent = (message.parent_header as { msg_id?: string }).msg_id;
    if (isIdle(message) && parent) {
      this._heard = parent === this._run.msg_id ? this._heard : parent;
      if (parent === this._awaited) {
        this._caughtUp.resolve();
      }
    }
    if (message.header.msg_type === 'update_display_data' && parent !== this._run.msg_id) {
      void this._future?.onIOPub(message); // of a display that this cell has made
    }
  }

  private _show(message: KernelMessage.IIOPubMessage): void {
    if (this._cell.isDisposed || this._cell.outputArea.future !== this._future) {
      this._end(null); // it runs anew
      return;
    }
    if (message.header.msg_type === 'execute_input') {
      this._count = (message.content as { execution_count: number }).execution_count;
    }
    void this._future?.onIOPub(message);
    if (isIdle(message)) {
      this._end(this._count);
    }
  }

  private _end(count: number | null): void {
    if (!this._isFollowed) {
      return;
    }
    this._isFollowed = false;
    this._session.changed.disconnect(this._onStatus, this);
    if (!this._cell.isDisposed && this._cell.outputArea.future === this._future) {
      this._put(null); // the status that says so comes later, or another cell's
      this._cell.model.executionCount = count ?? this._run.execution_count;
      this._cell.model.executionState = 'idle';
    } else {
      this._session.kernel.iopubMessage.disconnect(this._onIOPub, this);
    }
  }

  private readonly _gate: Gate<KernelMessage.IIOPubMessage>;
  private readonly _caughtUp = new PromiseDelegate<void>();
  private _future: Future | null = null;
  private _heard = '';
  private _awaited = '';
  private _count: number | null = null;
  private _question: string | undefined = undefined;
  private _isFollowed = false;
}

function isIdle(message: KernelMessage.IIOPubMessage): boolean {
  const content = message.content as { execution_state?: string };
  return message.header.msg_type === 'status' && content.execution_state === 'idle';
}

/** As much of a request on its way as an output area needs. */
function standIn(session: Session, msgId: string): Future {
  const future = {
    msg: { header: { msg_id: msgId, msg_type: 'execute_request' }, content: {}, metadata: {} },
    done: new Promise(() => undefined),
    onIOPub: () => undefined,
    onReply: () => undefined,
    onStdin: () => undefined,
    isDisposed: false,
    dispose: () => {
      future.isDisposed = true;
    },
    registerMessageHook: () => undefined,
    removeMessageHook: () => undefined,
    sendInputReply: (
      content: { value?: string },
      parent: KernelMessage.IInputReplyMsg['parent_header']
    ) => {
      const answer = { value: content.value ?? '', msg_id: (parent as { msg_id: string }).msg_id };
      session.request('answer', answer).catch(console.warn);
    }
  };
  return future as unknown as Future;
}
