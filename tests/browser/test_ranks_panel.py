"""The Ranks panel: how each rank fares while a cell runs, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from .lab import DEADLINE, Notebook
from .test_lab import GATE, MEET, PRELUDE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(170, method="thread"),
]

OpenNotebook = Callable[..., Notebook]
LONG = 1000 * DEADLINE

STRAGGLER = """\
if rank == 1:
    gate("panel-go")
"""


def panel(notebook: Notebook) -> Locator:
    return notebook.page.locator("#spmd-ranks")


def row(notebook: Notebook, rank: int) -> Locator:
    first = notebook.page.locator("td:first-child", has_text=re.compile(f"^{rank}$"))
    return panel(notebook).locator("tr", has=first)


@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_ranks_at_work(open_notebook: OpenNotebook, front_end: str) -> None:
    notebook = open_notebook(
        "%processes 3", PRELUDE + MEET + GATE, STRAGGLER, "x = 1\nx", front_end=front_end
    )
    notebook.show_ranks()
    notebook.run(0)
    notebook.run(1)
    expect(panel(notebook)).to_contain_text("3 ranks, idle")
    expect(row(notebook, 2)).to_contain_text(re.compile(r"\d+ MB"))
    gate = notebook.lab.work / "panel-go"
    gate.unlink(missing_ok=True)
    notebook.run(2, wait=False)
    expect(panel(notebook)).to_contain_text("the cell still runs on 1")
    expect(row(notebook, 1)).to_have_class(re.compile("spmd-mod-busy"))
    expect(row(notebook, 1)).to_have_class(re.compile("spmd-mod-slow"), timeout=LONG)

    button = row(notebook, 1).get_by_role("button", name="Interrupt rank 1")
    button.focus()
    before, since = button.element_handle(), row(notebook, 1).inner_text()
    expect(row(notebook, 1)).not_to_have_text(since)  # the clock goes on
    assert button.evaluate("(node, before) => node === before", before)  # a press is not lost
    expect(button).to_be_focused()
    panel(notebook).get_by_role("button", name="Where").click()
    stack = panel(notebook).locator("section", has_text="rank 1")
    expect(stack).to_contain_text("gate")
    expect(panel(notebook).locator("section", has_text="ranks 0,2: idle")).to_be_visible()
    stack.get_by_role("link", name="cell line 2").click()
    expect(notebook.cell(2)).to_have_class(re.compile("spmd-mod-found"))
    notebook.shot(f"panel-{front_end}")
    gate.touch()
    notebook.wait_done(2)
    expect(panel(notebook)).to_contain_text("3 ranks, idle")


SLEEP = "import time\nprint('asleep')\ntime.sleep(600)"


def test_interrupt_one_and_restart_a_dead_one(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(
        "%processes 2", PRELUDE + "x = rank", SLEEP, "if rank == 1: os.kill(os.getpid(), 9)", "x"
    )
    notebook.show_ranks()
    notebook.run(0)
    notebook.run(1)
    notebook.run(2, wait=False)
    notebook.wait_text(2, "asleep")
    row(notebook, 0).get_by_role("button", name="Interrupt rank 0").click()
    expect(row(notebook, 0)).to_contain_text("idle")
    expect(row(notebook, 1)).to_contain_text("busy")
    panel(notebook).get_by_role("button", name="Interrupt", exact=True).click()
    notebook.wait_done(2)

    notebook.run(3)
    expect(row(notebook, 1)).to_contain_text("dead")
    expect(panel(notebook).locator(".spmd-Ranks-cause")).to_contain_text("SIGKILL")
    notebook.shot("panel-dead")
    panel(notebook).get_by_role("button", name="Restart dead").click()
    expect(row(notebook, 1)).to_contain_text("idle", timeout=LONG)
    expect(panel(notebook).get_by_role("button", name="Restart dead")).to_be_hidden()
    notebook.run(4)
    assert "0 │ 0" in notebook.lines(4)  # rank 0 kept its variable
    assert any("NameError" in line for line in notebook.lines(4))


HANG = """\
import torch.distributed as dist, torch
dist.init_process_group("gloo")
"""
STUCK = "if rank != 1:\n    dist.all_reduce(torch.ones(1))"


def test_a_hang_stands_out(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2 --watch 1", PRELUDE + HANG, STUCK)
    notebook.show_ranks()
    notebook.run(0)
    notebook.run(1)
    notebook.run(2, wait=False)
    notice = panel(notebook).get_by_role("alert").filter(has_text="all_reduce")
    expect(notice).to_contain_text("rank 1 finished", timeout=LONG)
    expect(notebook.cell(2).locator(".spmd-mod-hang")).to_contain_text("all_reduce")
    panel(notebook).get_by_role("button", name="Where").click()
    expect(panel(notebook).locator("section", has_text="in all_reduce")).to_be_visible()
    notebook.shot("panel-hang")
    notebook.dark()
    notebook.shot("panel-hang-dark")
    notebook.dark(False)
    notebook.command("notebook:interrupt-kernel")
    notebook.wait_done(2)
    expect(notice).to_have_count(0)
