"""A private JupyterLab, and one of its notebook pages as a person has it before them."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Locator, Page

from ..kernel.client import alive, descendants, wait_gone

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
DEADLINE = 60.0  # seconds for anything a page waits for; generous, for a busy machine

# If we are killed, Linux tells the server to stop, and it stops its kernels.
LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
sys.exit() if os.getppid() != int(sys.argv[1]) else os.execv(sys.executable, sys.argv[2:])
"""
# Nothing that a stock JupyterLab does not do, except that it asks nobody for news.
OPTIONS = [
    "--no-browser",
    "--allow-root",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port=0",
    "--LabApp.expose_app_in_browser=True",
    "--JupyterNotebookApp.expose_app_in_browser=True",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
]


class Lab:
    """One server with folders, port and token of its own. ``close`` leaves no process behind."""

    def __init__(self, folder: Path, *, extension: bool, options: Sequence[str] = ()) -> None:
        """``extension``: with ours, which has to be installed; without it all is as it comes."""
        self._options = options
        self.work = folder / "work"
        self.work.mkdir()
        quiet = folder / "settings" / "@jupyterlab/apputils-extension"
        quiet.mkdir(parents=True)
        (quiet / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        if not extension:
            disabled = folder / "config" / "labconfig" / "page_config.json"
            disabled.parent.mkdir(parents=True)
            disabled.write_text('{"disabledExtensions": {"spmd-kernel": true}}')
        self.token = secrets.token_hex()
        self.log: list[str] = []
        self.process = subprocess.Popen(
            self._command(),
            env=os.environ | self._environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self._lines = self.process.stdout
        try:
            self.url = self._wait_for_url()
        except BaseException:
            self.close()
            raise
        self._reader = threading.Thread(target=self.log.extend, args=(self._lines,), daemon=True)
        self._reader.start()

    def _command(self) -> list[str]:
        lab = [sys.executable, "-m", "jupyterlab", *OPTIONS, *self._options]
        lab.append(f"--ServerApp.root_dir={self.work}")
        return [sys.executable, "-c", LAUNCH, str(os.getpid()), *lab]

    def _environment(self, folder: Path) -> dict[str, str]:
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        paths = {name: str(folder / sub) for name, sub in folders.items()}
        return paths | {"JUPYTER_TOKEN": self.token, "PYTHONUNBUFFERED": "1"}

    def _wait_for_url(self) -> str:
        watchdog = threading.Timer(DEADLINE, self.process.kill)  # ends the loop below, if need be
        watchdog.start()
        try:
            for line in self._lines:
                self.log.append(line)
                if found := re.search(r"(http://127\.0\.0\.1:\d+)/lab", line):
                    return found[1]
        finally:
            watchdog.cancel()
        raise AssertionError("JupyterLab did not start:\n" + "".join(self.log))

    def request(self, method: str, path: str) -> Any:
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
            body = reply.read()
        return json.loads(body) if body else None

    def write(
        self, name: str, cells: Sequence[str], tags: dict[int, str], *, kernel: str = "spmd-python3"
    ) -> Path:
        """A notebook as somebody might have sent it: cells without outputs, a kernel's name."""
        made = [
            nbformat.v4.new_code_cell(code.strip(), id=f"cell-{i}") for i, code in enumerate(cells)
        ]
        for index, tag in tags.items():
            made[index].metadata.tags = [tag]
        notebook = nbformat.v4.new_notebook(cells=made)
        notebook.metadata.kernelspec = {
            "display_name": "Distributed (Python 3)" if kernel == "spmd-python3" else kernel,
            "language": "python",
            "name": kernel,
        }
        path = self.work / f"{name}.ipynb"
        nbformat.write(notebook, path)
        return path

    def wait_idle(self) -> None:
        """Until all kernels are, by what the server has heard of them."""
        deadline = time.monotonic() + DEADLINE
        while any(kernel["execution_state"] != "idle" for kernel in self.request("GET", "kernels")):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def stop_kernels(self) -> None:
        """Shut all kernels down, and see that their ranks are gone too."""
        pids = descendants(self.process.pid)
        for kernel in self.request("GET", "kernels"):
            self.request("DELETE", f"kernels/{kernel['id']}")
        wait_gone(pids)

    def close(self) -> None:
        pids = descendants(self.process.pid)
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
            wait_gone(pids)
        finally:  # nothing stays, not even what should have gone by itself
            for pid in filter(alive, {self.process.pid, *pids}):
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            if hasattr(self, "_reader"):
                self._reader.join()
            self._lines.close()


PLACES = {"lab": "lab/tree", "doc": "doc/tree", "notebook": "notebooks"}


class Notebook:
    """An open notebook: what its cells show, and what one can do with keys, mouse and commands."""

    def __init__(self, page: Page, lab: Lab, path: Path, front_end: str = "lab") -> None:
        """``front_end``: "lab" is JupyterLab, "doc" its single-document mode, "notebook" Notebook 7."""
        self.page = page
        self.lab = lab
        self.path = path
        self.front_end = front_end

    def open(self) -> None:
        """Load the page; returns when the kernel that the notebook's metadata names is there."""
        place = PLACES[self.front_end]
        self.page.goto(f"{self.lab.url}/{place}/{self.path.name}?reset&token={self.lab.token}")
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        self._do("await app.shell.currentWidget.sessionContext.ready")

    def open_without_kernel(self) -> None:
        """Load the page of a notebook whose kernel is not here; no other is chosen."""
        self.page.goto(f"{self.lab.url}/lab/tree/{self.path.name}?reset&token={self.lab.token}")
        self.page.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
        self.page.locator(".jp-Dialog").wait_for(state="hidden")

    def _do(self, statements: str) -> Any:
        """Run JavaScript in the page, where ``app`` is JupyterLab; never wait for ever."""
        return self.page.evaluate(f"""() => Promise.race([
            (async (app) => {{ {statements} }})(window.jupyterapp),
            new Promise((_, no) => setTimeout(no, {1000 * DEADLINE}, new Error('no end in sight'))),
        ])""")

    def ask(self, statements: str) -> Any:
        """What JavaScript in the page returns, where ``app`` is JupyterLab."""
        return self._do(statements)

    def command(self, name: str, *, wait: bool = True) -> None:
        """A command of JupyterLab; with ``wait``, until it is done (a cell's: until it ran)."""
        self._do(f"{'await' if wait else 'void'} app.commands.execute('{name}')")

    def run_all(self) -> None:
        self.command("notebook:run-all-cells")

    def activate(self, index: int) -> None:
        """The cell that commands are about."""
        self._do(f"app.shell.currentWidget.content.activeCellIndex = {index}")

    def run(self, index: int, *, wait: bool = True) -> None:
        self.activate(index)
        self.command("notebook:run-cell", wait=wait)

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def by_prompt(self, count: int) -> Locator:
        """A cell by its number: where most cells are not on the page, places do not tell."""
        prompt = self.page.locator(".jp-InputPrompt", has_text=re.compile(rf"^\[{count}\]:$"))
        return self.page.locator(".jp-Notebook .jp-Cell", has=prompt)

    def show_ranks(self) -> None:
        """Open the Ranks panel, in a window that has room for it and shows nothing else."""
        self.page.set_viewport_size({"width": 1150, "height": 600})
        if self.front_end == "lab":
            self.command("application:toggle-left-area")
        self.command("spmd-kernel:show-ranks")
        self.page.locator("#spmd-ranks").wait_for()

    def wait_busy(self) -> None:
        """Until the kernel runs a cell."""
        self._do("""
            const { session } = app.shell.currentWidget.sessionContext;
            if (session.kernel.status !== 'busy') {
                await new Promise(done => session.kernel.statusChanged.connect(
                    (_, status) => status === 'busy' && done()));
            }""")

    def wait_status(self) -> None:
        """Until the field shows that the kernel has told of its ranks, and a moment of it all."""
        self.page.locator(".spmd-Processes input[aria-busy=false]").wait_for()
        self._do("await app.shell.currentWidget.sessionContext.session.kernel.requestKernelInfo()")

    def mode(self) -> str:
        """How JupyterLab shows documents."""
        mode: str = self._do("return app.shell.mode")
        return mode

    def change_kernel(self, name: str) -> None:
        self._do(f"""
            const context = app.shell.currentWidget.sessionContext;
            await context.changeKernel({{ name: '{name}' }});
            await context.session.kernel.info;""")

    def kernel_id(self) -> str:
        kernel: str = self._do("return app.shell.currentWidget.sessionContext.session.kernel.id")
        return kernel

    def setting(self, plugin: str, name: str, value: str) -> None:
        """Change a setting; ``value`` is JSON."""
        self._do(
            "await app.serviceManager.settings.save("
            f"'{plugin}', JSON.stringify({{ {name}: {value} }}))"
        )

    def dark(self, on: bool = True) -> None:
        theme = "JupyterLab Dark" if on else "JupyterLab Light"
        self._do(f"await app.commands.execute('apputils:change-theme', {{ theme: '{theme}' }})")
        light = "false" if on else "true"
        self.page.wait_for_function(f"document.body.dataset.jpThemeLight === '{light}'")
        # JupyterLab removes its splash screen twice if the next theme comes while it fades.
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def saved_text(self, index: int) -> str:
        """The text of a cell's first output, as it would be saved."""
        text: str = self._do(
            f"return app.shell.currentWidget.content.model.cells.get({index})"
            ".outputs.get(0).toJSON().text"
        )
        return text

    def record_sent(self) -> Callable[[], list[str]]:
        """From now on: the types of all messages that the page sends to its kernel."""
        self._do("""
            window.sent = [];
            app.shell.currentWidget.sessionContext.session.kernel.anyMessage.connect(
                (_, { msg, direction }) => direction === 'send' && sent.push(msg.header.msg_type));""")
        return lambda: self._do("return window.sent")

    def outputs(self, index: int) -> Locator:
        return self.cell(index).locator(".jp-OutputArea-output")

    def text(self, index: int) -> str:
        """All text under a cell, as it reads on the screen."""
        self.cell(index).scroll_into_view_if_needed()
        return "\n".join(self.outputs(index).all_inner_texts())

    def lines(self, index: int) -> list[str]:
        return [line for line in self.text(index).splitlines() if line.strip()]

    def wait_text(self, index: int, pattern: str) -> None:
        """Until what the cell shows matches the regular expression."""
        found = self.cell(index).locator(".jp-OutputArea", has_text=re.compile(pattern))
        found.first.wait_for()

    def wait_done(self, index: int) -> None:
        """Until the cell has its execution count: ``[3]:``, no more ``[*]:``."""
        prompt = self.cell(index).locator(".jp-InputPrompt", has_text=re.compile(r"\[\d+\]:"))
        prompt.wait_for()

    def restart(self) -> None:
        """By the toolbar's button and its dialog; returns when the kernel is idle again."""
        self._do("""
            const context = app.shell.currentWidget.sessionContext;
            window.restarted = new Promise(done => {
                let gone = false;
                context.statusChanged.connect((_, status) => {
                    gone ||= status.includes('restarting');
                    if (gone && status === 'idle') done();
                });
            });""")
        self.button("Restart the kernel").first.click()
        dialog = self.page.locator(".jp-Dialog")
        dialog.locator(".jp-mod-accept").click()
        dialog.wait_for(state="hidden")
        self._do("await window.restarted")

    def button(self, label: str) -> Locator:
        """A button of the notebook's toolbar, by what it is called."""
        toolbar = self.page.locator(".jp-NotebookPanel-toolbar")
        return toolbar.get_by_role("button", name=label)

    def image_sizes(self, index: int) -> list[tuple[int, int]]:
        """Width and height that the pictures under a cell really have."""
        self.cell(index).scroll_into_view_if_needed()
        sizes = (
            self.cell(index)
            .locator("img")
            .evaluate_all(
                "imgs => Promise.all(imgs.map(async i => (await i.decode(), [i.naturalWidth, i.naturalHeight])))"
            )
        )
        return [tuple(size) for size in sizes]

    def picture(self, name: str) -> Path:
        return SCREENSHOTS / f"{name}.png"

    def shot(self, name: str, cell: int | None = None) -> None:
        """A picture of the whole window, or of one cell: for people to look at."""
        shown = self.page if cell is None else self.cell(cell)
        shown.screenshot(path=self.picture(name))

    def page_shot(self, name: str, cell: int, height: int = 560) -> None:
        """A picture of the page, small enough for the documentation, from a cell on."""
        size = self.page.viewport_size
        self.page.set_viewport_size({"width": 900, "height": height})
        if self.front_end == "lab":
            self.command("application:toggle-left-area")
        self._do(f"await app.shell.currentWidget.content.scrollToItem({cell}, 'start')")
        self.shot(name)
        if self.front_end == "lab":
            self.command("application:toggle-left-area")
        self.page.set_viewport_size(size)

    def side_shot(self, name: str) -> None:
        """A picture for the documentation of a side bar and the page beside it."""
        size = self.page.viewport_size
        self.page.set_viewport_size({"width": 1000, "height": 740})
        self.command("application:toggle-left-area")
        self.shot(name)
        self.command("application:toggle-left-area")
        self.page.set_viewport_size(size)

    def long_shot(self, name: str, height: int) -> None:
        """A picture of all cells, in a window so high (pixels) that none is out of view."""
        size = self.page.viewport_size
        self.page.set_viewport_size({"width": 1280, "height": height})
        self.cell(0).scroll_into_view_if_needed()
        self.page.locator(".jp-WindowedPanel-inner").screenshot(path=SCREENSHOTS / f"{name}.png")
        self.page.set_viewport_size(size)
