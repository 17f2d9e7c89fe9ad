import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { Notebooks } from '../model/notebooks';
import { INotebooks } from '../tokens';

export const notebooks: JupyterFrontEndPlugin<INotebooks> = {
  id: 'spmd-kernel:notebooks',
  description: 'Knows the open notebooks, their ranks and which of them are shown.',
  autoStart: true,
  requires: [INotebookTracker],
  provides: INotebooks,
  activate: (_: JupyterFrontEnd, tracker: INotebookTracker) => new Notebooks(tracker)
};
