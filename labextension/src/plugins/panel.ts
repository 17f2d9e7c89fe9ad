import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebooks } from '../tokens';
import { ranksIcon } from '../widgets/icon';
import { RanksPanel } from '../widgets/panel';

const COMMAND = 'spmd-kernel:show-ranks';

export const panel: JupyterFrontEndPlugin<void> = {
  id: 'spmd-kernel:panel',
  description: 'A panel in the right side bar: how each rank fares.',
  autoStart: true,
  requires: [INotebooks],
  optional: [ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebooks,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const widget = new RanksPanel(notebooks);
    widget.title.icon = ranksIcon;
    widget.title.caption = 'Ranks';
    widget.title.label = app.name === 'JupyterLab' ? '' : 'Ranks';
    app.shell.add(widget, 'right', { rank: 700, type: 'Ranks' });
    restorer?.add(widget, widget.id);
    app.commands.addCommand(COMMAND, {
      label: 'Show Ranks',
      execute: () => app.shell.activateById(widget.id)
    });
    palette?.addItem({ command: COMMAND, category: 'Distributed' });
  }
};
