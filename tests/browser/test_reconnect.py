"""A page that is closed while a cell runs, and opened again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from .lab import Notebook
from .test_lab import GATE, MEET, PRELUDE, said
from .test_rank_tabs import choose, shown

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(170, method="thread"),
]

OpenNotebook = Callable[..., Notebook]

LONG_CELL = """\
import ipywidgets
from IPython.display import display, clear_output
slider = ipywidgets.IntSlider(description=f"rank {rank}", value=rank)
print("before", flush=True)
print(f"rank {rank} begins", flush=True)
handle = display(f"state 0 of {rank}", display_id=True)
display(slider)
gate("closed")
handle.update(f"state 1 of {rank}")
print(f"rank {rank} in between", flush=True)
gate("opened")
handle.update(f"state 2 of {rank}")
print(f"rank {rank} ends")
slider.value
"""


@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_what_was_missed_is_there_and_goes_on(open_notebook: OpenNotebook, front_end: str) -> None:
    notebook = open_notebook(
        "%processes 2", PRELUDE + MEET + GATE, LONG_CELL, "print('after')", front_end=front_end
    )
    for name in ("closed", "opened"):
        (notebook.lab.work / name).unlink(missing_ok=True)
    notebook.run(0)
    notebook.run(1)
    notebook.command("docmanager:save")
    notebook.run(2, wait=False)
    notebook.run(3, wait=False)  # waits behind it
    notebook.wait_text(2, "rank 1 begins")
    notebook.page.goto("about:blank")
    (notebook.lab.work / "closed").touch()

    notebook.open()
    notebook.wait_text(2, "rank 0 in between")
    notebook.wait_text(2, "rank 1 in between")
    lines = notebook.lines(2)
    for rank in range(2):
        assert said(lines)[rank].count("before") == 1
        assert said(lines)[rank].count(f"rank {rank} begins") == 1
    assert {f"{rank} │ 'state 1 of {rank}'" for rank in range(2)} <= set(lines)
    prompts = notebook.page.locator(".jp-InputPrompt")
    expect(prompts.nth(2)).to_have_text("[*]:")
    expect(prompts.nth(3)).to_have_text("[*]:")
    choose(notebook, 2, "1")
    assert "rank 1 in between" in shown(notebook, 2)
    choose(notebook, 2, "All")
    notebook.shot(f"reconnected-{front_end}")
    (notebook.lab.work / "opened").touch()
    notebook.wait_done(2)
    notebook.wait_done(3)
    lines = notebook.lines(2)
    for rank in range(2):
        assert [line for line in lines if line == f"{rank} │ rank {rank} ends"]
        assert f"{rank} │ 'state 2 of {rank}'" in lines
        assert f"{rank} │ {rank}" in lines  # the value of the widget
        assert said(lines)[rank].count("before") == 1
    expect(prompts.nth(2)).to_have_text("[3]:")
    expect(prompts.nth(3)).to_have_text("[4]:")
    assert notebook.lines(3) == ["after"]
    readouts = notebook.cell(2).locator(".widget-readout")
    expect(readouts).to_have_count(2)  # they come back once the ranks can answer
    assert sorted(readouts.all_inner_texts()) == ["0", "1"]

    notebook.run(2)  # an ordinary run again
    expect(prompts.nth(2)).to_have_text("[5]:")
    assert said(notebook.lines(2))[0].count("before") == 1


def test_a_cell_that_ended_meanwhile(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(
        "%processes 2", PRELUDE + MEET + GATE, "gate('done')\nprint(f'rank {rank} is done')", "1"
    )
    (notebook.lab.work / "done").unlink(missing_ok=True)
    notebook.run(0)
    notebook.run(1)
    notebook.command("docmanager:save")
    notebook.run(2, wait=False)
    notebook.wait_busy()
    notebook.page.goto("about:blank")
    (notebook.lab.work / "done").touch()
    notebook.lab.wait_idle()
    notebook.open()
    notebook.wait_text(2, "rank 1 is done")
    assert sorted(notebook.lines(2)) == [f"{rank} │ rank {rank} is done" for rank in range(2)]
    prompts = notebook.page.locator(".jp-InputPrompt")
    expect(prompts.nth(2)).to_have_text("[3]:")

    notebook.run(3)
    notebook.command("notebook:clear-all-cell-outputs")
    notebook.command("docmanager:save")
    notebook.page.goto("about:blank")
    notebook.open()
    notebook.wait_status()
    expect(notebook.outputs(2)).to_have_count(0)  # what somebody has seen and deleted stays away


def test_a_question_is_asked_again(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", "name = input('Your name? ')\nprint(f'Hello {name}')")
    notebook.run(0)
    notebook.command("docmanager:save")
    notebook.run(1, wait=False)
    notebook.cell(1).locator("input.jp-Stdin-input").wait_for()
    notebook.page.goto("about:blank")
    notebook.open()
    expect(notebook.page.locator(".jp-InputPrompt").nth(1)).to_have_text("[*]:")
    notebook.command("notebook:interrupt-kernel")
    notebook.wait_text(1, re.escape("KeyboardInterrupt"))
    notebook.wait_done(1)
