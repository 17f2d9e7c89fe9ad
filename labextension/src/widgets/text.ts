/**
 * Lab's own renderers, given one rank's lines, or the last part of a text that is too long.
 *
 * The renderer that would have drawn a text draws it; only what it is given differs.
 */

import { MimeModel, type IOutputModel, type IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { parseLabel } from '../protocol/labels';
import { labellingOf } from '../protocol/outputs';
import { cutAt, linesOf, TextWindow, WINDOW, type Choice } from '../protocol/text';
import type { INotebookRanks } from '../tokens';

export const MIME_TYPES = [
  'application/vnd.jupyter.stdout',
  'application/vnd.jupyter.stderr',
  'text/plain'
];

const ALONE = '.jp-LinkedOutputView';
const LONG = 20_000; // characters; shorter texts are drawn at once
const PAUSE = 100; // milliseconds between two drawings of a long text that grows
const GROWING = 40_000; // characters of it that are drawn meanwhile: laying out lines takes long
const REST = 300; // milliseconds without a word, and it is drawn as far as the window goes

type Draw = (model: IRenderMime.IMimeModel) => Promise<void>;

const drawers = new WeakMap<IRenderMime.IRenderer, Drawer>();

/** Several views of a notebook have one registry. */
const users = new WeakMap<IRenderMimeRegistry, Set<INotebookRanks>>();

/** Renderers made from now on show what is chosen. Returns how to undo it. */
export function override(rendermime: IRenderMimeRegistry, notebook: INotebookRanks): () => void {
  const views = users.get(rendermime) ?? new Set();
  users.set(rendermime, views);
  const undo = views.size === 0 ? wrap(rendermime, views) : (restorers.get(rendermime) ?? noOp);
  restorers.set(rendermime, undo);
  views.add(notebook);
  return () => {
    views.delete(notebook);
    if (views.size === 0) {
      undo();
    }
  };
}

const restorers = new WeakMap<IRenderMimeRegistry, () => void>();
const noOp = (): void => undefined;

function wrap(rendermime: IRenderMimeRegistry, views: Set<INotebookRanks>): () => void {
  const restore: (() => void)[] = [];
  for (const mimeType of MIME_TYPES) {
    const base = rendermime.getFactory(mimeType);
    if (!base) {
      continue;
    }
    const createRenderer = (options: IRenderMime.IRendererOptions): IRenderMime.IRenderer => {
      const renderer = base.createRenderer(options);
      const [view] = views; // if it is of another one, that one says so when it draws its cell
      if (view) {
        adopt(renderer, view, mimeType);
      }
      return renderer;
    };
    rendermime.addFactory({ ...base, mimeTypes: [mimeType], createRenderer }, base.defaultRank);
    restore.push(() =>
      rendermime.addFactory({ ...base, mimeTypes: [mimeType] }, base.defaultRank)
    );
  }
  return () => restore.forEach(undo => undo());
}

/** A renderer that may have been made before, or for another view of the notebook. */
export function adopt(
  renderer: IRenderMime.IRenderer,
  notebook: INotebookRanks,
  mimeType: string
): void {
  const drawer = drawers.get(renderer);
  if (drawer) {
    drawer.notebook = notebook;
  } else if (MIME_TYPES.includes(mimeType)) {
    drawers.set(renderer, new Drawer(renderer, notebook, mimeType));
  }
}

/** Draw it again if something else is chosen now. */
export function refresh(renderer: IRenderMime.IRenderer, output: IOutputModel): void {
  drawers.get(renderer)?.refresh(output);
}

class Drawer {
  constructor(
    private readonly _renderer: IRenderMime.IRenderer,
    public notebook: INotebookRanks,
    private readonly _mimeType: string
  ) {
    this._draw = _renderer.renderModel.bind(_renderer);
    _renderer.renderModel = model => this._render(model as IOutputModel);
    _renderer.disposed.connect(() => window.clearTimeout(this._timer));
  }

  refresh(output: IOutputModel): void {
    if (this._choiceFor(output) !== this._shown) {
      void this._paint(output);
    }
  }

  /** A view of its own of a cell's outputs has no tabs: it shows those of all ranks. */
  private _choiceFor(output: IOutputModel): Choice {
    const isAlone = this._renderer.node.closest(ALONE) !== null;
    return this.notebook.isOurs && !isAlone ? this.notebook.choiceFor(output) : null;
  }

  private _render(output: IOutputModel): Promise<void> {
    window.clearTimeout(this._timer);
    if ((output.streamText?.text.length ?? 0) <= LONG) {
      return this._paint(output);
    }
    const wait = Math.max(0, this._drawn + PAUSE - performance.now());
    return new Promise(done => {
      this._timer = window.setTimeout(() => done(this._paint(output, GROWING)), wait);
    });
  }

  /** `most`: draw no more than so many characters now, and the rest when the text is at rest. */
  private async _paint(output: IOutputModel, most = Infinity): Promise<void> {
    window.clearTimeout(this._timer);
    if (this._renderer.isDisposed) {
      return;
    }
    const ours = this.notebook.isOurs;
    this._shown = this._choiceFor(output);
    if (this._shown !== null && !this._renderer.isAttached) {
      requestAnimationFrame(() => this.refresh(output)); // now it is known where it is
    }
    const text = String(output.data[this._mimeType] ?? '');
    const size = this._size > WINDOW ? this._size : Math.min(this._size, most);
    if (!ours || (this._shown === null && text.length <= size)) {
      await this._draw(output);
    } else {
      const source = this._source(output, text, size);
      await this._draw(new MimeModel({ data: { [this._mimeType]: source }, ...kept(output) }));
    }
    this._offerEarlier(output, ours && text.length > size);
    this._drawn = performance.now();
    if (size === most && text.length > most) {
      this._timer = window.setTimeout(() => void this._paint(output), REST);
    }
  }

  private _source(output: IOutputModel, text: string, size: number): string {
    const labelling = labellingOf(output, text);
    if (labelling === 'first') {
      const label = this._shown === null ? null : parseLabel(text);
      return label ? text.slice(label.end) : text;
    }
    if (output.type !== 'stream') {
      return labelling === 'lines' ? linesOf(text, this._shown) : text;
    }
    if (this._window?.rank !== this._shown || this._window.size < size) {
      this._window = new TextWindow(this._shown, Math.max(size, WINDOW));
    }
    const kept = this._window.update(text);
    return kept.slice(cutAt(kept, size));
  }

  private _offerEarlier(output: IOutputModel, isLong: boolean): void {
    const hidden = isLong && output.type === 'stream' ? (this._window?.hidden ?? 0) : 0;
    const node = this._renderer.node;
    node.querySelector(':scope > .spmd-earlier')?.remove();
    if (hidden > 0) {
      const button = document.createElement('button');
      button.className = 'spmd-earlier';
      const lines = hidden === 1 ? '1 line' : `${hidden.toLocaleString()} lines`;
      button.textContent = `show earlier (${lines} above)`;
      button.addEventListener('click', () => {
        this._size = 4 * this._size;
        void this._paint(output);
      });
      node.prepend(button);
    }
  }

  private readonly _draw: Draw;
  private _shown: Choice = null;
  private _window: TextWindow | null = null;
  private _size = WINDOW;
  private _drawn = -Infinity;
  private _timer = 0;
}

function kept(output: IOutputModel): { metadata: IOutputModel['metadata']; trusted: boolean } {
  return { metadata: output.metadata, trusted: output.trusted };
}
