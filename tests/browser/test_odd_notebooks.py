"""What people do with notebooks while ranks are at work, and how they arrange them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from ..kernel.client import descendants
from .lab import Notebook
from .test_lab import FIGURE, GATE, MEET, PRELUDE
from .test_processes_field import wait_size
from .test_rank_tabs import choose, shown, tabs

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(170, method="thread"),
]

OpenNotebook = Callable[..., Notebook]

HELLO = PRELUDE + "print('hello', rank)"


def test_single_document_mode(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", HELLO, front_end="doc")
    assert notebook.mode() == "single-document"
    notebook.run_all()
    wait_size(notebook.page, 2)
    choose(notebook, 1, "1")
    assert shown(notebook, 1) == ["hello 1"]
    notebook.command("spmd-kernel:show-ranks")
    expect(notebook.page.locator("#spmd-ranks")).to_contain_text("2 ranks, idle")
    notebook.shot("single-document")


def said_in(view: Locator) -> str:
    return "\n".join(view.locator(".jp-OutputArea-output:visible").all_inner_texts())


def test_several_views_of_one_notebook(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", HELLO, FIGURE)
    notebook.run_all()
    page = notebook.page
    choose(notebook, 1, "1")
    notebook.activate(1)
    notebook.command("notebook:create-output-view")
    view = page.locator(".jp-LinkedOutputView")
    expect(view).to_contain_text("0 │ hello 0\n1 │ hello 1")  # it has no tabs: it shows all

    page.locator(".jp-NotebookPanel .jp-Cell").first.click()
    notebook.command("docmanager:clone")
    first, second = (page.locator(".jp-NotebookPanel").nth(index) for index in range(2))
    second.get_by_role("tab", name="rank 0").first.click()
    expect(second.locator(".jp-OutputArea-output", has_text="hello 0")).to_have_text("hello 0\n")
    expect(second.locator("img:visible")).to_have_count(1)
    assert "hello 1" in said_in(first) and "hello 0" not in said_in(first)
    first.get_by_role("tab", name="all ranks").first.click()
    expect(first.locator(".jp-OutputArea-output", has_text="hello 0")).to_contain_text(
        "1 │ hello 1"
    )
    assert "hello 1" not in said_in(second)
    notebook.shot("several-views")


FAILS = """\
print("first of", rank, flush=True)
gate("view")
print("second of", rank, flush=True)
if rank: 1 / 0
"""


def test_printed_exported_and_in_a_view_of_its_own(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", PRELUDE + MEET + GATE, HELLO, FIGURE, FAILS)
    (notebook.lab.work / "view").unlink(missing_ok=True)
    page = notebook.page
    for index in range(4):
        notebook.run(index)
    notebook.run(4, wait=False)
    notebook.wait_text(4, "first of 1")
    choose(notebook, 2, "1")
    notebook.activate(4)
    notebook.command("notebook:create-output-view")
    view = page.locator(".jp-LinkedOutputView")
    expect(view).to_contain_text("0 │ first of 0")  # whatever is chosen in the notebook
    page.locator(".jp-NotebookPanel .jp-Cell").first.click()
    (notebook.lab.work / "view").touch()
    notebook.wait_done(4)
    expect(view).to_contain_text("0 │ second of 0")
    expect(view).to_contain_text("1 │ -----")
    assert "1 │" not in "".join(shown(notebook, 4)) and "of 0" not in "".join(shown(notebook, 4))
    expect(view.get_by_role("tab")).to_have_count(0)

    page.emulate_media(media="print")
    expect(notebook.cell(3).locator(".spmd-Tab:visible")).to_have_text(["1"])
    expect(notebook.cell(3).locator("img:visible")).to_have_count(1)
    notebook.shot("printed", 3)
    page.emulate_media(media="screen")
    choose(notebook, 2, "All")
    page.emulate_media(media="print")
    expect(notebook.cell(3).locator(".spmd-Tabs")).to_be_hidden()
    expect(notebook.cell(3).locator("img:visible")).to_have_count(2)
    page.emulate_media(media="screen")
    choose(notebook, 2, "1")

    notebook.command("docmanager:save")  # and what "Print…" and "Save and Export" show: all ranks
    page.goto(f"{notebook.lab.url}/nbconvert/html/{notebook.path.name}?token={notebook.lab.token}")
    expect(page.locator("body")).to_contain_text("0 │ hello 0\n1 │ hello 1")
    expect(page.locator(".jp-OutputArea img")).to_have_count(2)
    expect(page.locator("[class*=spmd-]")).to_have_count(0)


STEPS = """\
for step in range(5):
    gate(f"edit-{step}")
    print(f"step {step} of {rank}", flush=True)
"""


def test_a_cell_that_runs_is_cleared_moved_copied_and_deleted(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", PRELUDE + MEET + GATE, STEPS, "'other'")
    page = notebook.page
    for step in range(5):
        (notebook.lab.work / f"edit-{step}").unlink(missing_ok=True)
    notebook.run(0)
    notebook.run(1)
    notebook.run(2, wait=False)

    def go(step: int, index: int) -> None:
        """Rank 1 is shown, and says this."""
        (notebook.lab.work / f"edit-{step}").touch()
        notebook.wait_text(index, f"step {step} of 1")
        assert not [line for line in shown(notebook, index) if "of 0" in line]

    expect(notebook.cell(2).locator(".spmd-mod-running")).to_have_count(2)
    choose(notebook, 2, "1")
    go(0, 2)
    notebook.command("notebook:clear-all-cell-outputs")  # and all prompts
    go(1, 2)
    assert shown(notebook, 2) == ["step 1 of 1"]
    notebook.activate(2)
    notebook.command("notebook:move-cell-down")
    go(2, 3)
    expect(tabs(notebook, 3)).to_have_text(["All", "0", "1"])
    notebook.command("notebook:copy-cell")
    notebook.command("notebook:paste-cell-below")
    expect(tabs(notebook, 4)).to_have_text(["All", "0", "1"])
    go(3, 3)
    assert shown(notebook, 4)[-1] == "step 2 of 1"  # the copy does not run
    expect(notebook.cell(4).locator(".spmd-mod-running")).to_have_count(0)
    notebook.activate(3)
    notebook.command("notebook:delete-cell")
    notebook.command("notebook:undo-cell-action")  # and what else was done within half a second
    (notebook.lab.work / "edit-4").touch()
    notebook.lab.wait_idle()
    back = page.locator(".jp-Notebook .jp-Cell", has_text="for step in").first
    expect(back.locator(".jp-OutputArea")).to_contain_text("step 4 of 1")
    expect(back.get_by_role("tab")).to_have_text(["All", "0", "1"])
    expect(page.locator(".spmd-mod-running")).to_have_count(0)
    notebook.shot("edited-while-it-ran")


FOREVER = "import time\nprint('rank', rank, 'is asleep', flush=True)\ntime.sleep(600)"


def test_restarted_and_killed_while_a_cell_runs(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", PRELUDE, FOREVER)
    page = notebook.page
    notebook.show_ranks()
    notebook.run(0)
    notebook.run(1)
    running = notebook.cell(2).locator(".spmd-mod-running")
    notebook.run(2, wait=False)
    expect(running).to_have_count(2)

    indicator = page.locator(".jp-Notebook-ExecutionIndicator").first
    page.locator("#spmd-ranks").get_by_role("button", name="Where").click()
    expect(page.locator("#spmd-ranks section")).to_contain_text("busy")
    expect(indicator).to_have_attribute("data-status", "busy")  # for all that was asked meanwhile
    assert [kernel["execution_state"] for kernel in notebook.lab.request("GET", "kernels")] == [
        "busy"
    ]

    notebook.restart()
    wait_size(page, 1)
    expect(running).to_have_count(0)
    expect(page.locator("#spmd-ranks section")).to_have_count(0)
    notebook.run(0)
    wait_size(page, 2)
    notebook.run(1)
    notebook.run(2, wait=False)
    expect(running).to_have_count(2)
    os.kill(front(notebook), signal.SIGKILL)
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("appears to have died")
    dialog.get_by_role("button", name="Ok").click()
    wait_size(page, 1)
    expect(running).to_have_count(0)
    notebook.run(0)
    wait_size(page, 2)
    expect(page.locator("#spmd-ranks")).to_contain_text("2 ranks, idle")
    notebook.shot("after-the-kernel-died")


def front(notebook: Notebook) -> int:
    """The kernel process itself: the server's child."""
    pids = descendants(notebook.lab.process.pid)
    found = [pid for pid in pids if b"spmd_kernel\0-f" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return min(found)


def test_views_beside_collapsed_and_of_other_kernels(open_notebook: OpenNotebook) -> None:
    first = "%processes 2\n" + HELLO  # begun by one rank
    notebook = open_notebook(first, "print('1 │ x')")
    notebook.run(0)
    expect(tabs(notebook, 0)).to_have_text(["All", "0", "1"])
    notebook.command("notebook:toggle-render-side-by-side-current")
    code = box(notebook.cell(0).locator(".jp-Cell-inputWrapper"))
    row = box(notebook.cell(0).get_by_role("tablist"))
    assert row["x"] > code["x"] + code["width"]  # over the outputs, not below the code
    assert box(notebook.outputs(0).last)["y"] >= row["y"] + row["height"]
    notebook.shot("side-by-side")
    notebook.command("notebook:toggle-render-side-by-side-current")
    notebook.activate(0)
    notebook.command("notebook:hide-cell-outputs")
    expect(notebook.cell(0).get_by_role("tablist")).to_be_hidden()
    notebook.command("notebook:show-cell-outputs")
    choose(notebook, 0, "1")
    assert shown(notebook, 0)[-1] == "hello 1"

    notebook.change_kernel("python3")
    expect(notebook.page.locator(".spmd-Tabs")).to_have_count(0)
    assert sorted(notebook.lines(0))[:2] == ["0 │ hello 0", "1 │ hello 1"]
    sent = notebook.record_sent()
    notebook.run(1)
    assert notebook.lines(1) == ["1 │ x"]
    assert not [kind for kind in sent() if kind.startswith(("comm_open", "spmd"))]

    notebook.change_kernel("spmd-python3")
    wait_size(notebook.page, 1)
    expect(tabs(notebook, 0)).to_have_text(["All", "0", "1"])
    assert shown(notebook, 0)[-1] == "hello 1"
    notebook.run(1)
    expect(notebook.cell(1).get_by_role("tablist")).to_be_hidden()
    notebook.wait_text(1, "1 │ x")  # the page hears of the size a moment later
    assert notebook.lines(1) == ["1 │ x"]  # one rank has no labels: that is what the program said


def test_one_rank_prints_what_reads_like_labels(open_notebook: OpenNotebook) -> None:
    plain = "for rank in range(2): print(rank, '│ x')"
    notebook = open_notebook(plain, plain + "\nrank", "print('x')", "%processes 2", HELLO)
    notebook.run_all()
    wait_size(notebook.page, 2)
    expect(tabs(notebook, 4)).to_have_text(["All", "0", "1"])
    expect(notebook.page.locator(".spmd-Tabs:visible")).to_have_count(1)
    notebook.command("docmanager:save")
    saved = nbformat.read(notebook.path, as_version=4)
    marks = [cell.metadata.get("spmd") for cell in saved.cells]
    assert marks == [{"size": 1, "execution_count": 1}, None, None, None, None]

    def only_the_last_has_tabs() -> None:
        expect(tabs(notebook, 4)).to_have_text(["All", "0", "1"])
        choose(notebook, 4, "1")
        assert shown(notebook, 4) == ["hello 1"]
        expect(notebook.page.locator(".spmd-Tabs:visible")).to_have_count(1)
        assert shown(notebook, 0) == ["0 │ x", "1 │ x"]  # whichever rank is chosen
        assert shown(notebook, 1) == ["0 │ x", "1 │ x", "1"]

    notebook.page.goto("about:blank")
    del saved.cells[0].metadata["spmd"]  # the kernel remembers how many ranks there were
    nbformat.write(saved, notebook.path)
    notebook.open()
    notebook.wait_status()
    expect(notebook.cell(0).locator(".spmd-Tabs")).to_be_hidden()
    only_the_last_has_tabs()
    notebook.command("docmanager:save")
    saved = nbformat.read(notebook.path, as_version=4)
    assert saved.cells[0].metadata["spmd"] == marks[0]

    notebook.page.goto("about:blank")
    notebook.lab.stop_kernels()
    saved.metadata.kernelspec.name = "spmd-elsewhere"
    nbformat.write(saved, notebook.path)
    notebook.open_without_kernel()  # all that is known is in the notebook
    only_the_last_has_tabs()
    notebook.shot("one-rank-reads-like-labels")


def box(found: Locator) -> dict[str, float]:
    place = found.bounding_box()
    assert place is not None
    return dict(place)
