import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { INotebooks } from '../tokens';
import { ProcessesField, type FieldMode } from '../widgets/field';

const ID = 'spmd-kernel:processes';

export const processes: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'A field in the toolbar of notebooks: how many ranks run every cell.',
  autoStart: true,
  requires: [INotebooks, IToolbarWidgetRegistry],
  optional: [ISettingRegistry],
  activate: (
    _: JupyterFrontEnd,
    notebooks: INotebooks,
    toolbar: IToolbarWidgetRegistry,
    settings: ISettingRegistry | null
  ) => {
    const fields = new Set<ProcessesField>();
    let mode: FieldMode = 'always';
    toolbar.addFactory<NotebookPanel>('Notebook', 'spmd-processes', panel => {
      const field = new ProcessesField(notebooks.of(panel), mode);
      fields.add(field);
      field.disposed.connect(() => fields.delete(field));
      return field;
    });
    const apply = (loaded: ISettingRegistry.ISettings): void => {
      mode = loaded.get('processesField').composite as FieldMode;
      fields.forEach(field => (field.mode = mode));
    };
    void settings?.load(ID).then(loaded => {
      loaded.changed.connect(apply);
      apply(loaded);
    });
  }
};
