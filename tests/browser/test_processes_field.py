"""The Processes field in a notebook's toolbar: how many ranks there are, and how to have others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from .lab import DEADLINE, Notebook
from .test_lab import PRELUDE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(170, method="thread"),
]

OpenNotebook = Callable[..., Notebook]
SECOND = 1000.0


def field(page: Page) -> Locator:
    return page.get_by_label("Processes", exact=True)


def wait_size(page: Page, size: int) -> None:
    """Until there are so many; what was typed is there before."""
    expect(field(page)).to_have_attribute("aria-busy", "false", timeout=DEADLINE * SECOND)
    expect(field(page)).to_have_value(f"{size}", timeout=DEADLINE * SECOND)


def ask(page: Page, text: str) -> None:
    field(page).fill(text)
    field(page).press("Enter")


def accept(page: Page, button: str, *, keep: bool = False) -> None:
    dialog = page.locator(".jp-Dialog")
    if keep:
        dialog.get_by_role("checkbox").check()
    dialog.get_by_role("button", name=button).click()
    dialog.wait_for(state="hidden")


@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_sets_how_many_ranks_there_are(open_notebook: OpenNotebook, front_end: str) -> None:
    notebook = open_notebook(PRELUDE + "x = rank", "print(x)", front_end=front_end)
    page = notebook.page
    wait_size(page, 1)
    ask(page, "3")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Go on with 3 processes?")
    expect(dialog).to_contain_text("Memory of the rank is cleared")
    notebook.page_shot(f"processes-field-{front_end}", 0)
    accept(page, "Start ranks")
    wait_size(page, 3)
    expect(page.get_by_text(re.compile("3 ranks ready in"))).to_be_visible()
    notebook.run_all()
    assert sorted(notebook.lines(1)) == ["0 │ 0", "1 │ 1", "2 │ 2"]

    ask(page, "2")
    expect(dialog).to_contain_text("Memory of all 3 ranks is cleared")
    dialog.get_by_role("checkbox").check()
    expect(dialog).to_contain_text("Variables of ranks 0-1 are kept; rank 2 ends")
    accept(page, "Start ranks", keep=True)
    wait_size(page, 2)
    notebook.run(1)
    assert sorted(notebook.lines(1)) == ["0 │ 0", "1 │ 1"]


def test_what_is_no_number_is_refused_in_place(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 2", "import time; time.sleep(600)")
    page = notebook.page
    wait_size(page, 1)
    for text in ("0", "four", "1.5", "100000"):
        ask(page, text)
        expect(field(page)).to_have_attribute("aria-invalid", "true")
        expect(page.locator(".spmd-Processes-problem")).not_to_be_empty()
    notebook.shot("processes-refused")
    field(page).press("Escape")
    expect(field(page)).to_have_value("1")
    expect(field(page)).to_have_attribute("aria-invalid", "false")
    expect(page.locator(".jp-Dialog")).to_have_count(0)

    notebook.run(0)
    wait_size(page, 2)  # what a magic does is seen, too
    notebook.run(1, wait=False)
    expect(notebook.cell(1).locator(".spmd-mod-running")).to_have_count(2)
    ask(page, "4")
    expect(page.locator(".spmd-Processes-problem")).to_contain_text("cell [2] is running")
    notebook.shot("processes-busy")
    notebook.command("notebook:interrupt-kernel")
    notebook.wait_done(1)
    notebook.restart()
    wait_size(page, 1)


def test_another_page_sees_it_at_once(open_notebook: OpenNotebook, browser: Browser) -> None:
    notebook = open_notebook("1")
    with browser.new_context() as context:
        context.set_default_timeout(SECOND * DEADLINE)
        other = Notebook(context.new_page(), notebook.lab, notebook.path, "notebook")
        other.open()
        wait_size(other.page, 1)
        wait_size(notebook.page, 1)
        ask(notebook.page, "2")
        accept(notebook.page, "Start ranks")
        wait_size(other.page, 2)


def test_a_plain_kernel_is_one_process_and_may_become_many(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(PRELUDE + "print(rank)", kernel="python3")
    page = notebook.page
    expect(field(page)).to_have_value("1")
    ask(page, "1")
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    ask(page, "2")
    expect(page.locator(".jp-Dialog")).to_contain_text("Switch to Distributed (Python 3)?")
    notebook.shot("processes-switch")
    accept(page, "Cancel")
    expect(field(page)).to_have_value("1")
    ask(page, "2")
    accept(page, "Switch kernel")
    wait_size(page, 2)
    expect(notebook.button("Distributed (Python 3)")).to_be_visible()
    notebook.run(0)
    assert sorted(notebook.lines(0)) == ["0 │ 0", "1 │ 1"]
    expect(notebook.cell(0).get_by_role("tab")).to_have_text(["All", "0", "1"])


@contextmanager
def shown_when(notebook: Notebook, when: str) -> Iterator[None]:
    """The setting, for pages that are loaded from now on."""
    notebook.setting("spmd-kernel:processes", "processesField", f'"{when}"')
    try:
        yield
    finally:
        notebook.setting("spmd-kernel:processes", "processesField", '"always"')


def test_a_setting_hides_it(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("1", kernel="python3")
    expect(field(notebook.page)).to_be_visible()
    with shown_when(notebook, "distributed"):
        notebook.page.goto("about:blank")
        notebook.open()
        expect(notebook.button("Python 3")).to_be_visible()
        expect(field(notebook.page)).to_be_hidden()


def test_a_setting_hides_it_with_every_kernel(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(
        "%processes 2", "import os\nprint('rank', os.environ.get('RANK', 'none'))"
    )
    page = notebook.page
    wait_size(page, 1)
    with shown_when(notebook, "never"):
        notebook.page.goto("about:blank")
        notebook.open()
        expect(notebook.button("Distributed (Python 3)")).to_be_visible()
        notebook.run_all()
        tabs = notebook.cell(1).get_by_role("tab")  # all else is there
        expect(tabs).to_have_text(["All", "0", "1"])
        expect(page.locator(".spmd-Processes")).to_have_count(1)
        expect(page.locator(".spmd-Processes")).to_be_hidden()
        assert page.locator(".spmd-Processes").bounding_box() is None  # it takes no room, either

        notebook.change_kernel("python3")
        sent = notebook.record_sent()
        expect(tabs).to_have_count(0)
        notebook.run(1)
        assert notebook.lines(1) == ["rank none"]
        assert not [kind for kind in sent() if kind.startswith(("comm_open", "spmd"))]
        expect(page.locator(".spmd-Processes")).to_be_hidden()
    page.goto("about:blank")
    notebook.open()
    expect(field(page)).to_be_visible()
