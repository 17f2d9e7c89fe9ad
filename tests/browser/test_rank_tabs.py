"""Tabs over a cell's outputs: what each rank said, in JupyterLab and in Notebook 7."""

from __future__ import annotations

import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from .lab import Lab, Notebook
from .test_lab import BARS, FIGURE, GATE, MEET, PRELUDE, TABLE
from .test_processes_field import wait_size

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
    return [
        line for text in outputs.all_inner_texts() for line in text.splitlines() if line.strip()
    ]


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
    notebook.page_shot(f"rank-tabs-{front_end}", 3, 860)

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


STREAM = """\
print(f"start {rank}", flush=True)
if rank != 2: gate("go")
if rank == 1: raise ValueError("not this one")
if rank == 3:
    gate("die")
    os.kill(os.getpid(), 9)
"""


def test_running_failed_and_dead_ranks(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 4", PRELUDE + MEET + GATE, STREAM)
    notebook.run(0)
    notebook.run(1)
    notebook.run(2, wait=False)
    running = notebook.cell(2).locator(".spmd-mod-running")
    expect(running).to_have_text(["0", "1", "3"])
    choose(notebook, 2, "0")  # while the cell runs
    assert shown(notebook, 2) == ["start 0"]
    notebook.shot("tabs-running", 2)
    (notebook.lab.work / "go").touch()
    expect(notebook.cell(2).locator(".spmd-mod-failed")).to_have_text("1")
    expect(running).to_have_text(["3"])
    (notebook.lab.work / "die").touch()
    notebook.wait_done(2)
    expect(running).to_have_count(0)
    expect(notebook.cell(2).locator(".spmd-mod-dead")).to_have_text("3")
    choose(notebook, 2, "3")
    assert [line for line in shown(notebook, 2) if "RankLost" in line]
    choose(notebook, 2, "All")
    notebook.shot("tabs-failed-and-dead", 2)


CONTRAST = """\
node => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
        layers.unshift(getComputedStyle(at).backgroundColor);
    }
    const luminance = colours => {
        colours.forEach(colour => { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); });
        const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map(byte =>
            byte / 255 <= 0.04045 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const back = luminance(["white", ...layers]);
    const front = luminance([getComputedStyle(node).color]);
    return (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
}"""


def contrast(node: Locator) -> float:
    """Between text and what is behind it, as WCAG has it."""
    return float(node.evaluate(CONTRAST))


def test_keys_and_roles(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 3", PRELUDE + "print(rank)")
    notebook.run_all()
    choose(notebook, 1, "All")
    press = notebook.page.keyboard.press
    for key, title in [
        ("ArrowRight", "0"),
        ("ArrowRight", "1"),
        ("End", "2"),
        ("ArrowRight", "All"),
        ("ArrowLeft", "2"),
        ("Home", "All"),
    ]:
        press(key)
        focused = notebook.page.locator(".spmd-Tab:focus")
        expect(focused).to_have_text(title)
        expect(focused).to_have_attribute("aria-selected", "true")
        assert shown(notebook, 1) == ([title] if title != "All" else notebook.lines(1))
    for dark in (True, False):
        notebook.dark(dark)
        for tab in tabs(notebook, 1).all():
            assert contrast(tab) >= 4.5  # WCAG 2.2, 1.4.3
    row = notebook.cell(1).get_by_role("tablist")
    assert row.locator("[tabindex='0']").count() == 1
    area = row.get_by_role("tab").first.get_attribute("aria-controls")
    assert notebook.cell(1).locator(f"#{area}").count() == 1


def test_ranks_with_equal_output_are_one_tab(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(
        "%processes 9", PRELUDE + "print('odd' if rank == 8 else 'even')", "print(rank)\nrank"
    )
    notebook.run_all()
    expect(tabs(notebook, 1)).to_have_text(["All", "0-7", "8"])
    expect(tabs(notebook, 2)).to_have_text(["All", *map(str, range(9))])
    choose(notebook, 1, "8")
    assert shown(notebook, 1) == ["odd"]
    assert shown(notebook, 2) == ["8", "8"]
    choose(notebook, 1, "0-7")
    assert shown(notebook, 1) == ["even"]
    assert shown(notebook, 2) == ["0", "0"]
    notebook.shot("tabs-groups")


def saved(size: int, cells: int) -> nbformat.NotebookNode:
    """What a kernel of ours that is not installed here left behind, long ago."""
    made = []
    for number in range(cells):
        cell = nbformat.v4.new_code_cell(f"step({number})", execution_count=number + 1)
        text = "".join(f"{rank:2d} │ step {number} of {rank}\n" for rank in range(size))
        picture = {"text/html": f"<b>picture {number}</b>", "text/plain": "<HTML>"}
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
        for rank in (0, size - 1):
            spmd = {"spmd": {"ranks": [rank]}}
            caption = {"text/plain": f"{rank} │"}
            cell.outputs += [
                nbformat.v4.new_output(
                    "display_data", caption, metadata={"spmd": spmd["spmd"] | {"role": "caption"}}
                ),
                nbformat.v4.new_output("display_data", picture, metadata=spmd),
            ]
        made.append(cell)
    notebook = nbformat.v4.new_notebook(cells=made)
    notebook.metadata.kernelspec = {
        "name": "spmd-elsewhere",
        "display_name": "Distributed (elsewhere)",
        "language": "python",
    }
    return notebook


def test_a_saved_notebook_of_64_ranks_without_a_kernel(lab: Lab, page: Page) -> None:
    path = lab.work / "saved-64.ipynb"
    nbformat.write(saved(64, 200), path)
    notebook = Notebook(page, lab, path)
    notebook.open_without_kernel()
    expect(tabs(notebook, 0)).to_have_text(["All", *map(str, range(15))])
    more = notebook.cell(0).locator(".spmd-Tabs-more")
    expect(more).to_have_text("… 49 more")
    more.click()
    notebook.shot("tabs-64-menu")
    page.locator(".lm-Menu-item", has_text=re.compile("rank 63$")).click()
    expect(tabs(notebook, 0).last).to_have_text("63")
    assert shown(notebook, 0) == ["step 0 of 63", "picture 0"]
    notebook.shot("tabs-64")
    chosen = notebook.cell(0).locator(".spmd-Tab[aria-selected=true]")
    chosen.focus()
    for key, title in [("ArrowLeft", "62"), ("Home", "All"), ("ArrowLeft", "63")]:
        page.keyboard.press(key)
        expect(chosen).to_have_text(title)
        expect(chosen).to_be_focused()
    notebook.page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.scrollToItem(150, 'start')"
    )
    expect(notebook.by_prompt(151).locator(".spmd-Tab[aria-selected=true]")).to_have_text("63")
    outputs = notebook.by_prompt(151).locator(".jp-OutputArea-output:visible")
    expect(outputs).to_have_text(["step 150 of 63\n", "picture 150"])


def test_widgets_and_live_lines_of_one_rank(open_notebook: OpenNotebook) -> None:
    slider = "import ipywidgets\nslider = ipywidgets.IntSlider(description=f'rank {rank}')\nslider"
    notebook = open_notebook("%processes 4", PRELUDE + MEET + GATE, slider, BARS, "slider.value")
    for index in range(3):
        notebook.run(index)
    expect(notebook.cell(2).get_by_role("slider")).to_have_count(4)
    choose(notebook, 2, "2")
    handle = notebook.cell(2).locator(".widget-slider:visible [role=slider]")
    expect(handle).to_have_count(1)
    handle.press("ArrowRight")
    notebook.run(3, wait=False)
    for step in (100, 200):
        bar = notebook.cell(3).locator(".jp-OutputArea-output:visible")
        expect(bar).to_have_text(re.compile(rf"^train: .* {step}/300 .*\s*$"))
        notebook.shot(f"tabs-live-{step}", 3)
        (notebook.lab.work / f"go-{step}").touch()
    notebook.wait_done(3)
    choose(notebook, 2, "All")
    notebook.run(4)
    assert notebook.lines(4) == ["0-1,3 │ 0", "2 │ 1"]


WRAPPED = """
    const area = app.shell.currentWidget.content.widgets[0].outputArea;
    const drawn = area.widgets.flatMap(item => item.widgets);
    return drawn.some(widget => Object.hasOwn(widget, 'renderModel'));"""


def test_plain_kernels_are_left_alone(open_notebook: OpenNotebook, page: Page) -> None:
    sent: list[str] = []

    def note(frame: str | bytes) -> None:
        text = frame if isinstance(frame, str) else frame.decode("utf-8", "replace")
        sent.extend(re.findall(r'"(?:msg_type|target_name)": ?"([^"]+)"', text))

    page.on("websocket", lambda socket: socket.on("framesent", note))
    notebook = open_notebook("print('1 │ x')", "2 + 2", kernel="python3")
    notebook.run_all()
    assert notebook.lines(0) == ["1 │ x"]
    assert notebook.lines(1) == ["4"]
    expect(page.locator(".spmd-Tabs")).to_have_count(0)
    assert notebook.ask(WRAPPED) is False
    assert "execute_request" in sent
    assert not [name for name in sent if name.startswith("spmd")]

    notebook.change_kernel("spmd-python3")
    wait_size(page, 1)
    assert "spmd.status" in sent and "spmd_request" in sent
    notebook.run(0)
    assert notebook.ask(WRAPPED) is True
