/**
 * Answers of a debugger that come late.
 *
 * JupyterLab asks for the frames of a thread, for a frame's scopes and for their variables, and shows
 * what comes last, whatever is chosen by then. Ranks answer each in its own time, so what was asked of
 * the rank before can come after what was asked of the one that is shown. Here the last choice wins.
 */

export interface IResponse {
  readonly success: boolean;
  readonly message?: string;
  readonly body?: unknown;
}

export type Request = (command: string, args: object) => Promise<IResponse>;

/** What the front end shows at the moment. */
export interface IShown {
  /** Whether these are threads and frames of ranks; of others nothing is changed. */
  readonly isOurs: boolean;
  /** undefined: none is stopped. */
  readonly threadId: number | undefined;
  readonly frameId: number | undefined;
}

interface IArguments {
  readonly threadId?: number;
  readonly frameId?: number;
  readonly variablesReference?: number;
}

const KNOWN = 1000; // references of scopes; they are of the last stops

export class Latest {
  constructor(
    private readonly _request: Request,
    private readonly _shown: () => IShown
  ) {}

  readonly request: Request = async (command, args) => {
    if (!this._shown().isOurs) {
      return this._request(command, args);
    }
    switch (command) {
      case 'stackTrace':
        return this._stackTrace(args);
      case 'scopes':
        return this._scopes(args);
      case 'variables':
        return this._variables(args);
      default:
        return this._request(command, args);
    }
  };

  /** Of another thread by now? Then of that one: who asks waits for frames, for instance the console. */
  private async _stackTrace(args: IArguments): Promise<IResponse> {
    const wasShown = args.threadId === this._shown().threadId;
    const response = await this._request('stackTrace', args);
    const { threadId } = this._shown();
    if (!wasShown || threadId === args.threadId) {
      return response;
    }
    return threadId === undefined
      ? { ...response, body: { stackFrames: [] } }
      : this._stackTrace({ ...args, threadId });
  }

  private async _scopes(args: IArguments): Promise<IResponse> {
    const wasShown = args.frameId === this._shown().frameId;
    const response = await this._request('scopes', args);
    if (wasShown && args.frameId !== this._shown().frameId) {
      return NEVER; // the scopes of the one that is shown have been asked for
    }
    if (wasShown) {
      const { scopes = [] } = (response.body ?? {}) as { scopes?: IArguments[] };
      scopes.forEach(scope => this._note(scope.variablesReference, args.frameId));
    }
    return response;
  }

  private async _variables(args: IArguments): Promise<IResponse> {
    const response = await this._request('variables', args);
    const frameId = this._frames.get(args.variablesReference);
    return frameId === undefined || frameId === this._shown().frameId ? response : NEVER;
  }

  private _note(reference: number | undefined, frameId: number | undefined): void {
    if (reference && frameId !== undefined) {
      if (this._frames.size >= KNOWN) {
        this._frames.clear();
      }
      this._frames.set(reference, frameId);
    }
  }

  private readonly _frames = new Map<number | undefined, number>();
}

/** Who waits for it does nothing more. */
const NEVER = new Promise<never>(() => undefined);
