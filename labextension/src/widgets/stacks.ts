/** Stacks of ranks, with links to the cells that they are in. */

import type { NotebookPanel } from '@jupyterlab/notebook';
import { seconds } from '../protocol/format';
import { nameRanks } from '../protocol/labels';
import { cellHash, codeHash, type IFrame, type IStack } from '../protocol/where';

export function stackBlock(stack: IStack, panel: NotebookPanel): HTMLElement {
  const block = document.createElement('section');
  const head = document.createElement('h3');
  head.textContent = `${nameRanks(stack.ranks)}: ${stack.waits ? `in ${stack.waits}` : stack.state}`;
  if (stack.seconds !== null) {
    head.textContent += `, for ${seconds(stack.seconds)}`;
  }
  const list = document.createElement('ol');
  list.append(...stack.frames.map(frame => frameItem(frame, panel)));
  block.append(head, list);
  return block;
}

function frameItem(frame: IFrame, panel: NotebookPanel): HTMLLIElement {
  const item = document.createElement('li');
  const index = cellIndex(frame, panel);
  const place = document.createElement(index < 0 ? 'span' : 'a');
  place.textContent = frame.place;
  place.title = `${frame.file}, line ${frame.line}`;
  if (place instanceof HTMLAnchorElement) {
    place.href = '#';
    place.addEventListener('click', event => {
      event.preventDefault();
      void goTo(panel, index, frame.line);
    });
  }
  item.append(place, ` in ${frame.function}`);
  return item;
}

/** The cell whose code is in the frame's file: its name tells. -1: none. */
function cellIndex(frame: IFrame, panel: NotebookPanel): number {
  const hash = cellHash(frame.file);
  const cells = panel.content.widgets;
  return hash ? cells.findIndex(cell => codeHash(cell.model.sharedModel.source) === hash) : -1;
}

async function goTo(panel: NotebookPanel, index: number, line: number): Promise<void> {
  const notebook = panel.content;
  notebook.activeCellIndex = index;
  const cell = notebook.widgets[index]!;
  await notebook.scrollToItem(index, 'smart');
  await cell.ready;
  // Leading blank lines do not count for IPython.
  const blank = /^(?:[^\S\n]*\n)*/.exec(cell.model.sharedModel.source)![0].split('\n').length - 1;
  cell.editor?.setCursorPosition({ line: line - 1 + blank, column: 0 });
  cell.node.classList.add('spmd-mod-found');
  window.setTimeout(() => cell.node.classList.remove('spmd-mod-found'), 1500);
}
