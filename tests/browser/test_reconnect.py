"""A page that is closed while a cell runs, and opened again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Locator, expect

from .lab import DEADLINE, Notebook
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


ASK = """\
name = input("Your name? ")
print(f"Hello {name}")
import getpass
word = getpass.getpass("Word? ")
print(f"{len(word)} letters")
"""


def test_a_question_is_asked_again(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", ASK)
    notebook.run(0)
    notebook.command("docmanager:save")
    notebook.show_ranks()
    notebook.run(1, wait=False)
    box = notebook.cell(1).locator("input.jp-Stdin-input")
    box.wait_for()
    panel = notebook.page.locator("#spmd-ranks")
    expect(panel).to_contain_text("ranks 0-1 wait for your answer: Your name?")
    notebook.page.goto("about:blank")

    notebook.open()
    expect(notebook.page.locator(".jp-InputPrompt").nth(1)).to_have_text("[*]:")
    box.fill("Ada")
    notebook.shot("asked-again", 1)
    box.press("Enter")
    notebook.wait_text(1, "Hello Ada")
    secret = notebook.cell(1).locator("input.jp-Stdin-input[type=password]")
    secret.wait_for()
    notebook.lab.request("POST", f"kernels/{notebook.kernel_id()}/interrupt")
    expect(box).to_have_count(0)  # nobody asks any more
    notebook.wait_text(1, "KeyboardInterrupt")
    notebook.wait_done(1)
    assert said(notebook.lines(1))[1][:2] == ["Your name?  Ada", "Hello Ada"]


def box(notebook: Notebook) -> Locator:
    return notebook.cell(1).locator("input.jp-Stdin-input")


def test_a_question_that_is_answered_or_withdrawn_elsewhere_goes(
    open_notebook: OpenNotebook, browser: Browser
) -> None:
    notebook = open_notebook("%processes 2", ASK)
    notebook.run(0)
    notebook.command("docmanager:save")
    notebook.run(1, wait=False)
    box(notebook).wait_for()
    with browser.new_context() as context:
        context.set_default_timeout(1000 * DEADLINE)
        other = Notebook(context.new_page(), notebook.lab, notebook.path, "notebook")
        other.open()
        box(other).fill("Ada")
        box(other).press("Enter")
        for page in (notebook, other):
            page.wait_text(1, "Hello Ada")
            expect(box(page)).to_have_count(1)
            expect(box(page)).to_have_attribute("type", "password")  # the next question alone
        box(notebook).fill("secret")
        box(notebook).press("Enter")
        for page in (notebook, other):
            page.wait_text(1, "6 letters")
            expect(box(page)).to_have_count(0)

    notebook.run(1, wait=False)  # no box stands in its way
    box(notebook).wait_for()
    notebook.lab.request("POST", f"kernels/{notebook.kernel_id()}/interrupt")
    notebook.wait_text(1, "KeyboardInterrupt")
    notebook.wait_done(1)
    expect(box(notebook)).to_have_count(0)
    notebook.run(1, wait=False)
    box(notebook).fill("Bob")
    box(notebook).press("Enter")
    notebook.wait_text(1, "Hello Bob")
    notebook.command("notebook:interrupt-kernel")
    expect(box(notebook)).to_have_count(0)


LIVE_WIDGETS = """\
import ipywidgets
from IPython.display import display
bar = ipywidgets.IntProgress(max=3, description=f"rank {rank}")
text = ipywidgets.Label("step 0")
display(ipywidgets.HBox([bar, text]))
for step in range(1, 4):
    gate(f"step-{step}")
    bar.value = step
    text.value = f"step {step}"
"""


def test_widgets_of_a_cell_that_runs_come_back_and_go_on(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", PRELUDE + MEET + GATE, LIVE_WIDGETS)
    for step in range(1, 4):
        (notebook.lab.work / f"step-{step}").unlink(missing_ok=True)
    notebook.run(0)
    notebook.run(1)
    notebook.command("docmanager:save")
    notebook.run(2, wait=False)
    labels = notebook.cell(2).locator(".jupyter-widgets.widget-label", has_text="step")
    expect(labels).to_have_text(["step 0"] * 2)
    notebook.page.goto("about:blank")
    (notebook.lab.work / "step-1").touch()
    notebook.open()
    expect(labels).to_have_text(["step 1"] * 2)  # while the cell runs
    expect(notebook.cell(2).locator(".progress-bar:visible")).to_have_count(2)
    notebook.shot("widgets-restored", 2)
    for step in (2, 3):
        (notebook.lab.work / f"step-{step}").touch()
        expect(labels).to_have_text([f"step {step}"] * 2)
    notebook.wait_done(2)
