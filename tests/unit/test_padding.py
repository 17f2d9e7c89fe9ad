"""The padding code, run in IPython itself; in a process of its own, as IPython is a singleton."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from spmd_kernel.core.padding import padding_code

RUN = """if True:
    import json, sys
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    before = set(shell.user_ns)
    for silent, code in json.load(sys.stdin):
        result = shell.run_cell(code, store_history=not silent, silent=silent)
        result.raise_error()
    json.dump({
        "count": shell.execution_count,
        "In": shell.user_ns["In"],
        "raw": shell.history_manager.input_hist_raw,
        "same": shell.user_ns["In"] is shell.history_manager.input_hist_parsed,
        "new": sorted(set(shell.user_ns) - before),
    }, sys.stdout)
"""
SILENT, CELL = True, False


def after(*cells: tuple[bool, str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(cells), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_new_rank_takes_up_the_count_and_the_texts() -> None:
    texts = ["a = 1", "print('ü\\n')\n%time pass", '"""\ud800']
    state = after((SILENT, padding_code(texts, 6)), (CELL, "b = In[1]"))
    assert state["In"] == state["raw"] == ["", *texts, "", "", "b = In[1]"]
    assert state["count"] == 7
    assert state["same"]
    assert [name for name in state["new"] if not name.startswith("_")] == ["b"]


def test_it_leaves_nothing_in_the_users_namespace() -> None:
    assert after((SILENT, padding_code(["x"], 3)))["new"] == []


def test_what_the_rank_ran_itself_stays() -> None:
    state = after((CELL, "x = 1"), (SILENT, padding_code(["one", "two", "three"], 4)))
    assert state["In"] == ["", "x = 1", "two", "three"]
    assert state["count"] == 4


def test_padding_to_where_it_is_changes_nothing() -> None:
    again = (SILENT, padding_code(["other", "later"], 2))
    state = after((CELL, "x = 1"), (SILENT, padding_code([], 2)), again)
    assert state["In"] == ["", "x = 1"]
    assert state["count"] == 2


def test_many_cells() -> None:
    texts = [f"cell({k})" for k in range(1, 5000)]
    state = after((SILENT, padding_code(texts, 5000)), (CELL, "pass"))
    assert state["In"] == ["", *texts, "pass"]


def test_in_a_python_without_ipython_it_does_nothing() -> None:
    code = f"import sys; sys.modules['IPython'] = None\n{padding_code(['a'], 3)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
