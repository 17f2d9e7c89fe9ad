/**
 * Boxes of questions that nobody asks any more: answered in another page, or withdrawn.
 *
 * JupyterLab's box stays until somebody types into it. The kernel says which question is open; it is
 * asked once more before a box goes, since what it has pushed may be older than the box.
 */

import type { CodeCell } from '@jupyterlab/cells';
import type { OutputArea } from '@jupyterlab/outputarea';
import type { Panel, Widget } from '@lumino/widgets';
import type { IStatus } from '../protocol/status';
import type { INotebookRanks } from '../tokens';

export const QUESTION = 'jp-OutputArea-stdin-item'; // Lab's class of its box
const ANSWERED = 'jp-OutputArea-stdin-hiding'; // it goes by itself, and keeps the focus until then

interface IBox {
  /** Of the question. */
  readonly msgId: string;
  readonly item: Widget;
}

export async function withdrawQuestions(notebook: INotebookRanks): Promise<void> {
  const { session } = notebook;
  const pushed = session?.status?.question?.msg_id;
  const doubted = session ? boxesOf(notebook).filter(box => box.msgId !== pushed) : [];
  if (session && doubted.length > 0) {
    const { data } = await session.request<IStatus>('status');
    doubted.filter(box => box.msgId !== data.question?.msg_id).forEach(remove);
    const kernel = notebook.panel.sessionContext.session?.kernel;
    if (kernel && !notebook.panel.isDisposed && boxesOf(notebook).length === 0) {
      kernel.hasPendingInput = false; // or Lab runs no cell: it waits for what was typed here only
    }
  }
}

function boxesOf(notebook: INotebookRanks): IBox[] {
  const cells = notebook.panel.content.widgets.filter(cell => cell.model.type === 'code');
  return cells.flatMap(cell => boxesIn((cell as CodeCell).outputArea));
}

function boxesIn(area: OutputArea): IBox[] {
  const items = area.widgets.filter(item => item.hasClass(QUESTION) && !item.hasClass(ANSWERED));
  return items.flatMap(item => (item as Panel).widgets.flatMap(box => boxOf(item, box)));
}

/** Lab's own widget knows what it answers; one that is made otherwise is left alone. */
function boxOf(item: Widget, box: Widget): IBox[] {
  const asked = (box as unknown as { _parentHeader?: { msg_id?: string } })._parentHeader;
  return asked?.msg_id ? [{ msgId: asked.msg_id, item }] : [];
}

function remove({ item }: IBox): void {
  if (!item.isDisposed && !item.hasClass(ANSWERED)) {
    item.dispose();
  }
}
