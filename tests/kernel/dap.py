"""A debugging client of a kernel, by the messages that JupyterLab sends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .client import DEADLINE, Kernel

CODE = """\
import os
rank = int(os.environ["RANK"])
def f(a):
    b = a + 1
    c = b * 10
    return c
x = f(rank)
y = x + 1
"""

# Of debugpy: it has no server in the process itself, so that ipykernel starts an adapter.
OLD = """\
import debugpy as _debugpy
_listen = _debugpy.listen
_debugpy.listen = lambda address: _listen(address)
"""

INITIALIZE = {
    "clientID": "test",
    "clientName": "test",
    "adapterID": "",
    "pathFormat": "path",
    "linesStartAt1": True,
    "columnsStartAt1": True,
    "supportsVariableType": True,
    "supportsVariablePaging": True,
    "supportsRunInTerminalRequest": True,
    "locale": "en",
}

Event = dict[str, Any]


class Dap:
    """Requests as attributes of `ask`; events in the order in which they came."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.events: list[Event] = []
        self.unread: list[Event] = []
        self._seen = 0
        self._seq = 0

    def start(self) -> None:
        self.ok("initialize", **INITIALIZE)
        self.ok("attach")

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        self._seq += 1
        content = {"type": "request", "seq": self._seq, "command": command, "arguments": arguments}
        reply: dict[str, Any] = self.kernel.request("debug_request", content, "control")
        assert reply["request_seq"] == self._seq and reply["command"] == command
        assert reply["type"] == "response"
        return reply

    def ok(self, command: str, **arguments: Any) -> Any:
        reply = self.ask(command, **arguments)
        assert reply["success"], reply
        return reply.get("body")

    # ---------------------------------------------------------------- events

    def _take(self, message: dict[str, Any]) -> None:
        if message["header"]["msg_type"] == "debug_event":
            self.events.append(message["content"])
            self.unread.append(message["content"])

    def _read_strays(self) -> None:
        for message in self.kernel.stray[self._seen :]:
            self._take(message)
        self._seen = len(self.kernel.stray)

    def event(self, kind: str, wanted: Callable[[Event], bool] = lambda _: True) -> Event:
        """The next one of this kind; those before it are read then."""
        deadline = time.monotonic() + DEADLINE
        while True:
            self._read_strays()
            while self.unread:
                event = self.unread.pop(0)
                if event["event"] == kind and wanted(event.get("body", {})):
                    return dict(event.get("body", {}))
            self.kernel.stray.append(self.kernel._iopub(deadline))

    def so_far(self) -> list[Event]:
        """All events that a question asked now comes after."""
        self._seq += 1
        message = self.kernel.client.session.msg(
            "debug_request",
            {"type": "request", "seq": self._seq, "command": "debugInfo", "arguments": {}},
        )
        self.kernel.client.control_channel.send(message)
        wanted = message["header"]["msg_id"]
        self.kernel.wait_iopub(
            lambda m: (
                m["parent_header"].get("msg_id") == wanted
                and m["content"].get("execution_state") == "idle"
            )
        )
        self.kernel.client.get_control_msg(timeout=DEADLINE)
        self._read_strays()
        return list(self.events)

    def stopped(self) -> Event:
        return self.event("stopped")

    def until_stopped(self, ranks: set[int]) -> Any:
        """The state in which just these ranks are stopped, as debugInfo tells it."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            info = self.ok("debugInfo")
            if {r["rank"] for r in info["spmd"]["ranks"] if r["state"] == "stopped"} == ranks:
                return info
        raise AssertionError(info)

    # ---------------------------------------------------------------- what tests do

    def breakpoints(self, code: str, *points: int | dict[str, Any]) -> str:
        """Of a cell; its path."""
        path: str = self.ok("dumpCell", code=code)["sourcePath"]
        asked = [point if isinstance(point, dict) else {"line": point} for point in points]
        body = self.ok(
            "setBreakpoints", source={"path": path}, breakpoints=asked, sourceModified=False
        )
        assert all(point["verified"] for point in body["breakpoints"]), body
        return path

    def frames(self, thread: int = 1) -> list[dict[str, Any]]:
        return list(self.ok("stackTrace", threadId=thread)["stackFrames"])

    def line(self, thread: int = 1) -> int:
        return int(self.frames(thread)[0]["line"])

    def rows(self, reference: int) -> dict[str, dict[str, Any]]:
        rows = self.ok("variables", variablesReference=reference)["variables"]
        return {row["name"]: row for row in rows}

    def scope(self, frame: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
        scopes = self.ok("scopes", frameId=frame["id"])["scopes"]
        return self.rows(next(s["variablesReference"] for s in scopes if s["name"] == name))


def thread(rank: int, tid: int = 1) -> int:
    return ((rank + 1) << 16) | tid


@contextmanager
def debugged(size: int, **start: Any) -> Iterator[Dap]:
    with Kernel(**start) as kernel:
        if size > 1:
            kernel.ok(f"%processes {size}")
        dap = Dap(kernel)
        dap.start()
        yield dap
