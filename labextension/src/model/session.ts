/** A live kernel: its state, pushed by the comm `spmd.status`, and control requests to it. */

import { KernelMessage, type Kernel } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import { applied, type IStatus, type IStatusMessage } from '../protocol/status';
import { Refusal, type IAnswer, type ISession } from '../tokens';

const TARGET = 'spmd.status';

interface IReply {
  status: string;
  data?: unknown;
  ename?: string;
  evalue?: string;
  hint?: string;
}

/** Ids of the requests that this page has sent, by kernel, since the first notebook had it. */
const sent = new WeakMap<Kernel.IKernelConnection, Set<string>>();

function sentTo(kernel: Kernel.IKernelConnection): Set<string> {
  let ids = sent.get(kernel);
  if (ids === undefined) {
    const own = (ids = new Set<string>());
    sent.set(kernel, own);
    kernel.anyMessage.connect((_, { msg, direction }) => {
      if (direction === 'send' && msg.header.msg_type === 'execute_request') {
        own.add(msg.header.msg_id);
      }
    });
  }
  return ids;
}

export class Session implements ISession, IDisposable {
  status: IStatus | null = null;
  readonly changed = new Signal<this, void>(this);

  constructor(readonly kernel: Kernel.IKernelConnection) {
    this._sent = sentTo(kernel);
    kernel.statusChanged.connect(this._onKernelStatus, this);
    kernel.connectionStatusChanged.connect(this._onConnection, this);
    this._open();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  now(): number {
    return this._clock + performance.now() / 1000;
  }

  async request<T>(command: string, args: object = {}): Promise<IAnswer<T>> {
    return this.send<T>(command, args).answer;
  }

  /** The same, and the id of the request. */
  send<T>(command: string, args: object = {}): { id: string; answer: Promise<IAnswer<T>> } {
    const message = KernelMessage.createMessage({
      channel: 'control',
      msgType: 'spmd_request',
      session: this.kernel.clientId,
      username: this.kernel.username,
      content: { command, arguments: args }
    } as unknown as KernelMessage.IOptions<KernelMessage.IDebugRequestMsg>);
    const control = message as unknown as KernelMessage.IControlMessage;
    const done = this.kernel.sendControlMessage(control, true).done;
    return { id: message.header.msg_id, answer: done.then(reply => answered<T>(reply)) };
  }

  /** It is this page that asked for it. */
  hasSent(msgId: string): boolean {
    return this._sent.has(msgId);
  }

  watchResources(on: boolean): void {
    if (this._resources !== on) {
      this._resources = on;
      this._ask();
    }
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._close();
    Signal.clearData(this);
  }

  private _open(): void {
    const comm = this.kernel.createComm(TARGET);
    // The kernel answers by itself, at once: no rank needs a subshell for it.
    comm.commsOverSubshells = 'disabled' as NonNullable<typeof comm.commsOverSubshells>;
    comm.onMsg = message => this._hear(message.content.data as unknown as IStatusMessage);
    comm.open({ resources: this._resources });
    this._comm = comm;
  }

  private _close(): void {
    const comm = this._comm;
    this._comm = null;
    if (comm && !comm.isDisposed && !this.kernel.isDisposed && this.kernel.status !== 'dead') {
      comm.close();
    }
  }

  private _ask(): void {
    if (this._comm && !this._comm.isDisposed) {
      this._comm.send({ resources: this._resources });
    }
  }

  private _hear(message: IStatusMessage): void {
    this._clock = message.now - performance.now() / 1000;
    this.status = applied(this.status, message);
    this.changed.emit();
  }

  /** After a restart the kernel knows of no comm. */
  private _onKernelStatus(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting') {
      this._isGone = true;
    } else if (this._isGone && (status === 'idle' || status === 'busy')) {
      this._isGone = false;
      this._comm?.dispose();
      this._open();
    }
  }

  private _onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    if (status === 'connected' && !this._isGone) {
      this._ask();
    }
  }

  private readonly _sent: ReadonlySet<string>;
  private _comm: Kernel.IComm | null = null;
  private _clock = 0;
  private _resources = false;
  private _isGone = false;
  private _isDisposed = false;
}

function answered<T>(message: KernelMessage.IControlMessage): IAnswer<T> {
  const reply = message.content as unknown as IReply;
  if (reply.status !== 'ok') {
    throw new Refusal(reply.evalue ?? reply.ename ?? 'the kernel refused', reply.hint ?? '');
  }
  return { data: reply.data as T, buffers: message.buffers ?? [] };
}
