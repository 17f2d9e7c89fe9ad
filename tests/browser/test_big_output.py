"""Much text: a window over its end, and what is above when somebody asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from .lab import Notebook
from .test_lab import PRELUDE
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
    assert len(notebook.saved_text(1)) > 900_000  # the notebook has all of it
