/** The row of tabs itself: it shows what it is told and says what was chosen. */

import { Menu, Widget } from '@lumino/widgets';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { FIT, type ITab } from '../protocol/tabs';
import type { Choice } from '../protocol/text';

export interface IChosen {
  readonly choice: Choice;
  /** For this cell alone. */
  readonly only: boolean;
}

let counter = 0;

export class RankTabs extends Widget {
  readonly chosen = new Signal<this, IChosen>(this);

  constructor() {
    super();
    this.addClass('spmd-Tabs');
    this._list.className = 'spmd-Tabs-list';
    this._list.setAttribute('role', 'tablist');
    this._list.setAttribute('aria-label', 'Outputs of which rank');
    this._more.className = 'spmd-Tab spmd-Tabs-more';
    this._more.setAttribute('aria-haspopup', 'menu');
    this._note.className = 'spmd-Tabs-note';
    this.node.append(this._list, this._more, this._note);
    this._list.addEventListener('click', this._onClick);
    this._list.addEventListener('keydown', this._onKey);
    this._more.addEventListener('click', this._openMenu);
    this.hide();
  }

  /** `controls`: the id of what is filtered; `alone`: the choice is for this cell only. */
  display(tabs: readonly ITab[], controls: string, alone: boolean, note: string): void {
    this.setHidden(tabs.length === 0);
    const key = JSON.stringify([tabs, controls, alone, note]);
    if (key === this._key) {
      return;
    }
    this._key = key;
    this._tabs = tabs;
    this.toggleClass('spmd-mod-alone', alone);
    this._note.textContent = note;
    this._draw(controls, alone);
  }

  private _draw(controls: string, alone: boolean): void {
    const focused = this._list.contains(document.activeElement);
    const shown = this._shown();
    this._list.replaceChildren(...shown.map(tab => button(tab, controls, alone)));
    const rest = this._tabs.length - shown.length;
    this._more.hidden = rest === 0;
    this._more.textContent = `… ${rest} more`;
    if (focused) {
      this._selected()?.focus();
    }
  }

  /** Those that fit, and the one that is selected. */
  private _shown(): readonly ITab[] {
    return this._tabs.filter((tab, index) => index < FIT || tab.selected);
  }

  private _selected(): HTMLElement | null {
    return this._list.querySelector('[aria-selected="true"]');
  }

  private readonly _onClick = (event: MouseEvent): void => {
    const node = (event.target as Element).closest<HTMLElement>('.spmd-Tab');
    if (node) {
      this._choose(choiceOf(node), event.altKey);
    }
  };

  private readonly _onKey = (event: KeyboardEvent): void => {
    const at = this._tabs.findIndex(tab => tab.selected);
    const last = this._tabs.length - 1;
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    const tab = this._tabs[(to + last + 1) % (last + 1)]!;
    this._choose(tab.ranks?.[0] ?? null, event.altKey);
  };

  private _choose(choice: Choice, only: boolean): void {
    this.chosen.emit({ choice, only });
  }

  private readonly _openMenu = (): void => {
    const commands = new CommandRegistry();
    const menu = new Menu({ commands });
    const shown = this._shown();
    for (const tab of this._tabs.filter(each => !shown.includes(each))) {
      const command = `rank-${counter++}`;
      commands.addCommand(command, {
        label: tab.spoken,
        execute: () => this._choose(tab.ranks?.[0] ?? null, false)
      });
      menu.addItem({ command });
    }
    menu.aboutToClose.connect(() => void Promise.resolve().then(() => menu.dispose()));
    const { left, bottom } = this._more.getBoundingClientRect();
    menu.open(left, bottom);
  };

  private readonly _list = document.createElement('div');
  private readonly _more = document.createElement('button');
  private readonly _note = document.createElement('span');
  private _tabs: readonly ITab[] = [];
  private _key = '';
}

function button(tab: ITab, controls: string, alone: boolean): HTMLButtonElement {
  const node = document.createElement('button');
  node.className = `spmd-Tab ${tab.state && `spmd-mod-${tab.state}`}`;
  node.textContent = tab.title;
  node.dataset['rank'] = tab.ranks ? `${tab.ranks[0]}` : '';
  node.dataset['word'] = tab.ranks?.length === 1 ? 'rank' : 'ranks'; // for paper
  node.tabIndex = tab.selected ? 0 : -1;
  node.title = `${tab.spoken}${tab.selected && alone ? ', in this cell only' : ''}`;
  node.setAttribute('role', 'tab');
  node.setAttribute('aria-label', node.title);
  node.setAttribute('aria-selected', `${tab.selected}`);
  node.setAttribute('aria-controls', controls);
  return node;
}

function choiceOf(node: HTMLElement): Choice {
  const rank = node.dataset['rank'];
  return rank ? Number(rank) : null;
}
