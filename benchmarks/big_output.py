"""How JupyterLab fares when 4 ranks print 100,000 lines: with our extension, and without.

    python -m benchmarks.big_output [RUNS]

Needs Chromium and the built extension. jupyter_server's limit of 1 MB/s is off: with it, it drops
what is beyond. Each run is a fresh server, kernel and page, one kind after the other.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import FLAGS
from tests.browser.lab import Lab, Notebook

LINES = 25_000  # of each of 4 ranks, 64 characters
FLOOD = f"""\
import os
rank = int(os.environ["RANK"])
for step in range({LINES}):
    print(f"rank {{rank}} step {{step:6}} loss 0.123456 accuracy 0.98765 lr 0.0001000")
"""
# The limit counts messages, too.
NO_LIMIT = [
    "--ZMQChannelsWebsocketConnection.iopub_data_rate_limit=0",
    "--ZMQChannelsWebsocketConnection.iopub_msg_rate_limit=0",
]
FRAMES = """async () => {
    const app = window.jupyterapp;
    const gaps = window.gaps = [];
    let last = performance.now();
    const frame = now => { gaps.push(now - last); last = now; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    const cell = app.shell.currentWidget.content.widgets[1];
    const begin = performance.now();
    await app.commands.execute('notebook:run-cell');
    const outputs = cell.model.outputs;
    const end = outputs.get(outputs.length - 1).streamText.text.trimEnd().slice(-60);
    const drawn = () => {
        const text = [...cell.outputArea.node.querySelectorAll('pre')].at(-1).lastChild;
        return text?.textContent.trimEnd().endsWith(end);
    };
    while (!drawn()) {
        await new Promise(requestAnimationFrame);
    }
    await new Promise(requestAnimationFrame);
    return [(performance.now() - begin) / 1000, gaps.slice(1)];
}"""


def measure(browser: Browser, extension: bool) -> tuple[float, float, float]:
    """Seconds until the last lines of all ranks are on the page; 95th percentile and longest of the gaps between frames, ms."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder), extension=extension, options=NO_LIMIT)
        try:
            path = lab.write("flood", ["%processes 4", FLOOD], {})
            with browser.new_context(viewport={"width": 1280, "height": 1000}) as context:
                notebook = Notebook(context.new_page(), lab, path)
                notebook.open()
                notebook.run(0)
                notebook._do("app.shell.currentWidget.content.activeCellIndex = 1")
                seconds, gaps = notebook.page.evaluate(FRAMES)
        finally:
            lab.stop_kernels()
            lab.close()
    gaps.sort()
    return seconds, gaps[int(len(gaps) * 0.95)], gaps[-1]


def main(runs: int) -> None:
    chromium = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        found: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
        for _ in range(runs):
            for extension in (True, False):
                found[extension].append(measure(browser, extension))
        browser.close()
    for extension, values in found.items():
        seconds, gap, longest = (statistics.median(column) for column in zip(*values, strict=True))
        name = "with the extension" if extension else "stock JupyterLab"
        print(
            f"{name:20} {seconds:5.1f} s, gaps between frames: p95 {gap:.0f} ms, max {longest:.0f} ms"
        )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
