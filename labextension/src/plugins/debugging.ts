import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IDebugger, IDebuggerSidebar } from '@jupyterlab/debugger';
import type { SidePanel } from '@jupyterlab/ui-components';
import { Debugging } from '../model/debugging';
import { INotebooks } from '../tokens';
import { RankPicker } from '../widgets/picker';

export const debugging: JupyterFrontEndPlugin<void> = {
  id: 'spmd-kernel:debugger',
  description: 'A list in the debugger: which ranks are stopped, and which of them is shown.',
  autoStart: true,
  requires: [INotebooks],
  optional: [IDebugger, IDebuggerSidebar],
  activate: (
    _: JupyterFrontEnd,
    notebooks: INotebooks,
    service: IDebugger | null,
    sidebar: IDebugger.ISidebar | null
  ) => {
    const header = (sidebar as SidePanel | null)?.header;
    if (service && header) {
      header.addWidget(new RankPicker(new Debugging(service, notebooks)));
    }
  }
};
