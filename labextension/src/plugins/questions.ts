import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { withdrawQuestions } from '../model/questions';
import { INotebooks, type INotebookRanks } from '../tokens';

export const questions: JupyterFrontEndPlugin<void> = {
  id: 'spmd-kernel:questions',
  description: 'Takes away the box of a question that was answered elsewhere, or withdrawn.',
  autoStart: true,
  requires: [INotebooks],
  activate: (_: JupyterFrontEnd, notebooks: INotebooks) => {
    notebooks.each(follow);
  }
};

function follow(notebook: INotebookRanks): void {
  notebook.changed.connect((_, change) => {
    if (change === 'status') {
      withdrawQuestions(notebook).catch(console.warn);
    }
  });
}
