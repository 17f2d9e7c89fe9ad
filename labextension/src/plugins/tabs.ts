import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { Cell, CodeCell } from '@jupyterlab/cells';
import { CellRanks } from '../widgets/cell';
import { override } from '../widgets/text';
import { INotebooks, type INotebookRanks } from '../tokens';

export const tabs: JupyterFrontEndPlugin<void> = {
  id: 'spmd-kernel:tabs',
  description: 'Tabs over the outputs of a cell: all ranks, or one.',
  autoStart: true,
  requires: [INotebooks],
  activate: (_: JupyterFrontEnd, notebooks: INotebooks) => {
    notebooks.each(follow);
  }
};

/** Tabs as long as the notebook is ours; on a plain kernel nothing is touched. */
function follow(notebook: INotebookRanks): void {
  let remove: (() => void) | null = null;
  const look = (): void => {
    if (notebook.isOurs && remove === null) {
      remove = install(notebook);
    } else if (!notebook.isOurs && remove !== null) {
      remove();
      remove = null;
    }
  };
  notebook.changed.connect(look);
  notebook.panel.disposed.connect(() => notebook.changed.disconnect(look));
  look();
}

function install(notebook: INotebookRanks): () => void {
  const { content } = notebook.panel;
  const known = new Map<Cell, CellRanks | null>();
  let installed = true;
  const undo = override(content.rendermime, notebook);
  const add = (): void => {
    for (const cell of content.widgets) {
      if (cell.model.type === 'code' && !known.has(cell)) {
        known.set(cell, null);
        cell.disposed.connect(() => known.delete(cell));
        void cell.ready.then(() => {
          if (installed && known.has(cell) && !cell.isDisposed) {
            known.set(cell, new CellRanks(cell as CodeCell, notebook));
          }
        });
      }
    }
  };
  const changed = (): void => void Promise.resolve().then(add);
  content.modelContentChanged.connect(add);
  content.model?.cells.changed.connect(changed);
  add();
  return () => {
    installed = false;
    content.modelContentChanged.disconnect(add);
    content.model?.cells.changed.disconnect(changed);
    undo();
    known.forEach(cell => cell?.dispose());
  };
}
