"""nbclient, papermill and nbconvert run real notebooks and leave ordinary ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

EXAMPLES = Path(__file__).parents[2] / "examples"


def notebook(*cells: str) -> Any:
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    metadata = {"kernelspec": {"name": "spmd-python3", "display_name": "x", "language": "python"}}
    return nbformat.v4.new_notebook(cells=code, metadata=metadata)


def execute(nb: Any, **options: Any) -> Any:
    return NotebookClient(nb, kernel_name="spmd-python3", timeout=120, **options).execute()


def text_of(cell: Any) -> str:
    parts = []
    for output in cell.outputs:
        parts.append(output.get("text", ""))
        parts.append("\n".join(output.get("traceback", [])))
        parts.append(str(output.get("data", {}).get("text/plain", "")))
    return "\n".join(parts)


@pytest.mark.parametrize("name", ["quickstart", "torch_ddp", "jax_multiprocess", "debugging"])
def test_examples(name: str) -> None:
    nb = execute(nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4))
    nbformat.validate(nb)
    allowed = {"raises-exception"}
    for cell in nb.cells:
        failed = any(o.output_type == "error" for o in cell.get("outputs", []))
        assert not failed or allowed & set(cell.metadata.get("tags", []))


def test_papermill_with_parameters(tmp_path: Path) -> None:
    source, target = EXAMPLES / "torch_ddp.ipynb", tmp_path / "out.ipynb"
    nb = papermill.execute_notebook(
        source,
        target,
        parameters={"epochs": 4, "processes": 2},
        progress_bar=False,
        log_output=True,
    )
    text = "\n".join(text_of(cell) for cell in nb.cells if cell.cell_type == "code")
    assert "2 ranks ready" in text


def test_nbconvert_shows_the_figure_of_every_rank(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--execute", "--to", "html", "--output-dir", str(tmp_path), str(EXAMPLES / "quickstart.ipynb")],
        check=True,
        timeout=300,
    )  # fmt: skip
    html = (tmp_path / "quickstart.html").read_text()
    assert html.count("data:image/png;base64") >= 4


def test_a_failed_cell_is_seen_by_tools() -> None:
    code = (
        "r = int(__import__('os').environ['RANK'])\nprint('pre', r)\nraise LookupError(f'of {r}')"
    )
    nb = execute(notebook("%processes 2", code), allow_errors=True)
    errors = [o for o in nb.cells[1].outputs if o.output_type == "error"]
    assert [e.ename for e in errors] == ["LookupError", "LookupError"]
    assert "pre 0" in text_of(nb.cells[1]) and "pre 1" in text_of(nb.cells[1])
    with pytest.raises(CellExecutionError, match="LookupError"):
        execute(notebook("%processes 2", code))


def test_a_killed_rank_fails_the_run_by_name() -> None:
    code = """
import os, time
if os.environ['RANK'] == '1':
    os.kill(os.getpid(), 9)
time.sleep(600)
"""
    nb = notebook("%processes 2", code, "print('must not run')")
    with pytest.raises(CellExecutionError, match="rank 1 died"):
        execute(nb)
    assert "must not run" not in json.dumps(nb.cells[2].get("outputs", []))


def test_widget_state_is_stored() -> None:
    code = "import ipywidgets; s = ipywidgets.IntSlider(value=3); s"
    nb = execute(notebook("%processes 2", code))
    state = nb.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    sliders = [m for m in state.values() if m["model_name"] == "IntSliderModel"]
    assert len(sliders) == 2
