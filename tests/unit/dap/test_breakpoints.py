from __future__ import annotations

from spmd_kernel.core.dap.breakpoints import Store, settle
from spmd_kernel.core.dap.sources import Sources


def test_lines_that_come_back_keep_their_conditions() -> None:
    """Of the client that forgets them; what says something of its own is new."""
    store = Store()
    store.set("lab", "p", [{"line": 3, "condition": "x"}, {"line": 5}], overlay=True)
    again = store.set("lab", "p", [{"line": 3}, {"line": 5}], overlay=True)
    assert [point.asked.get("condition") for point in again] == ["x", None]
    cleared = store.set("lab", "p", [{"line": 3, "condition": ""}], overlay=True)
    assert cleared[0].asked["condition"] == ""
    assert store.as_info() == [{"source": "p", "breakpoints": [{"line": 3}]}]
    store.set("code", "p", [{"line": 3, "condition": "y"}], overlay=False)
    assert store.set("code", "p", [{"line": 3}], overlay=False)[0].as_kept() == {"line": 3}


def test_two_clients_and_one_file() -> None:
    store = Store()
    store.set("lab", "p", [{"line": 1}], overlay=True)
    store.set("code", "p", [{"line": 2}], overlay=False)
    assert [point.line for point in store.at("p")] == [1, 2]
    assert store.drop("lab") == ["p"]
    assert [point.line for point in store.at("p")] == [2]
    store.set("code", "p", [], overlay=False)
    assert store.paths == []


def test_one_breakpoint_of_what_ranks_said() -> None:
    store = Store()
    here, there = store.set("lab", "p", [{"line": 3}, {"line": 9}], overlay=True)
    answers = {
        0: [{"verified": False, "message": "no code", "line": 3, "id": 7}],
        1: [{"verified": True, "line": 4, "id": 7}, {"verified": True, "line": 9, "id": 8}],
        2: [{"verified": True, "line": 5, "id": 7}],
        3: None,
    }
    settle([here, there], {0: [here], 1: [here, there], 2: [here], 3: [here]}, answers)
    assert (here.verified, here.line) == (True, 4)
    assert here.message == "rank 0: no code; rank 3: no answer"
    assert (there.verified, there.message) == (True, "")
    assert store.named(1, 7) is here and store.named(1, 8) is there
    assert store.named(3, 7) is None
    store.lost(1)
    assert store.named(1, 7) is None
    settle([here], {0: []}, {0: []})
    assert (here.verified, here.message) == (False, "its condition holds on no rank")


def test_paths_of_cells() -> None:
    sources = Sources("/tmp/cells/")
    assert sources.own(0, "/tmp/cells/5.py") == "/tmp/cells/5.py"  # not known yet
    for rank in (0, 1):
        sources.learn(rank, f"/tmp/ipykernel_{rank}/")
    assert sources.canonical(1, "/tmp/ipykernel_1/5.py") == "/tmp/cells/5.py"
    assert sources.own(1, "/tmp/cells/5.py") == "/tmp/ipykernel_1/5.py"
    assert sources.canonical(1, "/home/a.py") == sources.own(1, "/home/a.py") == "/home/a.py"
    assert sources.canonical(1, "/tmp/ipykernel_0/5.py") == "/tmp/ipykernel_0/5.py"
    assert sources.in_text(0, "File /tmp/ipykernel_0/5.py") == "File /tmp/cells/5.py"
    sources.forget(1)
    assert sources.canonical(1, "/tmp/ipykernel_1/5.py") == "/tmp/ipykernel_1/5.py"
