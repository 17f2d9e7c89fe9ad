/** Which kernels are ours, by their kernelspecs. */

import type { INotebookModel } from '@jupyterlab/notebook';
import type { KernelSpec } from '@jupyterlab/services';

type Specs = KernelSpec.ISpecModels | null;

/** The kernelspec starts N kernels of the one named, or is unknown: undefined. */
export function rankKernel(specs: Specs, name: string): string | undefined {
  const spmd = specs?.kernelspecs[name]?.metadata?.['spmd'] as { kernel?: string } | undefined;
  return spmd?.kernel;
}

/** The kernelspec that starts N kernels of this one. */
export function twinOf(specs: Specs, name: string): KernelSpec.ISpecModel | undefined {
  const all = Object.values(specs?.kernelspecs ?? {});
  return all.find(spec => spec && rankKernel(specs, spec.name) === name);
}

/** By what the notebook says of its kernel, which need not be installed here. */
export function isOurs(model: INotebookModel | null, specs: Specs): boolean {
  const spec = model?.getMetadata('kernelspec') as
    | { name?: string; display_name?: string }
    | undefined;
  if (!spec?.name) {
    return false;
  }
  if (specs?.kernelspecs[spec.name]) {
    return rankKernel(specs, spec.name) !== undefined;
  }
  return spec.name.startsWith('spmd-') || (spec.display_name ?? '').startsWith('Distributed (');
}
