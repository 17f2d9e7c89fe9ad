"""Run a notebook as nbclient does: no browser, no person.  Prints what the ranks said.

    python examples/run.py NOTEBOOK [--to FOLDER] [--kernel NAME] [--timeout SECONDS]

Writes FOLDER/NAME.ipynb and FOLDER/NAME.html, also when a cell fails; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat import NotebookNode

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def text_of(output: NotebookNode) -> str:
    """One output as plain text: what a reader without pictures would see."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return ANSI.sub("", "\n".join(output.traceback))
    pictures = [kind for kind in output.data if kind.startswith("image/")]
    ranks = output.metadata.get("spmd", {}).get("ranks")
    of = f" of rank {', '.join(map(str, ranks))}" if ranks else ""
    text = "".join(output.data.get("text/plain", ""))
    return f"[{pictures[0]}{of}]" if pictures else text


def show(cell: NotebookNode) -> None:
    """Print a code cell's input and outputs."""
    print("\n" + "\n".join(f"> {line}" for line in cell.source.splitlines()))
    for output in cell.outputs:
        print(text_of(output).rstrip("\n"))


def run(notebook: NotebookNode, folder: Path, kernel: str, timeout: float) -> str:
    """Execute in place; the reason of a failure, or nothing."""
    client = NotebookClient(
        notebook,
        kernel_name=kernel,
        timeout=timeout,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        client.execute()
    except (CellExecutionError, DeadKernelError, TimeoutError) as error:
        return ANSI.sub("", str(error))
    return ""


def write(notebook: NotebookNode, target: Path) -> None:
    """The executed notebook, and the same as one HTML page."""
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    target.with_suffix(".html").write_text(page, encoding="utf-8")
    print(f"\nwrote {target} and {target.with_suffix('.html')}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a notebook headlessly.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--to", type=Path, default=Path("build"), help="folder of what is written")
    parser.add_argument("--kernel", default="", help="instead of the notebook's own")
    parser.add_argument("--timeout", type=float, default=300, help="seconds per cell")
    options = parser.parse_args()

    notebook = nbformat.read(options.notebook, as_version=4)
    kernel = options.kernel or notebook.metadata.kernelspec.name
    began = time.monotonic()
    failure = run(notebook, options.notebook.resolve().parent, kernel, options.timeout)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            show(cell)
    write(notebook, options.to / options.notebook.name)
    if failure:
        print(f"\nfailed: {failure}", file=sys.stderr)
        return 1
    print(f"ran {options.notebook} in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
