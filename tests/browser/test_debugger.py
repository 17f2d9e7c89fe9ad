"""JupyterLab's debugger over all ranks: the list of ranks, and what the panels show of the chosen one."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from functools import partial

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from .lab import DEADLINE, Notebook
from .test_lab import PRELUDE, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(170, method="thread"),
]

OpenNotebook = Callable[..., Notebook]
LONG = 1000 * DEADLINE

TRAIN = """\
def train(step):
    loss = 0.5 + rank
    step = step + 1
    return loss

train(6)
print("over")
"""


class Debugger:
    """The debugger's panels beside a notebook."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.page = notebook.page
        self.bar = self.page.locator("#jp-debugger-sidebar")
        self.ranks = self.bar.get_by_role("listbox", name="Rank to debug").get_by_role("option")
        self.frames = self.bar.locator(".jp-DebuggerCallstackFrame")
        self.button = self.page.locator(".jp-DebuggerBugButton").first

    def open(self) -> None:
        """Press the bug; returns when the debugger has started."""
        expect(self.button).to_have_attribute("title", "Enable Debugger", timeout=LONG)
        self.button.click()
        self.page.locator(".jp-NotebookPanel[data-jp-debugger=true]").wait_for()
        self.show()

    def show(self) -> None:
        if not self.bar.is_visible():
            self.notebook.command("debugger:show-panel")
        self.bar.wait_for()

    def variable(self, name: str) -> Locator:
        """A row of the tree of variables."""
        named = f'> .jp-DebuggerVariables-name:text-is("{name}")'
        return self.bar.locator(f".jp-TreeItem:has({named})")

    def value(self, name: str) -> Locator:
        return self.variable(name).locator("> .jp-DebuggerVariables-detail")

    def scope(self, name: str) -> None:
        self.bar.get_by_label("Scope", exact=True).select_option(name)

    def breakpoint(self, cell: int, line: int) -> None:
        """Click beside a line of a cell; returns when the point is there."""
        gutter = self.notebook.cell(cell).locator(".cm-breakpoint-gutter .cm-gutterElement")
        gutter.nth(line).click()
        expect(self.points).not_to_have_count(0)

    @property
    def points(self) -> Locator:
        return self.bar.locator(".jp-DebuggerBreakpoint")

    def do(self, name: str) -> None:
        """A button over the call stack: Continue, Next, Step In …"""
        self.bar.get_by_role("button", name=re.compile(f"^{name} ")).click()

    def pause_on(self, exceptions: str) -> None:
        command = (
            f"app.commands.execute('debugger:pause-on-exceptions', {{ filter: '{exceptions}' }})"
        )
        self.notebook._do(f"await {command}")

    def evaluate(self, *codes: str) -> Locator:
        """Type into the debug console; what it shows."""
        self.notebook.command("debugger:evaluate", wait=False)
        console = self.page.locator(".jp-CodeConsole")
        for code in codes:
            prompt = console.locator(".jp-CodeConsole-promptCell .cm-content")
            prompt.fill(code)
            prompt.press("Shift+Enter")
            expect(prompt).not_to_contain_text(code)  # the next prompt is there
        return console

    def asked(self) -> Callable[[], list[str]]:
        """From now on: the commands of all requests to the kernel's debugger."""
        self.notebook._do("""
            window.asked = [];
            app.shell.currentWidget.sessionContext.session.kernel.anyMessage.connect(
                (_, { msg }) => msg.header.msg_type === 'debug_request' && asked.push(msg.content.command));
        """)
        return lambda: self.notebook._do("return window.asked")

    def heard(self) -> Callable[[str], int]:
        """From now on: how many events of a kind have come."""
        self.notebook._do("""
            window.heard = [];
            app.shell.currentWidget.sessionContext.session.kernel.anyMessage.connect(
                (_, { msg }) => msg.header.msg_type === 'debug_event' && heard.push(msg.content.event));
        """)
        count = "return window.heard.filter(event => event === '{}').length"
        return lambda event: self.notebook._do(count.format(event))


def test_one_looks_at_the_rank_that_one_chooses(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 3", PRELUDE, TRAIN)
    page = notebook.page
    notebook.run(0)
    notebook.run(1)
    debugger = Debugger(notebook)
    debugger.open()
    expect(debugger.ranks).to_have_text(["rank 0idle", "rank 1idle", "rank 2idle"])
    debugger.breakpoint(2, 3)
    heard = debugger.heard()
    notebook.run(2, wait=False)
    expect(debugger.frames).to_have_count(2)
    expect(debugger.ranks).to_have_text([f"rank {rank}train:3" for rank in range(3)])

    debugger.ranks.nth(0).click()
    debugger.ranks.nth(0).press("ArrowDown")
    page.keyboard.press("Enter")
    expect(debugger.ranks.nth(1)).to_have_attribute("aria-selected", "true")
    expect(debugger.frames.first).to_contain_text("train [rank 1]")
    expect(debugger.value("loss")).to_have_text("1.5")
    console = debugger.evaluate("rank * 100 + step", "%all rank * 100 + step")
    expect(console.locator(".jp-OutputArea-output")).to_have_text(["106", "0: 6 | 1: 106 | 2: 206"])
    notebook.shot("debugger-console")
    page.locator(".lm-TabBar-tab", has_text="Console").locator(".lm-TabBar-tabCloseIcon").click()
    expect(debugger.frames.first).to_contain_text("train [rank 1]")

    debugger.scope("All ranks")
    expect(debugger.value("(where)")).to_have_text("train:3")
    expect(debugger.value("loss ≠")).to_have_text("0: 0.5 | 1: 1.5 | 2: 2.5")

    def expand() -> None:
        """Lab draws the rows anew a moment after the notebook has come to the front again."""
        debugger.variable("loss ≠").press("ArrowRight")
        expect(debugger.value("rank 2")).to_have_text("2.5", timeout=4000)

    until(expand, attempts=5)
    expect(debugger.value("step")).to_have_text("6")
    expect(debugger.frames.first).to_contain_text("Cell [*]:3")
    notebook.side_shot("debugger")

    for line, place in ((4, "train"), (7, "<module>")):
        before = heard("stopped")
        debugger.do("Next")
        expect(debugger.ranks).to_have_text([f"rank {rank}{place}:{line}" for rank in range(3)])
        expect(debugger.frames.first).to_contain_text(f"{place} [rank 1]")
        expect(debugger.ranks.nth(1)).to_have_attribute("aria-selected", "true")
        assert heard("stopped") == before + 1
    debugger.do("Continue")
    notebook.wait_done(2)
    assert notebook.lines(2) == ["over"]
    expect(debugger.ranks).to_have_text(["rank 0idle", "rank 1idle", "rank 2idle"])

    notebook.restart()
    page.wait_for_function("heard.includes('initialized')")
    expect(debugger.ranks).to_have_count(0)
    notebook.run(0)
    expect(debugger.ranks).to_have_text(["rank 0idle", "rank 1idle", "rank 2idle"], timeout=LONG)
    notebook.run(1)
    notebook.run(2, wait=False)
    expect(debugger.ranks).to_have_text([f"rank {rank}train:3" for rank in range(3)])
    debugger.ranks.nth(2).click()
    expect(debugger.frames.first).to_contain_text("train [rank 2]")
    notebook.command("docmanager:save")

    page.goto("about:blank")
    notebook.open()
    debugger.show()
    expect(debugger.frames.first).to_contain_text("train [rank 2]")
    expect(debugger.ranks.nth(2)).to_have_attribute("aria-selected", "true")
    expect(debugger.value("loss")).to_have_text("2.5")
    expect(debugger.points).to_have_count(1)
    notebook.shot("debugger-reloaded")
    debugger.do("Continue")
    notebook.wait_done(2)
    assert notebook.lines(2) == ["over"]


PIDS = PRELUDE + "print(os.getpid())"
ONE_FAILS = """\
from pathlib import Path
from time import sleep
if rank == 1:
    {"a": 1}["b"]
while not Path("enough").exists():
    sleep(0.01)
"""
STOP = """\
x = rank
breakpoint()
print(x)
"""


class Slow:
    """The way from the server to the page, on which the values of variables can be held up."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.holds = False
        self._held: list[Callable[[], None]] = []
        page.route_web_socket(re.compile("/channels"), self._connect)

    def wait_held(self, count: int) -> None:
        deadline = time.monotonic() + DEADLINE
        while len(self._held) < count:
            assert time.monotonic() < deadline
            self._page.wait_for_timeout(20)  # meanwhile messages pass

    def release(self) -> None:
        for send in self._held:
            send()
        self._held.clear()

    def _connect(self, to_page: WebSocketRoute) -> None:
        def pass_on(message: str | bytes) -> None:
            raw = message.encode() if isinstance(message, str) else message
            if self.holds and VALUES.search(raw):
                self._held.append(partial(to_page.send, message))
            else:
                to_page.send(message)

        to_page.connect_to_server().on_message(pass_on)


VALUES = re.compile(rb'"variables": ?\[')


def test_values_that_come_late_are_not_those_of_another_rank(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 3", PRELUDE, TRAIN)
    slow = Slow(notebook.page)
    notebook.open()  # by that way
    notebook.run(0)
    notebook.run(1)
    debugger = Debugger(notebook)
    debugger.open()
    debugger.breakpoint(2, 3)
    notebook.run(2, wait=False)
    expect(debugger.ranks).to_have_text([f"rank {rank}train:3" for rank in range(3)])
    debugger.ranks.nth(0).click()
    expect(debugger.value("loss")).to_have_text("0.5")

    slow.holds = True
    debugger.ranks.nth(1).click()
    expect(debugger.frames.first).to_contain_text("train [rank 1]")
    slow.wait_held(3)  # an answer for each scope
    slow.holds = False
    debugger.ranks.nth(2).click()
    expect(debugger.value("loss")).to_have_text("2.5")
    slow.release()
    for _ in range(2):  # the answer comes behind them, by the same way
        notebook.ask("""
            const { kernel } = app.shell.currentWidget.sessionContext.session;
            await kernel.requestDebug({ type: 'request', seq: 0, command: 'debugInfo' }).done""")
    assert debugger.value("loss").inner_text() == "2.5"
    expect(debugger.ranks.nth(2)).to_have_attribute("aria-selected", "true")
    debugger.do("Continue")
    notebook.wait_done(2)


def test_one_rank_fails_another_one_dies(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 3", PIDS, ONE_FAILS, STOP, "%processes 1")
    (notebook.lab.work / "enough").unlink(missing_ok=True)
    notebook.run(0)
    notebook.run(1)
    pids = [int(line.split()[-1]) for line in sorted(notebook.lines(1))]
    debugger = Debugger(notebook)
    debugger.open()
    debugger.pause_on("userUnhandled")
    notebook.run(2, wait=False)
    expect(debugger.ranks).to_have_text(
        ["rank 0running", "rank 1<module>:4 · exception", "rank 2running"]
    )
    expect(debugger.frames.first).to_contain_text("[rank 1]")
    notebook.shot("debugger-exception")
    notebook.dark()
    notebook.shot("debugger-exception-dark")
    notebook.dark(False)
    debugger.do("Terminate")  # all go on; then there is a debugger anew
    notebook.wait_text(2, "KeyError: 'b'")
    (notebook.lab.work / "enough").touch()
    notebook.wait_done(2)
    expect(debugger.ranks).to_have_text(["rank 0idle", "rank 1idle", "rank 2idle"])

    notebook.run(3, wait=False)
    expect(debugger.ranks.nth(1)).to_have_text("rank 1<module>:2")
    debugger.ranks.nth(1).click()
    expect(debugger.frames.first).to_contain_text("[rank 1]")
    os.kill(pids[1], signal.SIGKILL)
    expect(debugger.ranks.nth(1)).to_have_text("rank 1dead")
    expect(debugger.frames.first).to_contain_text(re.compile(r"\[rank [02]\]"))
    expect(debugger.value("x")).to_have_text(re.compile("^[02]$"))
    notebook.shot("debugger-dead")
    debugger.do("Continue")
    notebook.wait_done(3)
    notebook.run(4)
    expect(debugger.ranks).to_have_count(0)
    expect(debugger.button).to_have_attribute("aria-pressed", "true")


HELPER = """\
def helped(number):
    doubled = 2 * number
    return doubled
"""
CALL = """\
import helper
helper.helped(rank)
helper.helped(10 + rank)
"""


@pytest.mark.parametrize("front_end", ["lab", "notebook"])
def test_a_breakpoint_in_a_module(open_notebook: OpenNotebook, front_end: str) -> None:
    notebook = open_notebook("%processes 2", PRELUDE, CALL, front_end=front_end)
    (notebook.lab.work / "helper.py").write_text(HELPER)
    notebook.run(0)
    notebook.run(1)
    debugger = Debugger(notebook)
    debugger.open()
    debugger.breakpoint(2, 2)
    notebook.run(2, wait=False)
    expect(debugger.ranks).to_have_text(["rank 0<module>:2", "rank 1<module>:2"])
    debugger.ranks.nth(1).click()
    expect(debugger.frames.first).to_contain_text("<module> [rank 1]")
    debugger.do("Step In")
    expect(debugger.ranks).to_have_text(["rank 0helped:2", "rank 1helped:2"])
    expect(debugger.frames.first).to_contain_text("helped [rank 1]")
    expect(debugger.value("number")).to_have_text("1")
    notebook.shot(f"debugger-module-{front_end}")
    if front_end == "lab":  # the module is beside the notebook now
        module = notebook.page.locator(".jp-MainAreaWidget:not(.jp-NotebookPanel)")
        module.locator(".cm-breakpoint-gutter .cm-gutterElement").nth(3).click()
        expect(debugger.points).to_have_count(2)
        debugger.do("Continue")
        expect(debugger.ranks).to_have_text(["rank 0helped:3", "rank 1helped:3"])
        debugger.do("Continue")
        expect(debugger.value("number")).to_have_text("11")
        expect(debugger.ranks).to_have_text(["rank 0helped:3", "rank 1helped:3"])
    debugger.do("Continue")
    notebook.wait_done(2)


def test_without_a_debugger_all_else_is_there(open_notebook: OpenNotebook, page: Page) -> None:
    page.add_init_script("""document.addEventListener('readystatechange', () => {
        const node = document.getElementById('jupyter-config-data');
        if (document.readyState === 'interactive' && node) {
            const config = JSON.parse(node.textContent);
            config.disabledExtensions = ['@jupyterlab/debugger-extension'];
            node.textContent = JSON.stringify(config);
        }
    });""")
    notebook = open_notebook("%processes 2", PRELUDE + "print(rank)")
    expect(page.locator(".jp-DebuggerBugButton")).to_have_count(0)
    notebook.run(0)
    notebook.run(1)
    expect(notebook.cell(1).get_by_role("tab")).to_have_text(["All", "0", "1"])


def test_with_a_plain_kernel_there_is_nothing_to_choose(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("f = 1\nprint(f)", kernel="python3")
    debugger = Debugger(notebook)
    asked = debugger.asked()
    debugger.open()
    debugger.breakpoint(0, 2)
    notebook.run(0, wait=False)
    expect(debugger.frames).to_have_count(1)
    expect(debugger.ranks).to_have_count(0)
    assert "spmdRanks" not in asked()
    debugger.do("Continue")
    notebook.wait_done(0)
