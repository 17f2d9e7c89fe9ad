"""Control requests to real ranks: while a cell runs, while ranks start, after one died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient

from spmd_kernel.core.control import COMMANDS
from spmd_kernel.core.control.schema import fault
from spmd_kernel.core.model import OUTPUT_TYPES

from .client import DEADLINE, Kernel, Result, wait_gone

pytestmark = pytest.mark.kernel


def control(kernel: Kernel, command: str, **arguments: Any) -> Any:
    content = {"command": command, "arguments": arguments}
    reply = kernel.request("spmd_request", content, "control")
    assert reply["status"] == "ok", reply
    assert fault(reply["data"], COMMANDS[command].data, "data") == ""
    return reply["data"]


def until(kernel: Kernel, holds: Callable[[Any], bool]) -> Any:
    """The first status that ``holds``."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        status = control(kernel, "status")
        if holds(status):
            return status
    raise AssertionError(status)


def outputs(result: Result) -> list[tuple[str, Any]]:
    return [
        (m["header"]["msg_type"], m["content"])
        for m in result.messages
        if m["header"]["msg_type"] in OUTPUT_TYPES
    ]


def logged(data: Any) -> list[tuple[str, Any]]:
    return [(m["msg_type"], m["content"]) for m in data["messages"]]


WAIT = "import time\nwhile True: time.sleep(0.05)"


def test_a_cell_that_runs_is_seen_and_interrupted_rank_by_rank(four: Kernel) -> None:
    msg_id = four.send(WAIT, allow_stdin=True)  # or the others would be stopped, too
    status = until(four, lambda s: s["running"] and len(s["running"]["ranks"]) == 4)
    assert status["running"]["msg_id"] == msg_id
    assert {entry["state"] for entry in status["ranks"]} == {"busy"}
    status = control(four, "status", resources=True)
    assert all(entry["rss"] > 10_000_000 for entry in status["ranks"])
    assert control(four, "interrupt", ranks=[1, 2]) == {"interrupted": [1, 2]}
    status = until(four, lambda s: s["running"]["ranks"] == [0, 3])
    assert [entry["state"] for entry in status["ranks"]] == ["busy", "idle", "idle", "busy"]
    assert control(four, "interrupt")["interrupted"] == [0, 3]
    result = four.collect(msg_id)
    assert result.reply["ename"] == "KeyboardInterrupt"
    assert four.ok("1 + 1").text.strip() == "2"


def test_ranks_are_started_and_it_answers_meanwhile(kernel: Kernel) -> None:
    content = {"command": "processes", "arguments": {"size": 2}}
    message = kernel.client.session.msg("spmd_request", content)
    kernel.client.control_channel.send(message)
    seen = []
    while True:
        asking = kernel.client.session.msg("spmd_request", {"command": "status"})
        kernel.client.control_channel.send(asking)
        reply = kernel.client.get_control_msg(timeout=DEADLINE)
        if reply["parent_header"]["msg_id"] == message["header"]["msg_id"]:
            break
        seen.append(reply["content"]["data"])
    assert reply["content"]["status"] == "ok", reply
    assert reply["content"]["data"]["size"] == 2
    assert reply["content"]["data"]["text"].startswith("2 ranks ready in ")
    assert any(status["state"] == "busy" for status in seen)
    assert any(entry["state"] == "starting" for status in seen for entry in status["ranks"])
    assert sorted(kernel.ok("import os; print(os.environ['RANK'])").stdout.split()) == [
        "0", "0", "1", "1", "│", "│",
    ]  # fmt: skip


def test_a_dead_rank_is_named_and_brought_back(pair: Kernel) -> None:
    pid = control(pair, "status")["ranks"][1]["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_gone({pid})
    status = until(pair, lambda s: s["ranks"][1]["state"] == "dead")
    assert "SIGKILL" in status["ranks"][1]["cause"]
    text = control(pair, "processes", size=2)["text"]
    assert text.startswith("rank 1 is back after ")
    assert {entry["state"] for entry in control(pair, "status")["ranks"]} == {"idle"}


STUCK = """\
import os, signal, time
if os.environ["RANK"] == "1":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
while True: time.sleep(0.05)
"""


def test_a_rank_that_hears_nothing_is_replaced_while_its_cell_runs(pair: Kernel) -> None:
    pair.ok("kept = 'still here'")
    msg_id = pair.send(STUCK)
    until(pair, lambda s: s["running"] and len(s["running"]["ranks"]) == 2)
    text = control(pair, "restart", ranks=[1], force=True)["text"]
    assert text.startswith("rank 1 is back after ") and "rank 0 kept its memory" in text
    result = pair.collect(msg_id)
    assert "killed to be restarted" in result.reply["evalue"]
    assert pair.ok("%rank 0 kept").text.strip() == "'still here'"
    (*_, stopped) = control(pair, "timing")["cells"][:2]
    assert 1 in stopped["failed"] and stopped["code"] == "import os, signal, time"


PRINTS = """\
import os, sys, time
from IPython.display import display
for number in range(60):
    print(number, os.environ["RANK"] if number % 3 else "")
    sys.stdout.flush()
    if number % 10 == 0:
        display({"text/plain": f"figure {number}"}, raw=True)
    time.sleep(0.02)
number
"""


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_client_that_comes_late_gets_exactly_what_it_missed(size: int) -> None:
    with Kernel() as kernel:
        if size > 1:
            kernel.ok(f"%processes {size}")
        seen = 0

        def watch(result: Result) -> None:
            nonlocal late, seen
            seen = len(outputs(result))
            if seen > 20 and late is None:
                late = LateClient(kernel, msg_id)

        late: LateClient | None = None
        msg_id = kernel.send(PRINTS)
        result = kernel.collect(msg_id, watch)
        assert late is not None
        shown = outputs(result)
        assert late.all(len(shown)) == shown
        late.close()
        whole = control(kernel, "outputs", msg_id=msg_id, most=10_000_000)
        assert logged(whole) == shown
        assert (whole["state"], whole["dropped"]) == ("done", 0)
        tail = control(kernel, "outputs", msg_id=msg_id, **{"from": 15})
        assert logged(tail) == shown[15:]


class LateClient:
    """A page that was reloaded: it asks for the log, and goes on with what it hears live."""

    def __init__(self, kernel: Kernel, msg_id: str):
        self.client = BlockingKernelClient(connection_file=kernel.manager.connection_file)
        self.client.load_connection_file()  # a session of its own: replies go by it
        self.client.start_channels()
        self.msg_id = msg_id
        self._until_it_hears()
        content = {"command": "outputs", "arguments": {"msg_id": msg_id, "most": 10_000_000}}
        self.request = self.client.session.msg("spmd_request", content)
        self.client.control_channel.send(self.request)
        self.data = self.client.get_control_msg(timeout=DEADLINE)["content"]["data"]

    def _until_it_hears(self) -> None:
        """Its IOPub is connected once a question's answer comes with a status."""
        while True:
            self.client.control_channel.send(self.client.session.msg("kernel_info_request", {}))
            self.client.get_control_msg(timeout=DEADLINE)
            if self.client.iopub_channel.msg_ready():
                return

    def all(self, count: int) -> list[tuple[str, Any]]:
        """The log, then what came after the idle of the request for it."""
        found = logged(self.data)
        live = False
        while len(found) < count or not live:
            message = self.client.get_iopub_msg(timeout=DEADLINE)
            kind, parent = message["header"]["msg_type"], message["parent_header"].get("msg_id")
            if parent == self.request["header"]["msg_id"]:
                live = live or message["content"].get("execution_state") == "idle"
            elif live and parent == self.msg_id and kind in OUTPUT_TYPES:
                found.append((kind, message["content"]))
        return found

    def close(self) -> None:
        self.client.stop_channels()


def test_a_front_end_is_pushed_what_changes(pair: Kernel) -> None:
    opened = {"comm_id": "s", "target_name": "spmd.status", "data": {"resources": True}}
    message = pair.client.session.msg("comm_open", opened)
    pair.client.shell_channel.send(message)

    def pushed(kind: str, holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
        def wanted(message: Any) -> bool:
            data = message["content"].get("data") or {}
            is_ours = message["content"].get("comm_id") == "s" and data.get("kind") == kind
            return bool(is_ours and holds(data["status"]))

        return wanted

    full = pair.wait_iopub(pushed("full", lambda status: True))
    assert full["parent_header"]["msg_id"] == message["header"]["msg_id"]
    assert full["content"]["data"]["status"]["size"] == 2
    pair.stray.clear()
    msg_id = pair.send(WAIT)
    pair.wait_iopub(pushed("change", lambda status: status.get("state") == "busy"))
    control(pair, "interrupt")
    pair.wait_iopub(pushed("change", lambda status: status.get("state") == "idle"))
    assert msg_id
    opened = {"comm_id": "s", "data": {}}
    pair.client.shell_channel.send(pair.client.session.msg("comm_close", opened))
    assert pair.request("comm_info_request", {})["comms"] == {}
    assert pair.ok("get_ipython().kernel.comm_manager.comms").text.strip() == "{}"


def test_a_shutdown_while_it_starts_ranks(kernel: Kernel) -> None:
    content = {"command": "processes", "arguments": {"size": 4}}
    message = kernel.client.session.msg("spmd_request", content)
    kernel.client.control_channel.send(message)
    until_busy = kernel.client.session.msg("spmd_request", {"command": "status"})
    kernel.client.control_channel.send(until_busy)
    kernel.client.get_control_msg(timeout=DEADLINE)
    pid = kernel.pid
    kernel.client.control_channel.send(kernel.client.session.msg("shutdown_request", {}))
    replies = {}
    while "shutdown_reply" not in replies:
        reply = kernel.client.get_control_msg(timeout=DEADLINE)
        replies[reply["header"]["msg_type"]] = reply["content"]
    assert "shuts down" in replies["spmd_reply"]["evalue"]
    wait_gone({pid})


# ---------------------------------------------------------------- from a terminal


def run(kernel: Kernel, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spmd_kernel.cli", *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        cwd=Path(__file__).parents[2],
        check=False,
    )


def test_from_a_terminal_while_a_cell_runs(pair: Kernel) -> None:
    file = pair.manager.connection_file
    msg_id = pair.send(WAIT)
    until(pair, lambda s: s["running"] and len(s["running"]["ranks"]) == 2)
    done = run(pair, "request", "status", "--connection", file)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["running"]["msg_id"] == msg_id
    done = run(pair, "where", file)
    assert done.returncode == 0, done.stderr
    assert "ranks 0-1: cell line 2" in done.stdout
    done = run(pair, "request", "interrupt", '{"ranks": [7]}', "--connection", file)
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no rank 7" in done.stderr and "hint: " in done.stderr
    done = run(pair, "request", "interrupt", "--connection", file)
    assert json.loads(done.stdout) == {"interrupted": [0, 1]}
    assert pair.collect(msg_id).reply["ename"] == "KeyboardInterrupt"
