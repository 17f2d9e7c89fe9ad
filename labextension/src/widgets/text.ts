/**
 * Lab's own renderers, given one rank's lines, or the last part of a text that is too long.
 *
 * The renderer that would have drawn a text draws it; only what it is given differs.
 */

import { MimeModel, type IOutputModel, type IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { parseLabel } from '../protocol/labels';
import { labellingOf } from '../protocol/outputs';
import { linesOf, TextWindow, WINDOW, type Choice } from '../protocol/text';
import type { INotebookRanks } from '../tokens';

export const MIME_TYPES = [
  'application/vnd.jupyter.stdout',
  'application/vnd.jupyter.stderr',
  'text/plain'
];

const LONG = 20_000; // characters; shorter texts are drawn at once
const PAUSE = 100; // milliseconds between two drawings of a long text that grows
const GROWING = 40_000; // characters of it that are drawn meanwhile: laying out lines takes long
const REST = 300; // milliseconds without a word, and it is drawn as far as the window goes

type Draw = (model: IRenderMime.IMimeModel) => Promise<void>;

const drawers = new WeakMap<IRenderMime.IRenderer, Drawer>();

/** Renderers made from now on show what is chosen. Returns how to undo it. */
export function override(rendermime: IRenderMimeRegistry, notebook: INotebookRanks): () => void {
  const restore: (() => void)[] = [];
  for (const mimeType of MIME_TYPES) {
    const base = rendermime.getFactory(mimeType);
    if (!base) {
      continue;
    }
    const createRenderer = (options: IRenderMime.IRendererOptions): IRenderMime.IRenderer => {
      const renderer = base.createRenderer(options);
      adopt(renderer, notebook, mimeType);
      return renderer;
    };
    rendermime.addFactory({ ...base, mimeTypes: [mimeType], createRenderer }, base.defaultRank);
    restore.push(() =>
      rendermime.addFactory({ ...base, mimeTypes: [mimeType] }, base.defaultRank)
    );
  }
  return () => restore.forEach(undo => undo());
}

/** A renderer that may have been made before. */
export function adopt(
  renderer: IRenderMime.IRenderer,
  notebook: INotebookRanks,
  mimeType: string
): void {
  if (!drawers.has(renderer) && MIME_TYPES.includes(mimeType)) {
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
    private readonly _notebook: INotebookRanks,
    private readonly _mimeType: string
  ) {
    this._draw = _renderer.renderModel.bind(_renderer);
    _renderer.renderModel = model => this._render(model as IOutputModel);
    _renderer.disposed.connect(() => window.clearTimeout(this._timer));
  }

  refresh(output: IOutputModel): void {
    const choice = this._notebook.isOurs ? this._notebook.choiceFor(output) : null;
    if (choice !== this._shown) {
      this._paint(output);
    }
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
    const ours = this._notebook.isOurs;
    this._shown = ours ? this._notebook.choiceFor(output) : null;
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
    const cut = kept.length > size ? kept.indexOf('\n', kept.length - size - 1) + 1 : 0;
    return kept.slice(cut);
  }

  private _offerEarlier(output: IOutputModel, isLong: boolean): void {
    const hidden = isLong && output.type === 'stream' ? (this._window?.hidden ?? 0) : 0;
    const node = this._renderer.node;
    node.querySelector(':scope > .spmd-earlier')?.remove();
    if (hidden > 0) {
      const button = document.createElement('button');
      button.className = 'spmd-earlier';
      button.textContent = `show earlier (${hidden.toLocaleString()} lines above)`;
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
