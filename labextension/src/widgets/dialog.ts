/** What is asked before memory is cleared. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import { nameRanks } from '../protocol/labels';

export interface IRestart {
  readonly keep: boolean;
}

/** null: leave it as it is. */
export async function confirmRestart(from: number, to: number): Promise<IRestart | null> {
  const body = new KeepBody(from, to);
  const result = await showDialog<boolean>({
    title: to === 1 ? 'Go on with one process?' : `Go on with ${to} processes?`,
    body,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Start ranks' })]
  });
  return result.button.accept ? { keep: result.value === true } : null;
}

export async function confirmSwitch(name: string, size: number): Promise<boolean> {
  const result = await showDialog({
    title: `Switch to ${name}?`,
    body:
      `This notebook's kernel is one process. ${name} runs every cell on ${size}: ` +
      'the present kernel ends, and its variables are lost. Everything else stays as it is.',
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Switch kernel' })]
  });
  return result.button.accept;
}

class KeepBody extends Widget {
  constructor(from: number, to: number) {
    super();
    this.addClass('spmd-Restart');
    const stay = nameRanks(range(0, Math.min(from, to)));
    const change =
      to > from
        ? `${nameRanks(range(from, to))} ${to - from === 1 ? 'is' : 'are'} new and empty`
        : `${nameRanks(range(to, from))} ${from - to === 1 ? 'ends' : 'end'}`;
    const warning = document.createElement('p');
    const says = (): string =>
      this._box.checked
        ? `Variables of ${stay} are kept; ${change}. Process groups must be made anew.`
        : `Memory of ${from === 1 ? 'the rank' : `all ${from} ranks`} is cleared: every variable is lost.`;
    this._box.type = 'checkbox';
    this._box.addEventListener('change', () => (warning.textContent = says()));
    warning.textContent = says();
    const label = document.createElement('label');
    label.append(this._box, ` keep surviving ranks (${stay})`);
    this.node.append(warning, label);
  }

  getValue(): boolean {
    return this._box.checked;
  }

  private readonly _box = document.createElement('input');
}

function range(from: number, to: number): number[] {
  return Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
}
