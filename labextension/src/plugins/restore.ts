import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { NotebookRanks } from '../model/notebook';
import { restore as bringBack } from '../model/restore';
import { note } from '../model/seen';
import type { Session } from '../model/session';
import { INotebooks } from '../tokens';

export const restore: JupyterFrontEndPlugin<void> = {
  id: 'spmd-kernel:restore',
  description: 'Brings back what cells said while their notebook was closed.',
  autoStart: true,
  requires: [INotebooks],
  activate: (_: JupyterFrontEnd, notebooks: INotebooks) => {
    notebooks.each(notebook => follow(notebook as NotebookRanks));
  }
};

function follow(notebook: NotebookRanks): void {
  let known: Session | null = null;
  let asked = false;
  const look = (): void => {
    const session = notebook.session;
    if (session !== known) {
      known = session;
      asked = false;
      session?.kernel.iopubMessage.connect(noteEnds);
    }
    if (session?.status && !asked) {
      asked = true;
      const ready = notebook.panel.context.ready.then(() => notebook.panel.revealed);
      void ready.then(() => bringBack(notebook, session)).catch(console.warn);
    }
  };
  notebook.changed.connect(look);
  look();
}

/** Cells whose end a page has seen need not be brought back. */
function noteEnds(
  kernel: { id: string },
  message: { header: { msg_type: string }; content: unknown }
): void {
  if (message.header.msg_type === 'execute_input') {
    // Cells run one by one: those before this one have ended.
    note(kernel.id, (message.content as { execution_count: number }).execution_count - 1);
  }
}
