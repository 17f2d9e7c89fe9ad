from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

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


@pytest.fixture(scope="module")
def chromium() -> str:
    """The path of an installed Chromium. Without one: a skip, or with SPMD_REQUIRE_BROWSER=1 a failure."""
    found = [path for name in NAMES if (path := shutil.which(name))]
    if not found:
        missing = "no Chromium found; hint: apt-get install chromium"
        if os.environ.get("SPMD_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    return found[0]


@pytest.fixture(scope="module")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("SPMD_", "SLURM_", "PMI_", "PMIX_", "OMPI_", "JUPYTER")):
                patch.delenv(name)
        lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
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
    page.on("pageerror", lambda error: faults.append(str(error)))
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))

    def open_notebook(
        *cells: str, tags: dict[int, str] | None = None, example: Path | None = None
    ) -> Notebook:
        path = shutil.copy(example, lab.work) if example else lab.write(name, cells, tags or {})
        notebook = Notebook(page, lab, Path(path))
        notebook.open()
        return notebook

    yield open_notebook
    try:
        page.screenshot(path=SCREENSHOTS / f"end-of-{name}.png")
    finally:
        lab.stop_kernels()
    assert not faults, faults
