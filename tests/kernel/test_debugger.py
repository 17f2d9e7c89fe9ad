"""The debugger with real ranks: what must hold whatever clients, ranks and users do."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spmd_kernel.core.dap.recent import murmur2
from spmd_kernel.core.dap.sources import SEED

from .client import Kernel, descendants, wait_gone
from .dap import CODE, OLD, Dap, debugged, thread

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

PIDS = "import os; print('pid', os.getpid())"


@pytest.fixture(params=[1, 2])
def few(request: pytest.FixtureRequest) -> Iterator[Dap]:
    with debugged(request.param) as dap:
        yield dap


@pytest.fixture
def two() -> Iterator[Dap]:
    with debugged(2) as dap:
        yield dap


@pytest.fixture
def four() -> Iterator[Dap]:
    with debugged(4) as dap:
        yield dap


def state(dap: Dap) -> Any:
    content = {"command": "status", "arguments": {}}
    return dap.kernel.request("spmd_request", content, "control")["data"]


def pid_of(dap: Dap, rank: int) -> int:
    return int(state(dap)["ranks"][rank]["pid"])


# ---------------------------------------------------------------- stop, look, step, go on


def test_stop_look_step_and_go_on(few: Dap) -> None:
    size = 2 if "spmd" in few.ok("debugInfo") else 1
    path = few.breakpoints(CODE, 4)
    cell = few.kernel.send(CODE)
    stop = few.stopped()
    rank = (stop["threadId"] >> 16) - 1
    assert stop["reason"] == "breakpoint"
    frames = few.frames()
    label = f" [rank {rank}]" if size > 1 else ""
    assert [frame["name"] for frame in frames] == [f"f{label}", f"<module>{label}"]
    assert frames[0]["source"]["path"] == path and frames[0]["line"] == 4
    assert few.ok("source", source={"path": path})["content"] == CODE
    scopes = [s["name"] for s in few.ok("scopes", frameId=frames[0]["id"])["scopes"]]
    assert scopes == ["Locals", "Globals"] + ["All ranks"] * (size > 1)
    assert few.scope(frames[0], "Locals")["a"]["value"] == str(rank)
    names = [t["name"] for t in few.ok("threads")["threads"]]
    if size == 1:
        assert names == ["MainThread"]
    else:
        assert [n.removesuffix(" (running)") for n in names] == [
            "rank 0 · MainThread",
            "rank 1 · MainThread",
        ]
    few.ok("next", threadId=stop["threadId"])
    few.stopped()  # as a rule of the same rank: another one takes over if that is slow
    assert few.line() == 5
    if size > 1:
        few.until_stopped({0, 1})
    few.ok("continue", threadId=1)
    assert few.kernel.collect(cell).status == "ok"
    assert few.ok("debugInfo")["stoppedThreads"] == []


def test_one_story_per_group(four: Dap) -> None:
    """A client that shows one thread hears of one stop for each step, always of the same rank."""
    four.breakpoints(CODE, 4)
    cell = four.kernel.send(CODE)
    first = four.stopped()["threadId"]
    for line in (5, 6):
        info = four.until_stopped({0, 1, 2, 3})
        assert info["stoppedThreads"][0] == first
        assert set(info["stoppedThreads"]) == {thread(rank) for rank in range(4)}
        four.ok("next", threadId=first)
        assert four.stopped()["threadId"] == first
        assert four.line(first) == line
    four.until_stopped({0, 1, 2, 3})
    for rank in range(4):
        assert four.line(thread(rank)) == 6
    told = [e for e in four.so_far() if e["event"] in ("stopped", "continued")]
    stops = [e["body"]["threadId"] for e in told if e["event"] == "stopped"]
    assert stops == [first] * 3
    # It was told of the others when it asked: so it hears that they go on, too.
    gone = [e["body"]["threadId"] for e in told if e["event"] == "continued"]
    assert gone[0] == gone[4] == first
    assert set(gone[:4]) == set(gone[4:]) == {thread(rank) for rank in range(4)}
    four.ok("continue", threadId=1)
    assert four.kernel.collect(cell).status == "ok"
    while [e["event"] for e in four.so_far()].count("continued") < 3:
        pass  # it comes by another way than the end of the cell


# ---------------------------------------------------------------- ranks that are not stopped


def test_continue_reaches_stopped_ranks_only(two: Dap) -> None:
    """It would wedge the control channel of the other one for good."""
    two.breakpoints(CODE, {"line": 4, "condition": "RANK == 1"})
    cell = two.kernel.send(CODE)
    assert two.stopped()["threadId"] == thread(1)
    assert [r["state"] for r in two.ok("debugInfo")["spmd"]["ranks"]] == ["running", "stopped"]
    assert two.ok("continue", threadId=1) == {"allThreadsContinued": True}
    assert two.kernel.collect(cell).status == "ok"
    assert two.ok("continue", threadId=1) == {"allThreadsContinued": True}
    two.ok("next", threadId=thread(0))
    states = [r["state"] for r in two.ok("debugInfo")["spmd"]["ranks"]]
    assert states == ["running", "running"]
    assert two.kernel.request("interrupt_request", {}, "control")["status"] == "ok"
    usage = two.kernel.request("usage_request", {}, "control")  # asks ranks on control
    assert usage["kernel_memory"] > 0
    assert two.kernel.ok("1 + 1").text.strip() == "2"


def test_what_is_held_of_a_rank_that_ran_on_is_stale(two: Dap) -> None:
    two.breakpoints(CODE, 4)
    cell = two.kernel.send(CODE)
    two.stopped()
    two.until_stopped({0, 1})
    frame = two.frames()[0]
    scope = two.ok("scopes", frameId=frame["id"])["scopes"]
    two.ok("continue", threadId=1)
    two.kernel.collect(cell)
    reply = two.ask("scopes", frameId=frame["id"])
    assert not reply["success"] and reply["message"].startswith("stale frame")
    for one in scope:
        reply = two.ask("variables", variablesReference=one["variablesReference"])
        assert not reply["success"] and reply["message"].startswith("stale variable")
    assert "x" in {row["name"] for row in two.ok("inspectVariables")["variables"]}


def test_initialize_is_refused_while_a_cell_runs() -> None:
    with Kernel() as kernel:
        kernel.ok("%processes 2")
        dap = Dap(kernel)
        cell = kernel.send("while True: pass", allow_stdin=True)
        kernel.wait_iopub(lambda m: m["header"]["msg_type"] == "execute_input")
        reply = dap.ask("initialize")
        assert not reply["success"]
        assert "is running" in reply["message"] and "hint" in reply["message"]
        kernel.request("interrupt_request", {}, "control")
        assert kernel.collect(cell).status == "error"
        dap.start()
        assert dap.ok("debugInfo")["isStarted"]


# ---------------------------------------------------------------- Stop, and the end of a cell


def test_stop_while_stopped_and_breakpoints_still_work(few: Dap) -> None:
    size = 2 if "spmd" in few.ok("debugInfo") else 1
    few.breakpoints(CODE, 4)
    for _ in range(2):
        cell = few.kernel.send(CODE)
        stop = few.stopped()
        assert stop["reason"] == "breakpoint"
        if size > 1:
            few.until_stopped({0, 1})
        few.kernel.request("interrupt_request", {}, "control")
        assert few.kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"
        few.event("continued")
        assert few.ok("debugInfo")["stoppedThreads"] == []
    cell = few.kernel.send(CODE)
    few.stopped()
    if size > 1:
        few.until_stopped({0, 1})
    few.ok("next", threadId=1)
    few.stopped()
    assert few.line() == 5
    if size > 1:
        few.until_stopped({0, 1})
    few.ok("continue", threadId=1)
    assert few.kernel.collect(cell).status == "ok"


def test_threads_of_the_kernel_itself_never_stop(two: Dap) -> None:
    """The main thread waits for a lock of the one that saves the history, for one."""
    code = """\
import threading
print(*(t.name for t in threading.enumerate() if not getattr(t, "is_pydev_daemon_thread", False)))"""
    assert two.kernel.ok(code).stdout == "MainThread\n"


def test_threads_that_stopped_beside_a_cell_go_on_when_stop_ends_it(few: Dap) -> None:
    few.kernel.ok("""\
import threading
turns, end = 0, threading.Event()
def work():
    global turns
    while not end.is_set():
        turns += 1
threading.Thread(target=work, daemon=True).start()""")
    few.breakpoints(CODE, 4)
    cell = few.kernel.send(CODE)
    few.stopped()
    if "spmd" in few.ok("debugInfo"):
        few.until_stopped({0, 1})
    few.kernel.request("interrupt_request", {}, "control")
    assert few.kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"
    few.kernel.ok("""\
before = turns
while turns == before:
    pass
end.set()""")


def test_step_off_the_end_of_a_cell(few: Dap) -> None:
    size = 2 if "spmd" in few.ok("debugInfo") else 1
    few.breakpoints(CODE, 8)
    cell = few.kernel.send(CODE)
    few.stopped()
    if size > 1:
        few.until_stopped({0, 1})
    few.ok("next", threadId=1)
    assert few.kernel.collect(cell).status == "ok"
    few.event("continued")
    before = len(few.so_far())
    assert few.kernel.ok("z = 1\nz + 1").text.strip() == "2"
    assert [e["event"] for e in few.so_far()[before:]] == []
    cell = few.kernel.send(CODE)
    assert few.stopped()["reason"] == "breakpoint"
    if size > 1:
        few.until_stopped({0, 1})
    few.ok("continue", threadId=1)
    assert few.kernel.collect(cell).status == "ok"


def stops_again(dap: Dap) -> None:
    """In a session after another one; it ends while ranks are stopped."""
    dap.start()
    dap.breakpoints(CODE, 4)
    cell = dap.kernel.send(CODE)
    dap.stopped()
    dap.ok("disconnect")
    assert dap.kernel.collect(cell).status == "ok"


def test_disconnect_lets_stopped_ranks_go_on(few: Dap) -> None:
    few.breakpoints(CODE, 4)
    cell = few.kernel.send(CODE)
    few.stopped()
    few.ok("disconnect", restart=False, terminateDebuggee=True)
    assert few.kernel.collect(cell).status == "ok"
    few.ok("disconnect")
    info = few.ok("debugInfo")
    assert (info["isStarted"], info["breakpoints"]) == (False, [])
    assert [e["event"] for e in few.so_far()].count("terminated") == 1
    stops_again(few)


def test_what_comes_as_it_disconnects_does_not_spoil_the_next_session(few: Dap) -> None:
    """ipykernel asks for the threads when one stops, which may be just then; and half an event."""
    few.kernel.ok("""\
import asyncio
def ask_too(client, send):
    def _send_request(message):
        send(message)
        if message["command"] == "disconnect":
            wait = client._wait_for_response
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(wait()))
    client._send_request = _send_request
def get_half_a_message(client, disconnect):
    def disconnect_tcp_socket():
        disconnect()
        client.receive_dap_frame("Content-Length: 265\\r\\n\\r\\n")
    client.disconnect_tcp_socket = disconnect_tcp_socket
client = get_ipython().kernel.debugger.debugpy_client
get_half_a_message(client, client.disconnect_tcp_socket)
ask_too(client, client._send_request)""")
    few.ok("disconnect")
    stops_again(few)


# ---------------------------------------------------------------- all ranks


def test_the_scope_of_all_ranks(four: Dap) -> None:
    code = "import os\nr = int(os.environ['RANK'])\ndef g(n):\n    d = {'k': 1 if n < 3 else [2]}\n    o = object()\n    return d\ng(r)\n"
    four.breakpoints(code, 6)
    cell = four.kernel.send(code)
    stop = four.stopped()
    four.until_stopped({0, 1, 2, 3})
    frame = four.frames(stop["threadId"])[0]
    rows = four.scope(frame, "All ranks")
    assert next(iter(rows)) == "(where)" and rows["(where)"]["value"] == "g:6"
    assert rows["n ≠"]["value"] == "0: 0 | 1: 1 | 2: 2 | 3: 3"
    assert rows["d ≠"]["value"] == "0-2: {'k': 1} | 3: {'k': [2]}"
    assert "0x…" in rows["o"]["value"] and "|" not in rows["o"]["value"]
    below = four.rows(rows["d ≠"]["variablesReference"])
    assert [(name, row["value"]) for name, row in below.items()] == [
        ("ranks 0-2", "{'k': 1}"),
        ("rank 3", "{'k': [2]}"),
    ]
    folded = four.rows(below["ranks 0-2"]["variablesReference"])
    assert folded["'k'"]["value"] == "1"
    alone = four.rows(below["rank 3"]["variablesReference"])
    assert four.rows(alone["'k'"]["variablesReference"])["0"]["value"] == "2"
    assert four.ok("evaluate", expression="%all n * 2", frameId=frame["id"])["result"] == (
        "0: 0 | 1: 2 | 2: 4 | 3: 6"
    )
    assert four.ok("evaluate", expression="n", frameId=frame["id"])["result"] == str(
        (stop["threadId"] >> 16) - 1
    )
    four.ok("stepOut", threadId=thread(0), singleThread=True)
    four.event("stopped", lambda body: body["threadId"] == thread(0))
    four.until_stopped({0, 1, 2, 3})
    frame = four.frames(thread(1))[0]
    assert four.scope(frame, "All ranks")["(where)"]["value"] == "0: <module>:7 | 1-3: g:6"
    four.ok("continue", threadId=1)
    assert four.kernel.collect(cell).status == "ok"
    rows = {row["name"]: row for row in four.ok("inspectVariables")["variables"]}
    assert rows["r"]["value"] == "0: 0 | 1: 1 | 2: 2 | 3: 3"
    assert len(four.rows(rows["r"]["variablesReference"])) == 4
    assert four.ok("evaluate", expression="%all r % 2")["result"] == "0,2: 0 | 1,3: 1"


def test_one_rank_steps_alone(two: Dap) -> None:
    two.breakpoints(CODE, 4)
    cell = two.kernel.send(CODE)
    two.stopped()
    two.until_stopped({0, 1})
    two.ok("next", threadId=thread(1), singleThread=True)
    assert two.event("stopped", lambda body: body["reason"] == "step")["threadId"] == thread(1)
    two.until_stopped({0, 1})
    assert (two.line(thread(0)), two.line(thread(1)), two.line()) == (4, 5, 5)
    two.ok("continue", threadId=thread(1), singleThread=True)
    assert two.event("stopped")["threadId"] == thread(0)  # the one that is still there
    two.ok("continue", threadId=thread(0))
    assert two.kernel.collect(cell).status == "ok"


# ---------------------------------------------------------------- breakpoints of every kind


def test_conditions_hits_and_log_points(two: Dap) -> None:
    code = "import os\nfor step in range(6):\n    a = step\n    b = a\nprint('done')\n"
    path = two.breakpoints(
        code,
        {"line": 3, "condition": "RANK == 1 and step == WORLD_SIZE + 1"},
        {"line": 4, "logMessage": "step {step} of {WORLD_SIZE}", "hitCondition": "% 3"},
    )
    kept = two.ok("debugInfo")["breakpoints"]
    assert kept[0]["source"] == path
    assert kept[0]["breakpoints"][0]["condition"] == "RANK == 1 and step == WORLD_SIZE + 1"
    # Lab sends back no more than lines.
    two.breakpoints(code, 3, 4)
    cell = two.kernel.send(code)
    assert two.stopped()["threadId"] == thread(1)
    assert two.scope(two.frames()[0], "Globals")["step"]["value"] == "3"
    two.ok("continue", threadId=1)
    assert two.kernel.collect(cell).status == "ok"
    wanted = {f"{rank} │ step {step} of 2\n" for rank in (0, 1) for step in (2, 5)}
    said: list[str] = []
    while len(said) < len(wanted):  # they come by another way than the end of the cell
        said = [e["body"]["output"] for e in two.so_far() if e["event"] == "output"]
    assert set(said) == wanted and len(said) == len(wanted)


@pytest.mark.parametrize(
    ("code", "ranks"),
    [
        ("%%rank 1\nx = 1\ny = 2\n1 / 0", {1}),
        ("\n%%timeout 60\ny = 2\n1 / 0", {0, 1}),
        ("%ranks\n\ny = 2\n1 / 0", {0, 1}),
        ("%processes 3 --keep\nx = 1\ny = 2\n1 / 0", {0, 1, 2}),
    ],
    ids=["%%rank", "%%timeout", "a line magic", "new ranks"],
)
def test_cells_with_magics(two: Dap, code: str, ranks: set[int]) -> None:
    """JupyterLab knows the text of the whole cell, ranks get it without the magic."""
    path = two.breakpoints(code, 3)
    assert path.endswith(f"/{murmur2(code.encode(), SEED)}.py")
    assert Path(path).read_text() == code
    two.breakpoints(CODE, 4)  # another cell is another file
    cell = two.kernel.send(code)
    two.stopped()
    two.until_stopped(ranks)
    frame = two.frames()[0]
    assert (frame["source"]["path"], frame["line"]) == (path, 3)
    assert two.ok("source", source={"path": path})["content"] == code
    two.ok("next", threadId=1)
    two.stopped()
    assert two.line() == 4
    two.until_stopped(ranks)
    two.breakpoints(code)
    two.ok("continue", threadId=1)
    result = two.kernel.collect(cell)
    assert re.search(r"line 4\b", result.errors[0]) and result.reply["ename"] == "ZeroDivisionError"
    assert two.kernel.run(code).reply["ename"] == "ZeroDivisionError"  # no breakpoint is left


def test_a_breakpoint_that_no_rank_can_hit_says_so(two: Dap) -> None:
    path = two.ok("dumpCell", code=CODE)["sourcePath"]
    points = [{"line": 4, "condition": "RANK > 7"}, {"line": 5, "condition": "RANK < 7"}]
    body = two.ok("setBreakpoints", source={"path": path}, breakpoints=points)
    assert [point["verified"] for point in body["breakpoints"]] == [False, True]
    assert body["breakpoints"][0]["message"] == "its condition holds on no rank"


def test_the_failure_of_one_rank_while_the_other_waits(two: Dap) -> None:
    """Post-mortem: the rank stops at its error, and the stack of the one that waits can be read."""
    code = (
        "import os, threading\nrank = int(os.environ['RANK'])\ngo = threading.Event()\n"
        "def wait():\n    while not go.wait(0.1): pass\n"
        "if rank == 1:\n    1 / 0\nelse:\n    wait()\n"
    )
    two.ok("dumpCell", code=code)
    two.ok("setExceptionBreakpoints", filters=["userUnhandled"])
    cell = two.kernel.send(code, allow_stdin=True)
    stop = two.stopped()
    assert (stop["reason"], stop["threadId"]) == ("exception", thread(1))
    assert two.line() == 7
    assert two.ok("exceptionInfo", threadId=1)["exceptionId"].startswith("ZeroDivisionError")
    names = [frame["name"] for frame in two.frames(thread(0))]
    assert "wait [rank 0]" in names
    rows = two.scope(two.frames(thread(1))[0], "All ranks")
    assert "0: running" in rows["(where)"]["value"]
    assert "1: <module>:7" in rows["(where)"]["value"]
    two.ok("continue", threadId=1)
    while state(two)["ranks"][1]["state"] != "idle":
        pass  # it makes its traceback
    two.kernel.request("interrupt_request", {}, "control")
    result = two.kernel.collect(cell)
    assert result.reply["ename"] == "ZeroDivisionError"


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("v = 5\nbreakpoint()\nw = 6\n", [2]),
        ("v = 5\nbreakpoint()", [2]),
        ("for v in (5, 5):\n    breakpoint()", [2, 2]),
        ("v = 5; import its_library; its_library.f()", [3]),
    ],
    ids=["in a cell", "its last line", "in a loop", "last line of a library's function"],
)
def test_breakpoint_in_code(two: Dap, tmp_path: Path, code: str, lines: list[int]) -> None:
    (tmp_path / "its_library.py").write_text("def f():\n    v = 5\n    breakpoint()\n")
    two.kernel.ok(f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    cell = two.kernel.send(code)
    for line in lines:
        assert two.stopped()["reason"] == "breakpoint"
        two.until_stopped({0, 1})
        assert two.line() == line
        assert two.scope(two.frames()[0], "Locals")["v"]["value"] == "5"
        two.ok("continue", threadId=1)
    assert two.kernel.collect(cell).status == "ok"


def test_what_can_be_done_at_a_breakpoint_in_code(few: Dap) -> None:
    size = 2 if "spmd" in few.ok("debugInfo") else 1
    few.kernel.ok("def f(n):\n    breakpoint()\n    return n")
    code = "x = 1\nf(2)\ny = 3"

    def stop() -> str:
        cell = few.kernel.send(code)
        few.stopped()
        if size > 1:
            few.until_stopped({0, 1})
        return cell

    cell = stop()
    frame = few.frames()[0]["id"]
    # A function that the user calls is not suspended, whatever is in it: nobody could let it go on.
    found = few.ok("evaluate", expression="f(n) + sorted([7])[0]", frameId=frame, context="repl")
    assert found["result"] == "9"
    for command, lines in (("next", {3}), ("stepOut", {2, 3})):  # the call's line, or the next one
        few.ok(command, threadId=1)
        assert few.stopped()["reason"] == "step"
        assert few.line() in lines
        if size > 1:
            few.until_stopped({0, 1})
    few.ok("continue", threadId=1)
    assert few.kernel.collect(cell).status == "ok"
    cell = stop()
    few.kernel.request("interrupt_request", {}, "control")
    assert few.kernel.collect(cell).reply["ename"] == "KeyboardInterrupt"
    cell = stop()
    few.ok("continue", threadId=1)
    assert few.kernel.collect(cell).status == "ok"


def test_child_processes_are_left_alone(few: Dap) -> None:
    """A forked one has no thread that could hear of a client: a breakpoint would stop it for ever."""
    code = """\
import os, subprocess, sys
def work():
    a = 1
    breakpoint()
    return a + 1
read, write = os.pipe()
if not (child := os.fork()):
    os.write(write, str(work()).encode())
    os._exit(0)
os.waitpid(child, 0)
forked = os.read(read, 10)
spawned = subprocess.run([sys.executable, "-c", "print(3)"], capture_output=True).stdout
print(forked, spawned)
"""
    few.breakpoints(code, 3)
    assert r"b'2' b'3\n'" in few.kernel.ok(code).stdout
    few.breakpoints(code)
    few.breakpoints(CODE, 4)  # the parent's are as they were
    cell = few.kernel.send(CODE)
    few.stopped()
    few.ok("disconnect")
    assert few.kernel.collect(cell).status == "ok"


def test_pause(two: Dap) -> None:
    reply = two.ask("pause", threadId=1)
    assert not reply["success"] and "no rank runs a cell" in reply["message"]
    code = "import time\ngo = False\nprint('on')\nwhile not go:\n    time.sleep(0.01)\n"
    two.ok("dumpCell", code=code)
    cell = two.kernel.send(code)
    two.kernel.wait_iopub(lambda m: m["content"].get("text") == "on\n")
    two.ok("pause", threadId=1)
    two.stopped()
    two.until_stopped({0, 1})
    for rank in (0, 1):
        frame = two.frames(thread(rank))[0]
        two.ok("evaluate", expression="go = True", frameId=frame["id"], context="repl")
    two.ok("continue", threadId=1)
    assert two.kernel.collect(cell).status == "ok"


# ---------------------------------------------------------------- ranks come and go


def test_a_stopped_rank_is_killed(two: Dap) -> None:
    two.breakpoints(CODE, 4)
    cell = two.kernel.send(CODE, allow_stdin=True)
    first = two.stopped()["threadId"]
    two.until_stopped({0, 1})
    rank = (first >> 16) - 1
    other = thread(1 - rank)
    frame = two.frames(other)[0]
    os.kill(pid_of(two, rank), signal.SIGKILL)
    said = two.event("output", lambda body: f"rank {rank} died" in body["output"])
    assert "SIGKILL" in said["output"]
    assert two.stopped()["threadId"] == other
    assert two.scope(frame, "Locals")["a"]["value"] == str(1 - rank)
    assert two.ok("debugInfo")["stoppedThreads"] == [other]
    two.ok("continue", threadId=1)
    assert two.kernel.collect(cell).status == "error"
    two.kernel.ok("%restart dead")
    cell = two.kernel.send(CODE)  # nobody has sent a breakpoint again
    two.stopped()
    two.until_stopped({0, 1})
    two.ok("continue", threadId=1)
    assert two.kernel.collect(cell).status == "ok"


def test_new_ranks_take_part(few: Dap) -> None:
    few.breakpoints(CODE, {"line": 4, "condition": "RANK == WORLD_SIZE - 1"})
    for magic, last in (("%processes 3", 2), ("%processes 2 --keep", 1), ("%restart 1", 1)):
        few.kernel.ok(magic)
        cell = few.kernel.send(CODE)
        assert few.stopped()["threadId"] == thread(last)
        assert few.line() == 4
        few.until_stopped({last})
        few.ok("continue", threadId=1)
        assert few.kernel.collect(cell).status == "ok"
    assert few.ok("debugInfo")["isStarted"]


def test_a_page_that_is_reloaded_is_told_all(two: Dap) -> None:
    path = two.breakpoints(CODE, 4)
    cell = two.kernel.send(CODE)
    first = two.stopped()["threadId"]
    two.until_stopped({0, 1})
    info = Dap(two.kernel).ok("debugInfo")
    assert info["isStarted"] and info["stoppedThreads"][0] == first
    assert set(info["stoppedThreads"]) == {thread(0), thread(1)}
    assert info["breakpoints"] == [{"source": path, "breakpoints": [{"line": 4}]}]
    assert re.fullmatch(r".*/spmd_ipykernel_cells_\d+/", info["tmpFilePrefix"])
    assert Path(path).read_text() == CODE
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    two.ok("continue", threadId=info["stoppedThreads"][0])
    assert two.kernel.collect(cell).status == "ok"


# ---------------------------------------------------------------- values


def test_rich_values(few: Dap) -> None:
    few.kernel.ok("v = 'text'")
    rich = few.ok("richInspectVariables", variableName="v")
    assert rich["data"] == {"text/plain": "'text'"}
    few.breakpoints(CODE, 4)
    cell = few.kernel.send(CODE)
    first = few.stopped()["threadId"]
    rank = str((first >> 16) - 1)
    # ipykernel has no answer to this without a frame.
    assert few.ok("richInspectVariables", variableName="a")["data"] == {"text/plain": rank}
    frame = few.frames()[0]["id"]
    row = few.ok("richInspectVariables", variableName="a ≠", frameId=frame)  # in All ranks
    assert row["data"] == {"text/plain": rank}
    few.ok("copyToGlobals", srcVariableName="a", dstVariableName="copied", srcFrameId=frame)
    assert few.ask("copyToGlobals", srcVariableName="!", dstVariableName="b", srcFrameId=frame)[
        "message"
    ].endswith("must be valid identifiers")
    few.ok("next", threadId=1)
    few.stopped()
    few.ok("disconnect")
    assert few.kernel.collect(cell).status == "ok"
    rows = {row["name"]: row for row in few.ok("inspectVariables")["variables"]}
    assert rank in rows["copied"]["value"]
    assert few.ok("modules")["totalModules"] > 50


def test_what_is_no_request(two: Dap) -> None:
    for command in ("terminate", "restart", "launch"):
        assert not two.ask(command)["success"]
    assert not two.ask("no such command")["success"]
    assert not two.ask("scopes", frameId=10**9)["success"]
    assert not two.ask("variables", variablesReference="x")["success"]
    content = {"type": "request", "seq": 1, "arguments": {}}
    assert not two.kernel.request("debug_request", content, "control")["success"]
    assert two.kernel.ok("1 + 1").text.strip() == "2"


# ---------------------------------------------------------------- the kernel around it


def test_the_feature_is_announced(pair: Kernel) -> None:
    info = pair.request("kernel_info_request", {})
    assert "debugger" in info["supported_features"] and info["debugger"] is True


def adapters(pid: int) -> set[int]:
    found = set()
    for child in descendants(pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"debugpy" in command:
            found.add(child)
    return found


@pytest.mark.parametrize("old", [False, True], ids=["in the ranks", "with adapters"])
def test_nothing_runs_when_off_and_nothing_is_left(old: bool) -> None:
    """Also with a debugpy that cannot do without a process of its own beside each rank."""
    with Kernel() as kernel:
        kernel.ok("%processes 2")
        family = descendants(kernel.pid)
        dap = Dap(kernel)
        dap.ok("debugInfo")
        assert descendants(kernel.pid) == family
        if old:
            kernel.ok(OLD)
        dap.start()
        found = adapters(kernel.pid)
        assert len(found) == (2 if old else 0)
        assert old or descendants(kernel.pid) == family
        dap.breakpoints(CODE, 4)
        cell = kernel.send(CODE)
        dap.stopped()
        dap.until_stopped({0, 1})
        dap.ok("next", threadId=1)
        dap.stopped()
        dap.until_stopped({0, 1})
        dap.ok("continue", threadId=1)
        assert kernel.collect(cell).status == "ok"
        kernel.send(CODE)
        dap.stopped()
    wait_gone(found)


def test_ipc(tmp_path: Path) -> None:
    """Connections by files; debugpy's own stay TCP on loopback."""
    from jupyter_client import KernelManager

    class Ipc(Kernel):
        def __init__(self) -> None:
            self.manager = KernelManager(
                kernel_name="spmd-python3", transport="ipc", ip=str(tmp_path / "k")
            )
            self.manager.start_kernel()
            self.client = self.manager.client()
            self.client.start_channels()
            self.client.wait_for_ready(timeout=90)
            self.stray = []

    with Ipc() as kernel:
        kernel.ok("%processes 2")
        dap = Dap(kernel)
        dap.start()
        dap.breakpoints(CODE, 4)
        cell = kernel.send(CODE)
        dap.stopped()
        dap.until_stopped({0, 1})
        dap.ok("continue", threadId=1)
        assert kernel.collect(cell).status == "ok"
