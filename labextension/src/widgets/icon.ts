import { LabIcon } from '@jupyterlab/ui-components';

/** Four processes side by side. */
const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <g class="jp-icon3" fill="#616161">
    <rect x="1.5" y="2" width="2.5" height="12" rx="1"/><rect x="5" y="5" width="2.5" height="9" rx="1"/>
    <rect x="8.5" y="3.5" width="2.5" height="10.5" rx="1"/><rect x="12" y="7" width="2.5" height="7" rx="1"/>
  </g></svg>`;

export const ranksIcon = new LabIcon({ name: 'spmd-kernel:ranks', svgstr });
