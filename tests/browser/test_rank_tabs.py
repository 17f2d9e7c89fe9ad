"""Tabs over a cell's outputs: what each rank said, in JupyterLab and in Notebook 7."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from .lab import Notebook
from .test_lab import FIGURE, GATE, MEET, PRELUDE, TABLE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(170, method="thread"),
]

OpenNotebook = Callable[..., Notebook]


def tabs(notebook: Notebook, index: int) -> Locator:
    return notebook.cell(index).get_by_role("tab")


def choose(notebook: Notebook, index: int, title: str, **how: object) -> None:
    tab = notebook.cell(index).locator(".spmd-Tab", has_text=re.compile(f"^{title}$"))
    tab.click(**how)  # type: ignore[arg-type]
    expect(tab).to_have_attribute("aria-selected", "true")


def shown(notebook: Notebook, index: int) -> list[str]:
    """The lines that a person sees under a cell, without those of hidden outputs."""
    outputs = notebook.cell(index).locator(".jp-OutputArea-output:visible")
    return [line for text in outputs.all_inner_texts() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_one_rank_at_a_time(open_notebook: OpenNotebook, front_end: str) -> None:
    cells = [
        "%processes 4",
        PRELUDE + MEET,
        "meet('a')\nprint('the same everywhere')\nmeet('b')\nprint(f'hello from {rank}')",
        "rank % 2",
        FIGURE,
        TABLE,
        "print(f'rank {rank} works')\n[1.0, 2.0, 4.0][rank]",
        "if rank == 2: print('only two')",
    ]
    notebook = open_notebook(*cells, tags={6: "raises-exception"}, front_end=front_end)
    notebook.run_all()
    expect(tabs(notebook, 2)).to_have_text(["All", "0", "1", "2", "3"])
    expect(tabs(notebook, 0)).to_have_count(0)  # nothing that only some ranks said
    assert notebook.lines(3) == ["0,2 │ 0", "1,3 │ 1"]
    notebook.long_shot(f"tabs-all-{front_end}", 2600)

    choose(notebook, 2, "1")
    assert shown(notebook, 2) == ["the same everywhere", "hello from 1"]
    assert shown(notebook, 3) == ["1"]
    expect(notebook.cell(4).locator("img:visible")).to_have_count(1)
    assert notebook.cell(5).locator("td:visible").all_inner_texts() == ["1", "1"]
    assert shown(notebook, 6) == ["rank 1 works", "2.0"]
    expect(notebook.cell(7).locator(".spmd-Tabs-note")).to_have_text("rank 1 wrote nothing here")
    assert shown(notebook, 0) == shown(notebook, 0) != []
    notebook.long_shot(f"tabs-one-{front_end}", 2600)

    choose(notebook, 6, "3", modifiers=["Alt"])
    lines = shown(notebook, 6)
    assert lines[0] == "rank 3 works"
    assert lines[1].startswith("-----") and lines[-1] == "IndexError: list index out of range"
    assert shown(notebook, 2) == ["the same everywhere", "hello from 1"]
    failed = notebook.cell(6).locator(".spmd-mod-failed")
    expect(failed).to_have_attribute("aria-label", re.compile("rank 3, failed"))
    notebook.shot(f"tabs-alt-{front_end}", 6)

    choose(notebook, 2, "All")
    assert notebook.lines(3) == ["0,2 │ 0", "1,3 │ 1"]
    expect(notebook.cell(4).locator("img:visible")).to_have_count(4)
