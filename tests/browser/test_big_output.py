"""Much text: a window over its end, and what is above when somebody asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from .lab import Notebook
from .test_lab import MEET, PRELUDE
from .test_rank_tabs import choose, shown

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(170, method="thread"),
]

OpenNotebook = Callable[..., Notebook]

# Slower than jupyter_server's limit of 1 MB/s, beyond which it drops text.
FLOOD = """\
import time
for step in range(5000):
    print(f"rank {rank} step {step} ...............................")
    if step % 500 == 499: time.sleep(0.5)
"""


def test_the_end_is_shown_and_the_rest_on_demand(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("%processes 4", PRELUDE + FLOOD, "'ready'")
    notebook.run(0)
    notebook.run(1)
    notebook.run(2)
    output = notebook.cell(1).locator(".jp-OutputArea-output").first
    earlier = notebook.cell(1).get_by_role("button", name="show earlier")
    expect(earlier).to_be_visible()
    notebook.wait_text(1, "rank 3 step 4999")
    assert len(output.inner_text()) < 210_000
    notebook.shot("big-output")
    choose(notebook, 1, "2")
    lines = [line for line in shown(notebook, 1) if not line.startswith("show earlier")]
    assert lines[-1].startswith("rank 2 step 4999")
    assert all(line.startswith("rank 2 step") for line in lines)
    earlier.click()
    expect(earlier).to_have_count(0)
    own = shown(notebook, 1)
    assert len(own) == 5000 and own[0].startswith("rank 2 step 0 ")
    choose(notebook, 1, "All")
    saved = notebook.saved_text(1)  # the notebook has all of it
    for rank in range(4):
        lines = [line for line in saved.splitlines() if line.startswith(f"{rank} │ ")]
        assert [line.split()[5] for line in lines] == [str(step) for step in range(5000)]


MIXED = """\
import sys
from IPython.display import display, clear_output
line = "." * 99 + "\\n"
print(line * 300, end="", flush=True)
display("between")
print(line * 300, end="", flush=True)
sys.stderr.write("error\\n"); sys.stderr.flush()
print(line * 300, end="", flush=True)
print("no newline ", end="", flush=True); sleep(0.7)
print("and its end", flush=True); sleep(0.3)
print("over", end="\\b\\b\\b\\bOVER\\n", flush=True); sleep(0.3)
print("last", flush=True)
"""


def test_a_long_text_is_as_every_other(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(PRELUDE + MEET, MIXED)
    notebook.run(0)
    notebook.run(1)
    texts = notebook.ask(
        "return app.shell.currentWidget.content.model.cells.get(1).outputs.toJSON()"
        ".map(output => output.text ?? '')"
    )
    ends = ["\n", "", "\n", "error\n"]
    assert [text[-len(end) or 99 :] for text, end in zip(texts, ends, strict=False)] == ends
    dots = "." * 99 + "\n"
    assert texts[-1] == dots * 300 + "no newline and its end\nOVER\nlast\n"
    assert texts[0] == texts[2] == dots * 300
    shared = notebook.ask(
        "return app.shell.currentWidget.content.model.sharedModel.cells[1].outputs"
        ".map(output => output.text ?? '')"
    )
    assert ["".join(text) for text in shared] == texts  # what is saved
