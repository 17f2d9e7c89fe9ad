from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_core.paths import jupyter_path
from playwright.sync_api import Browser, Page, expect, sync_playwright

from .lab import DEADLINE, SCREENSHOTS, Lab, Notebook

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A browser that asks nobody outside: no updates, no sync, no field trials; root has no sandbox.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# What the front ends do not catch by themselves, without any extension of ours: Notebook 7.6 as it
# loads, and ipywidgets' comm, which wants a subshell, when its kernel is changed for another.
STOCK_FAULTS = (
    "Error: Canceled future for create_subshell_request message before replies were done",
    "Cannot read properties of undefined (reading 'schema')",
    "Command 'filebrowser:open-path' not registered.",
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of an installed Chromium. Without one: a skip, or with SPMD_REQUIRE_BROWSER=1 a failure."""
    found = [path for name in NAMES if (path := shutil.which(name))]
    if not found:
        missing = "no Chromium found; hint: apt-get install chromium"
        if os.environ.get("SPMD_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    return found[0]


def needs_extension() -> None:
    """Without the built extension: a skip, or with SPMD_REQUIRE_BROWSER=1 a failure."""
    places = [
        Path(folder, "spmd-kernel", "package.json") for folder in jupyter_path("labextensions")
    ]
    if not any(place.is_file() for place in places):
        missing = "our JupyterLab extension is not installed; hint: make labextension"
        if os.environ.get("SPMD_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)


@pytest.fixture(scope="package")
def labs(
    chromium: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[bool], Lab]]:
    """``labs(extension)``: one server with our extension and one without, started when needed."""
    started: dict[bool, Lab] = {}

    def start(extension: bool) -> Lab:
        if extension:
            needs_extension()
        if extension not in started:
            with pytest.MonkeyPatch.context() as patch:
                for name in list(os.environ):
                    if name.startswith(("SPMD_", "SLURM_", "PMI_", "PMIX_", "OMPI_", "JUPYTER")):
                        patch.delenv(name)
                folder = tmp_path_factory.mktemp("lab")
                started[extension] = Lab(folder, extension=extension)
        return started[extension]

    yield start
    for lab in started.values():
        lab.close()


@pytest.fixture
def lab(labs: Callable[[bool], Lab], request: pytest.FixtureRequest) -> Lab:
    """With our extension, unless the module says ``STOCK = True``."""
    return labs(not getattr(request.module, "STOCK", False))


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """Not of the session: while Playwright is there no other test can run an event loop of its own."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=1000 * DEADLINE / 2)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1280, "height": 1000}) as context:
        context.set_default_timeout(1000 * DEADLINE)
        yield context.new_page()


@pytest.fixture
def open_notebook(
    lab: Lab, page: Page, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Notebook]]:
    """``open_notebook(*cells, tags={index: tag})``, or ``(example=path)``: with its kernel started.

    An exception that JupyterLab did not catch fails the test.
    """
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))

    def open_notebook(
        *cells: str,
        tags: dict[int, str] | None = None,
        example: Path | None = None,
        front_end: str = "lab",
        kernel: str = "spmd-python3",
    ) -> Notebook:
        path = (
            shutil.copy(example, lab.work)
            if example
            else lab.write(name, cells, tags or {}, kernel=kernel)
        )
        notebook = Notebook(page, lab, Path(path), front_end)
        notebook.open()
        return notebook

    yield open_notebook
    try:
        page.screenshot(path=SCREENSHOTS / f"end-of-{name}.png")
    finally:
        lab.stop_kernels()
    faults = [fault for fault in faults if not fault.startswith(STOCK_FAULTS)]
    assert not faults, faults
