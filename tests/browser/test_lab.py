"""What a person sees in a stock JupyterLab: no extension of ours, a real browser, real ranks."""

from __future__ import annotations

import re
from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from .lab import ROOT, Notebook

pytestmark = [
    pytest.mark.browser,
    # Waits end by themselves, long before this. A signal cannot stop playwright's loop in good order.
    pytest.mark.timeout(170, method="thread"),
]

STOCK = True

OpenNotebook = Callable[..., Notebook]
LABEL = re.compile(r" *(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*) │ ")
LABELLED = [f"{rank} │ hello from {rank}" for rank in range(4)]

PRELUDE = """\
import os
rank = int(os.environ["RANK"])
"""
MEET = """\
from pathlib import Path
from time import sleep
def meet(name):  # go on when all four are here: a busy machine must not decide what is equal in time
    Path(f"{name}-{rank}").touch()
    while len(list(Path().glob(f"{name}-?"))) < 4:
        sleep(0.01)
"""
FIGURE = """\
import matplotlib.pyplot as plt
fig, ax = plt.subplots(figsize=(2.2, 1.4))
ax.plot([0, 1, 2], [0, rank, 1])
ax.set_title(f"rank {rank}", fontsize=9)
plt.show()
"""
TABLE = """\
from IPython.display import HTML
HTML(f"<table><tr><th>rank</th><th>square</th></tr><tr><td>{rank}</td><td>{rank**2}</td></tr></table>")
"""
GATE = """\
def gate(name):  # stand still here until somebody makes the file
    while not Path(name).exists():
        sleep(0.05)
"""
BARS = """\
from tqdm import tqdm
for step in tqdm(range(300), desc="train", mininterval=0):
    if step in (100, 200):
        gate(f"go-{step}")
meet("end")
"""


def said(lines: list[str]) -> dict[int, list[str]]:
    """What each of four ranks said, read as docs/outputs.md has it: no label means every rank."""
    found: dict[int, list[str]] = {rank: [] for rank in range(4)}
    for line in lines:
        match = LABEL.match(line)
        for rank in expand(match[1]) if match else found:
            found[rank].append(line[match.end() :] if match else line)
    return found


def expand(ranks: str) -> list[int]:
    """``0-2,5`` -> 0, 1, 2, 5"""
    bounds = [[int(end) for end in part.split("-")] for part in ranks.split(",")]
    return [rank for bound in bounds for rank in range(bound[0], bound[-1] + 1)]


def test_outputs_and_the_saved_notebook(open_notebook: OpenNotebook) -> None:
    cells = [
        "%processes 4",
        PRELUDE + MEET,
        "meet('a')\nprint('the same everywhere')\nprint(f'hello from {rank}')\nmeet('b')",
        "rank % 2",
        FIGURE,
        TABLE,
        "print(f'rank {rank} works')\n[1.0, 2.0, 4.0][rank]",
        "print('go on')\nsum(range(4))",
    ]
    notebook = open_notebook(*cells, tags={6: "raises-exception"})
    assert notebook.button("Distributed (Python 3)").is_visible()
    notebook.run_all()

    def check() -> None:
        assert notebook.text(0).startswith("4 ranks ready in ")
        assert notebook.lines(1) == []
        assert notebook.lines(2) == ["the same everywhere", *LABELLED]
        assert notebook.lines(3) == ["0,2 │ 0", "1,3 │ 1"]
        check_figures(notebook, 4)
        check_tables(notebook, 5)
        check_error(notebook, 6)
        assert said(notebook.lines(7)) == {rank: ["go on", "6"] for rank in range(4)}

    check()
    notebook.long_shot("outputs", 2600)
    notebook.command("docmanager:save")

    notebook.lab.stop_kernels()
    notebook.page.goto("about:blank")
    notebook.open()
    check()
    saved = nbformat.read(notebook.path, as_version=4)
    kinds = [[output.output_type for output in cell.outputs] for cell in saved.cells]
    assert kinds[3] == ["execute_result"] * 2
    assert kinds[4] == ["display_data"] * 8  # four captions, four figures


def test_quickstart(open_notebook: OpenNotebook) -> None:
    """The example that README names first."""
    notebook = open_notebook(example=ROOT / "examples" / "quickstart.ipynb")
    notebook.run_all()
    ids = [cell.id for cell in nbformat.read(notebook.path, as_version=4).cells]
    notebook.long_shot("quickstart", 4400)
    assert sorted(notebook.lines(ids.index("hello"))) == [
        f"{rank} │ hello, I am rank {rank} of 4" for rank in range(4)
    ]
    fold = said(notebook.lines(ids.index("fold")))
    assert fold == {rank: ["this line is the same everywhere", "6"] for rank in range(4)}
    assert len(notebook.lines(ids.index("one"))) == 1
    check_figures(notebook, ids.index("figure"))
    assert notebook.cell(ids.index("table")).locator("table").count() == 4
    assert "ZeroDivisionError: float division by zero" in notebook.lines(ids.index("error"))
    after = said(notebook.lines(ids.index("after")))
    assert after == {rank: ["still here, with 2000 points"] for rank in range(4)}


def check_figures(notebook: Notebook, index: int) -> None:
    """Four pictures, each under the label of its rank, in one order."""
    sizes = notebook.image_sizes(index)
    assert len(sizes) == 4
    assert all(width > 100 and height > 50 for width, height in sizes)
    outputs = notebook.outputs(index)
    shown = [
        "figure" if output.locator("img").count() else output.inner_text().strip()
        for output in outputs.all()
    ]
    captions = shown[::2]
    assert shown[1::2] == ["figure"] * 4
    assert sorted(captions) == [f"{rank} │" for rank in range(4)]


def check_tables(notebook: Notebook, index: int) -> None:
    tables = notebook.cell(index).locator("table")
    assert tables.count() == 4
    for rank, table in enumerate(tables.all()):
        assert table.locator("td").all_inner_texts() == [str(rank), str(rank**2)]
        assert table.is_visible()
    captions = [text.strip() for text in notebook.outputs(index).all_inner_texts()[::2]]
    assert captions == [f"{rank} │" for rank in range(4)]


def check_error(notebook: Notebook, index: int) -> None:
    lines = notebook.lines(index)
    assert [f"{rank} │ rank {rank} works" in lines for rank in range(4)] == [True] * 4
    assert any(line.startswith("3 │ -----") for line in lines)
    assert lines.count("IndexError: list index out of range") == 1
    assert lines[-3:] == ["0 │ 1.0", "1 │ 2.0", "2 │ 4.0"]


def test_progress_bars_stay_in_place(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 4", PRELUDE + MEET + GATE, BARS)
    notebook.run(0)
    notebook.run(1)
    notebook.run(2, wait=False)
    for step in (100, 200):
        rows = (rf"{rank} │ train: .* {step}/300" for rank in range(4))
        notebook.wait_text(2, r"[\s\S]*".join(rows))
        assert [line[:9] for line in notebook.lines(2)] == [f"{r} │ train" for r in range(4)]
        expect(notebook.outputs(2)).to_have_count(1)
        notebook.shot(f"bars-at-{step}", 2)
        (notebook.lab.work / f"go-{step}").touch()
    notebook.wait_done(2)
    (line,) = notebook.lines(2)
    assert line.startswith("train: 100%") and "300/300" in line
    notebook.shot("bars-done", 2)


def test_interrupt_restart_and_run_again(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(
        "%processes 2",
        "import time\nprint('asleep')\ntime.sleep(600)",
        PRELUDE + "print(f'hello from {rank}')",
    )
    notebook.run(0)
    notebook.run(1, wait=False)
    notebook.wait_text(1, "asleep")
    notebook.button("Interrupt the kernel").click()
    notebook.wait_text(1, "KeyboardInterrupt")
    notebook.wait_done(1)
    notebook.shot("interrupt", 1)
    notebook.run(2)
    assert sorted(notebook.lines(2)) == LABELLED[:2]

    notebook.restart()
    notebook.run(0)
    notebook.run(2)
    assert notebook.text(0).startswith("2 ranks ready in ")
    assert sorted(notebook.lines(2)) == LABELLED[:2]
    notebook.shot("restarted")


def test_input_is_answered_once_for_all(open_notebook: OpenNotebook) -> None:
    code = PRELUDE + "name = input('Your name? ')\nprint(f'rank {rank} greets {name}')"
    notebook = open_notebook("%processes 4", code)
    notebook.run(0)
    notebook.run(1, wait=False)
    box = notebook.cell(1).locator("input.jp-Stdin-input")
    expect(box).to_have_count(1)
    notebook.shot("input-asked", 1)
    box.fill("Ada")
    box.press("Enter")
    notebook.wait_done(1)
    expect(box).to_have_count(0)
    lines = notebook.lines(1)
    assert [line for line in lines if "Your name?" in line] == ["Your name?  Ada"]
    assert sorted(lines[1:]) == [f"{rank} │ rank {rank} greets Ada" for rank in range(4)]
    notebook.shot("input-answered", 1)


def until(holds: Callable[[], None], attempts: int) -> None:
    """Assert again what a busy page may not have noticed."""
    for left in reversed(range(attempts)):
        try:
            holds()
            return
        except AssertionError:
            if not left:
                raise


def test_completion_offers_our_magics(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", "%proc")
    notebook.run(0)
    notebook.cell(1).locator(".cm-content").click()
    offered = notebook.page.locator(".jp-Completer .jp-Completer-match")

    def ask() -> None:
        """Lab gives a completer one second, and takes no Tab while it loads."""
        notebook.page.keyboard.press("Escape")
        notebook.page.keyboard.press("Enter")
        notebook.page.keyboard.press("End")
        notebook.page.keyboard.press("Tab")
        expect(offered).to_have_text(["%processes"], timeout=4000)

    until(ask, attempts=8)
    notebook.shot("completion")
    offered.click()
    expect(notebook.cell(1).locator(".cm-content")).to_have_text("%processes")


def test_a_slider_on_each_rank(open_notebook: OpenNotebook) -> None:
    slider = (
        PRELUDE
        + "import ipywidgets\nslider = ipywidgets.IntSlider(description=f'rank {rank}')\nslider"
    )
    notebook = open_notebook("%processes 2", slider, "print(slider.value)")
    notebook.run(0)
    notebook.run(1)
    handles = notebook.cell(1).get_by_role("slider")
    readouts = notebook.cell(1).locator(".widget-readout")
    expect(handles).to_have_count(2)
    names = [name for name in notebook.lines(1) if name.startswith("rank")]
    places = {rank: names.index(f"rank {rank}") for rank in range(2)}
    for _ in range(3):
        handles.nth(places[1]).press("ArrowRight")
    expect(readouts.nth(places[1])).to_have_text("3")
    notebook.shot("sliders", 1)
    notebook.run(2)
    assert sorted(notebook.lines(2)) == ["0 │ 0", "1 │ 3"]

    notebook.command("docmanager:save")
    notebook.page.goto("about:blank")
    notebook.open()  # the page asks the kernel for the states of all widgets
    expect(readouts.nth(places[1])).to_have_text("3")
    expect(readouts.nth(places[0])).to_have_text("0")
    for rank in range(2):
        handles.nth(places[rank]).press("ArrowRight")
    expect(readouts.nth(places[1])).to_have_text("4")
    expect(readouts.nth(places[0])).to_have_text("1")
    notebook.run(2)
    assert sorted(notebook.lines(2)) == ["0 │ 1", "1 │ 4"]


OUTPUTS = """\
import ipywidgets
from IPython.display import display
out = ipywidgets.Output()
display(out)
meet("in")
with out:
    print(f"captured on {rank}")
    meet("out")
    print(f"and more on {rank}")
print("after it")
"""
INTERACT = """\
@ipywidgets.interact(x=ipywidgets.IntSlider(rank))
def shown(x):
    print(f"{x} on rank {rank}")
"""


def test_output_widgets_take_what_their_own_rank_says(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 4", PRELUDE + MEET, OUTPUTS, INTERACT)
    for index in range(4):
        notebook.run(index)
    areas = notebook.cell(2).locator(".widget-output")
    expect(areas).to_have_count(4)
    shown = sorted(text.split() for text in areas.all_inner_texts())
    assert shown == [f"captured on {r} and more on {r}".split() for r in range(4)]
    notebook.shot("output-widgets", 2)

    taken = notebook.cell(3).locator(".widget-output")
    expect(taken).to_have_count(4)
    ranks = [int(text.split()[-1]) for text in taken.all_inner_texts()]
    assert sorted(ranks) == [0, 1, 2, 3]
    place = ranks.index(2)
    notebook.cell(3).get_by_role("slider").nth(place).press("ArrowRight")
    wanted = [f"{rank + (rank == 2)} on rank {rank}" for rank in ranks]
    expect(taken).to_have_text([re.compile(text) for text in wanted])
    notebook.shot("interact", 3)


COUNTER = """\
import anywidget, traitlets
class Counter(anywidget.AnyWidget):
    _esm = '''
    export default { render({ model, el }) {
        const button = el.appendChild(document.createElement("button"));
        const show = () => { button.textContent = `clicked ${model.get("count")} times`; };
        button.onclick = () => { model.set("count", model.get("count") + 1); model.save_changes(); };
        model.on("change:count", show);
        show();
    } }
    '''
    count = traitlets.Int(0).tag(sync=True)
counter = Counter(count=10 * rank)
counter
"""
LINKED = """\
import ipywidgets
from time import sleep
from tqdm.notebook import tqdm
slider, text = ipywidgets.IntSlider(), ipywidgets.IntText()
link = ipywidgets.jslink((slider, "value"), (text, "value"))
ipywidgets.HBox([slider, text])
"""
BAR = """\
for _ in tqdm(range(20 + rank), desc="train"):
    sleep(0.02)
"""


def test_anywidget_jslink_and_bars(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 4", PRELUDE + COUNTER, LINKED, BAR, "counter.count")
    for index in range(4):
        notebook.run(index)

    def button(count: int) -> Locator:
        return notebook.cell(1).get_by_role("button", name=f"clicked {count} times", exact=True)

    for rank in range(4):
        expect(button(10 * rank)).to_be_visible()
    button(20).click()
    button(21).click()
    expect(button(22)).to_be_visible()

    notebook.cell(2).get_by_role("slider").nth(1).press("ArrowRight")
    boxes = notebook.cell(2).get_by_role("spinbutton")
    expect(boxes.nth(1)).to_have_value("1")
    expect(boxes.nth(0)).to_have_value("0")

    for rank in range(4):
        done = f"{20 + rank}/{20 + rank}"
        expect(notebook.cell(3).get_by_text(re.compile(done))).to_have_count(1)
    notebook.shot("widgets", 3)
    notebook.run(4)
    assert notebook.lines(4) == ["0 │ 0", "1 │ 10", "2 │ 22", "3 │ 30"]  # results are in order
