import { debugging } from './plugins/debugging';
import { notebooks } from './plugins/notebooks';
import { panel } from './plugins/panel';
import { processes } from './plugins/processes';
import { questions } from './plugins/questions';
import { restore } from './plugins/restore';
import { tabs } from './plugins/tabs';

export * from './tokens';
export default [notebooks, tabs, processes, panel, restore, questions, debugging];
