/** The Ranks panel: how each rank of the current notebook fares, and what can be done about it. */

import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import type { Message } from '@lumino/messaging';
import { bytes, seconds } from '../protocol/format';
import { rankRanges } from '../protocol/labels';
import { secondsOf, slowRanks, type IRank, type IStatus } from '../protocol/status';
import { folded, type IWhereRank } from '../protocol/where';
import type { Change, INotebookRanks, INotebooks } from '../tokens';
import { said } from './field';
import { stackBlock } from './stacks';

const TICK = 500; // milliseconds between looks at the clock while a cell runs

export class RanksPanel extends Widget {
  constructor(private readonly _notebooks: INotebooks) {
    super();
    this.id = 'spmd-ranks';
    this.addClass('spmd-Ranks');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Ranks');
    this._build();
    _notebooks.currentChanged.connect(this._follow, this);
    this._follow();
  }

  override dispose(): void {
    window.clearInterval(this._clock);
    Signal.disconnectReceiver(this);
    super.dispose();
  }

  protected override onAfterShow(_: Message): void {
    this._watch(true);
  }

  protected override onAfterHide(_: Message): void {
    this._watch(false);
  }

  private _build(): void {
    this._hang.className = 'spmd-Ranks-hang';
    this._hang.setAttribute('role', 'alert');
    this._buttons.className = 'spmd-Ranks-buttons';
    this._buttons.append(
      button('Interrupt', 'Interrupt the running cell on all ranks', () => this._do('interrupt')),
      button('Where', 'Where every rank is right now', () => void this._where()),
      button('Restart dead', 'Start the dead ranks again; the others keep their variables', () =>
        this._do('restart', { ranks: 'dead' })
      )
    );
    this._table.className = 'spmd-Ranks-table';
    this._stacks.className = 'spmd-Ranks-stacks';
    this._problem.className = 'spmd-Ranks-problem';
    this._problem.setAttribute('role', 'alert');
    const parts = [this._head, this._hang, this._buttons, this._problem, this._table, this._stacks];
    this.node.append(...parts);
  }

  // ---------------------------------------------------------------- what it is about

  private _follow(): void {
    const current = this._notebooks.current;
    if (current !== this._notebook) {
      this._notebook?.changed.disconnect(this._onChange, this);
      this._notebook?.session?.watchResources(false);
      this._notebook = current;
      this._notebook?.changed.connect(this._onChange, this);
      this._stacks.replaceChildren();
      this._say('');
    }
    this._watch(this.isVisible);
    this._show();
  }

  private _onChange(_: unknown, change: Change): void {
    if (change === 'kernel') {
      this._watch(this.isVisible);
    }
    if (change !== 'choice') {
      this._show();
    }
  }

  /** Memory is looked up only while somebody sees it; the clock goes on while a cell runs. */
  private _watch(on: boolean): void {
    this._notebook?.session?.watchResources(on);
    window.clearInterval(this._clock);
    if (on) {
      this._clock = window.setInterval(() => {
        if (this._notebook?.session?.status?.running) {
          this._show();
        }
      }, TICK);
      this._show();
    }
  }

  // ---------------------------------------------------------------- what it shows

  private _show(): void {
    const status = this._notebook?.session?.status ?? null;
    this._hang.textContent = this._notebook?.hang ?? '';
    this._buttons.hidden = this._table.hidden = status === null;
    if (status === null) {
      this._head.textContent = 'The notebook before you has no running distributed kernel.';
      this._table.replaceChildren();
      this._stacks.replaceChildren();
      return;
    }
    const now = this._notebook!.session!.now();
    this._head.textContent = headline(status);
    const dead = status.ranks.some(rank => rank.state === 'dead');
    (this._buttons.lastElementChild as HTMLElement).hidden = !dead;
    const slow = new Set(slowRanks(status, now)); // but those that the debugger holds
    status.ranks.forEach(rank => rank.stopped && slow.delete(rank.rank));
    const columns = columnsOf(status);
    this._table.replaceChildren(
      heading(columns),
      ...status.ranks.map(rank => this._row(rank, columns, now, slow.has(rank.rank)))
    );
  }

  private _row(rank: IRank, columns: IColumns, now: number, slow: boolean): HTMLElement {
    const row = document.createElement('tr');
    row.className = `spmd-mod-${rank.state}${slow ? ' spmd-mod-slow' : ''}`;
    const busy = rank.stopped ? 'stopped' : slow ? 'slow' : rank.state;
    const state = rank.state === 'busy' ? busy : rank.state;
    const cells = [`${rank.rank}`, state, seconds(secondsOf(rank, now)), bytes(rank.rss)];
    if (columns.gpu) {
      cells.push(bytes(rank.gpu_memory));
    }
    row.append(...cells.map(text => cell('td', text)), this._actions(rank));
    row.title = rank.cause ?? `rank ${rank.rank}, process ${rank.pid ?? 'unknown'}`;
    row.insertBefore(cell('td', `${rank.pid ?? ''}`), row.children[2]!);
    if (!rank.cause) {
      return row;
    }
    const body = document.createDocumentFragment();
    const cause = document.createElement('tr');
    cause.className = 'spmd-Ranks-cause';
    const text = cell('td', rank.cause);
    text.colSpan = cells.length + 2;
    cause.append(text);
    body.append(row, cause);
    return body as unknown as HTMLElement;
  }

  private _actions(rank: IRank): HTMLTableCellElement {
    const node = cell('td', '');
    const ranks = [rank.rank];
    if (rank.state === 'busy') {
      const title = `Interrupt rank ${rank.rank}`;
      node.append(button('◼', title, () => this._do('interrupt', { ranks })));
    }
    const title = `Restart rank ${rank.rank}; the others keep their variables`;
    node.append(button('⟳', title, () => this._do('restart', { ranks, force: true })));
    return node;
  }

  // ---------------------------------------------------------------- what it does

  private _do(command: string, args: object = {}): void {
    this._say('');
    this._notebook?.session?.request(command, args).catch(error => this._say(said(error)));
  }

  private async _where(): Promise<void> {
    this._say('');
    const notebook = this._notebook;
    try {
      const answer = await notebook?.session?.request<{ ranks: IWhereRank[] }>('where');
      const stacks = answer ? folded(answer.data.ranks) : [];
      this._stacks.replaceChildren(...stacks.map(stack => stackBlock(stack, notebook!.panel)));
    } catch (error) {
      this._say(said(error));
    }
  }

  private _say(problem: string): void {
    this._problem.textContent = problem;
  }

  private readonly _head = document.createElement('p');
  private readonly _hang = document.createElement('p');
  private readonly _buttons = document.createElement('div');
  private readonly _problem = document.createElement('p');
  private readonly _table = document.createElement('table');
  private readonly _stacks = document.createElement('div');
  private _notebook: INotebookRanks | null = null;
  private _clock = 0;
}

interface IColumns {
  readonly gpu: boolean;
}

function columnsOf(status: IStatus): IColumns {
  return { gpu: status.ranks.some(rank => rank.gpu_memory != null) };
}

function heading(columns: IColumns): HTMLTableRowElement {
  const row = document.createElement('tr');
  const names = ['rank', 'state', 'pid', 'cell', 'memory', ...(columns.gpu ? ['GPU'] : []), ''];
  row.append(...names.map(name => cell('th', name)));
  return row;
}

function headline(status: IStatus): string {
  const ranks = `${status.size} ${status.size === 1 ? 'rank' : 'ranks'}`;
  const running = status.running?.ranks ?? [];
  if (status.running && running.length > 0 && running.length < status.size) {
    return `${ranks}; the cell still runs on ${rankRanges(running)}`;
  }
  return `${ranks}, ${status.state}${status.queued ? `, ${status.queued} cells wait` : ''}`;
}

function cell(kind: 'td' | 'th', text: string): HTMLTableCellElement {
  const node = document.createElement(kind);
  node.textContent = text;
  return node;
}

function button(text: string, title: string, action: () => void): HTMLButtonElement {
  const node = document.createElement('button');
  node.className = 'spmd-Button';
  node.textContent = text;
  node.title = title;
  if (text.length === 1) {
    node.setAttribute('aria-label', title);
  }
  node.addEventListener('click', action);
  return node;
}
