/**
 * The ranks of the kernel that JupyterLab's debugger is at.
 *
 * Lab knows one stopped thread: it forgets the others at each `stopped`. So the list is the kernel's,
 * asked anew when Lab hears of a stop, or when the kernel says that any rank's state has changed.
 * Choosing a rank is asking the kernel for its stop: Lab then does all that it does at one.
 */

import type { IDebugger } from '@jupyterlab/debugger';
import { Signal } from '@lumino/signaling';
import { Latest, type IShown, type Request } from '../protocol/latest';
import { rows, signature, type IDebugRanks, type IRow } from '../protocol/debug';
import { Refusal, type IDebugging, type INotebookRanks, type INotebooks } from '../tokens';

type Session = IDebugger.ISession;

export class Debugging implements IDebugging {
  rows: readonly IRow[] = [];
  readonly changed = new Signal<this, void>(this);

  constructor(
    private readonly _service: IDebugger,
    private readonly _notebooks: INotebooks
  ) {
    _service.sessionChanged.connect(this._look, this);
    _service.eventMessage.connect(this._ask, this);
    _service.model.titleChanged.connect(this._look, this);
    _service.model.callstack.framesChanged.connect(this._onFrames, this);
    _service.model.variables.changed.connect(this._onVariables, this);
    _notebooks.currentChanged.connect(this._look, this);
    _notebooks.each(notebook => notebook.changed.connect(this._look, this));
    this._look();
  }

  async choose(rank: number): Promise<void> {
    if (this._session !== null) {
      await send(this._session, 'spmdFocus', { rank });
      this._ask();
    }
  }

  /** The notebook that is being debugged, if its kernel is ours. */
  private get _notebook(): INotebookRanks | null {
    const kernel = this._service.session?.connection?.kernel?.id;
    let found: INotebookRanks | null = null;
    this._notebooks.forEach(notebook => {
      if (notebook.session && notebook.panel.sessionContext.session?.kernel?.id === kernel) {
        found = notebook;
      }
    });
    return found;
  }

  /** Whether the answer is an old one, or another's. */
  private _look(): void {
    this._follow(this._service.session);
    const notebook = this._service.isStarted ? this._notebook : null;
    const session = notebook && this._service.session;
    const key = signature(notebook?.session?.status ?? null);
    if (session !== this._session || (session && key !== this._key)) {
      this._told = session === this._session ? this._told : null;
      this._session = session;
      this._key = key;
      this._ask();
    }
    this._show();
  }

  /** From now on late answers to Lab's questions do not take the place of newer ones. */
  private _follow(session: Session | null): void {
    if (session !== null && !this._followed.has(session)) {
      this._followed.add(session);
      const latest = new Latest(requestOf(session), () => this._shown());
      session.sendRequest = latest.request as unknown as Session['sendRequest'];
    }
  }

  private _shown(): IShown {
    const { callstack, stoppedThreads } = this._service.model;
    const [threadId] = stoppedThreads;
    return { isOurs: this._notebook !== null, threadId, frameId: callstack.frame?.id };
  }

  /** One question at a time; what comes meanwhile is one more. */
  private _ask(): void {
    this._isOld = true;
    if (!this._isAsking) {
      this._isAsking = true;
      void this._answer().finally(() => {
        this._isAsking = false;
        this._show();
      });
    }
  }

  private async _answer(): Promise<void> {
    while (this._isOld) {
      this._isOld = false;
      const session = this._service.isStarted && this._notebook ? this._service.session : null;
      try {
        const told = session && ((await send(session, 'spmdRanks', {})) as IDebugRanks);
        this._told = session === this._service.session ? told : null;
      } catch {
        this._told = null; // the kernel ends, or is an older one
      }
      this._show();
    }
  }

  /** After an evaluation Lab empties the variables, and fills them only if the frame is another one. */
  private _onFrames(): void {
    const { callstack, variables } = this._service.model;
    const { frame, frames } = callstack;
    const same = frames.find(each => each.id === frame?.id);
    if (same && same !== frame && variables.scopes.length === 0 && this._notebook) {
      callstack.frame = same;
    }
    this._show();
  }

  /** The globals of idle ranks, asked for a moment before one stopped, take the place of its frame's. */
  private _onVariables(): void {
    const { callstack, stoppedThreads, variables } = this._service.model;
    const { frame, frames } = callstack;
    const late = variables.scopes.length === 1 && this.rows.length > 0; // a frame's are three
    if (late && stoppedThreads.size > 0 && frame && frames.includes(frame)) {
      callstack.frame = frame;
    }
  }

  private _show(): void {
    const notebook = this._service.isStarted ? this._notebook : null;
    const [shown] = this._service.model.stoppedThreads;
    this.rows = notebook ? rows(this._told, notebook.session?.status ?? null, shown) : [];
    this.changed.emit();
  }

  private readonly _followed = new WeakSet<Session>();
  private _session: Session | null = null;
  private _told: IDebugRanks | null = null;
  private _key = '';
  private _isOld = false;
  private _isAsking = false;
}

/** Commands of our own are in no type of Lab's. */
function requestOf(session: Session): Request {
  return session.sendRequest.bind(session) as unknown as Request;
}

async function send(session: Session, command: string, args: object): Promise<unknown> {
  const response = await requestOf(session)(command, args);
  if (!response.success) {
    throw new Refusal(response.message ?? `${command} failed`, '');
  }
  return response.body;
}
