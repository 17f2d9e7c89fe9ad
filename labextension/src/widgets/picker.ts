/** The list of ranks above the debugger's panels: which are stopped, and which of them is shown. */

import { MessageLoop } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import type { IRow } from '../protocol/debug';
import type { IDebugging } from '../tokens';
import { said } from './field';

export class RankPicker extends Widget {
  constructor(private readonly _debugging: IDebugging) {
    super();
    this.addClass('spmd-Picker');
    this._list.className = 'spmd-Picker-list';
    this._list.setAttribute('role', 'listbox');
    this._list.setAttribute('aria-label', 'Rank to debug');
    this._problem.className = 'spmd-Picker-problem';
    this._problem.setAttribute('role', 'alert');
    this.node.append(this._list, this._problem);
    this._list.addEventListener('click', this._onClick);
    this._list.addEventListener('keydown', this._onKey);
    _debugging.changed.connect(this._show, this);
    this._show();
  }

  override dispose(): void {
    Signal.disconnectReceiver(this);
    super.dispose();
  }

  private _show(): void {
    const { rows } = this._debugging;
    this.setHidden(rows.length === 0);
    const key = JSON.stringify(rows);
    if (key !== this._key) {
      this._key = key;
      this._draw(rows);
    }
  }

  /** Rows stay the same nodes, or the one that has the focus would lose it at every step. */
  private _draw(rows: readonly IRow[]): void {
    if (this._list.children.length !== rows.length) {
      this._resize();
    }
    while (this._list.children.length > rows.length) {
      this._list.lastElementChild!.remove();
    }
    const current = Math.max(0, rows.findIndex(row => row.selected));
    rows.forEach((row, index) => {
      const node = this._list.children[index] ?? this._list.appendChild(option());
      fill(node as HTMLElement, row, index === current);
    });
    this._list.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' });
  }

  /** The panels below do not see by themselves that they have less room. */
  private _resize(): void {
    const bar = this.parent?.parent;
    if (bar) {
      MessageLoop.postMessage(bar, Widget.ResizeMessage.UnknownSize);
    }
  }

  private readonly _onClick = (event: MouseEvent): void => {
    const node = (event.target as Element).closest<HTMLElement>('[role=option]');
    if (node) {
      this._choose(node);
    }
  };

  private readonly _onKey = (event: KeyboardEvent): void => {
    const nodes = [...this._list.children] as HTMLElement[];
    const at = nodes.indexOf(document.activeElement as HTMLElement);
    const last = nodes.length - 1;
    if (at < 0) {
      return;
    }
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (to === undefined && event.key !== 'Enter' && event.key !== ' ') {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // none of the notebook's shortcuts
    if (to === undefined) {
      this._choose(nodes[at]!);
    } else {
      nodes[Math.min(last, Math.max(0, to))]!.focus();
    }
  };

  private _choose(node: HTMLElement): void {
    this._problem.textContent = '';
    this._debugging.choose(Number(node.dataset['rank'])).catch(error => {
      this._problem.textContent = said(error);
    });
  }

  private readonly _list = document.createElement('div');
  private readonly _problem = document.createElement('p');
  private _key = '';
}

function option(): HTMLElement {
  const node = document.createElement('div');
  node.setAttribute('role', 'option');
  const [rank, text] = [document.createElement('span'), document.createElement('span')];
  rank.className = 'spmd-Picker-rank';
  text.className = 'spmd-Picker-text';
  node.append(rank, text);
  return node;
}

function fill(node: HTMLElement, row: IRow, isCurrent: boolean): void {
  node.className = `spmd-Picker-row spmd-mod-${row.state}`;
  node.dataset['rank'] = `${row.rank}`;
  node.title = row.spoken;
  node.tabIndex = isCurrent ? 0 : -1;
  node.setAttribute('aria-label', row.spoken);
  node.setAttribute('aria-selected', `${row.selected}`);
  node.children[0]!.textContent = `rank ${row.rank}`;
  node.children[1]!.textContent = row.text;
}
