/** All open notebooks. */

import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import type { INotebooks } from '../tokens';
import { NotebookRanks } from './notebook';

export class Notebooks implements INotebooks {
  readonly added = new Signal<this, NotebookRanks>(this);
  readonly currentChanged = new Signal<this, void>(this);

  constructor(private readonly _tracker: INotebookTracker) {
    _tracker.widgetAdded.connect((_, panel) => this.of(panel));
    _tracker.currentChanged.connect(() => this.currentChanged.emit());
    _tracker.forEach(panel => this.of(panel));
  }

  get current(): NotebookRanks | null {
    const panel = this._tracker.currentWidget;
    return panel ? this.of(panel) : null;
  }

  of(panel: NotebookPanel): NotebookRanks {
    let notebook = this._known.get(panel);
    if (notebook === undefined) {
      notebook = new NotebookRanks(panel);
      this._known.set(panel, notebook);
      panel.disposed.connect(() => this._known.delete(panel));
      this.added.emit(notebook);
    }
    return notebook;
  }

  forEach(visit: (notebook: NotebookRanks) => void): void {
    this._known.forEach(visit);
  }

  each(visit: (notebook: NotebookRanks) => void): void {
    this.forEach(visit);
    this.added.connect((_, notebook) => visit(notebook));
  }

  private readonly _known = new Map<NotebookPanel, NotebookRanks>();
}
