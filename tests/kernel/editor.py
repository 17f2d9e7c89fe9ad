"""An editor that attaches to the debug port: debugpy's own DAP channel, driven as editors do."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from debugpy.common.messaging import (
    JsonIOStream,
    JsonMessageChannel,
    MessageHandlers,
    MessageHandlingError,
)

from .client import DEADLINE, Kernel

Body = dict[str, Any]


class Address:
    """What `%debugport` showed, read as a person reads it: the entry for launch.json."""

    def __init__(self, shown: str):
        entry = json.loads(re.search(r"^  \{$.*?^  \}$", shown, re.MULTILINE | re.DOTALL)[0])  # type: ignore[index]
        self.entry: dict[str, Any] = entry
        self.host: str = entry["connect"]["host"]
        self.port: int = entry["connect"]["port"]
        self.token: str = entry["token"]

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=DEADLINE)


class Editor:
    """One connection.  Requests wait for their response; events are read in order."""

    def __init__(self, address: Address):
        self.address = address
        self.events: list[tuple[str, Body]] = []
        self.closed = threading.Event()
        self._read = 0
        self._came = threading.Condition()
        stream = JsonIOStream.from_socket(address.connect(), "editor")
        handlers = MessageHandlers(event=self._event, disconnect=self.closed.set)
        self.channel = JsonMessageChannel(stream, handlers)
        self.channel.start()

    def _event(self, event: Any) -> None:
        with self._came:
            self.events.append((event.event, dict(event.body or {})))
            self._came.notify_all()

    def ask(self, command: str, **arguments: Any) -> Any:
        """The body of the response. Raises `MessageHandlingError`: what the other side says failed."""
        request = self.channel.send_request(command, arguments)
        done = threading.Event()
        request.on_response(lambda _: done.set())
        assert done.wait(DEADLINE), f"no response to {command}"
        response = request.response
        if not response.success:
            raise (
                response.body if isinstance(response.body, Exception) else AssertionError(response)
            )
        return response.body

    def fails(self, command: str, **arguments: Any) -> str:
        try:
            body = self.ask(command, **arguments)
        except MessageHandlingError as error:
            return str(error)
        raise AssertionError(f"{command} did well: {body}")

    def attach(self) -> None:
        """As VS Code does it."""
        self.initialize()
        entry = {k: v for k, v in self.address.entry.items() if k != "connect"}
        self.ask("attach", **entry)
        self.event("initialized")
        self.ask("setExceptionBreakpoints", filters=[])
        self.ask("configurationDone")

    def initialize(self) -> Any:
        return self.ask(
            "initialize",
            clientID="vscode",
            adapterID="debugpy",
            pathFormat="path",
            linesStartAt1=True,
            columnsStartAt1=True,
            supportsVariableType=True,
            supportsRunInTerminalRequest=True,
        )

    def break_at(self, path: str, *points: int | Body) -> list[Body]:
        asked = [point if isinstance(point, dict) else {"line": point} for point in points]
        body = self.ask("setBreakpoints", source={"path": path}, breakpoints=asked)
        return list(body["breakpoints"])

    def event(self, kind: str, wanted: Callable[[Body], bool] = lambda _: True) -> Body:
        """The next one of this kind; those before it are read then."""
        deadline = time.monotonic() + DEADLINE
        with self._came:
            while True:
                while self._read < len(self.events):
                    name, body = self.events[self._read]
                    self._read += 1
                    if name == kind and wanted(body):
                        return body
                left = deadline - time.monotonic()
                assert left > 0 and self._came.wait(left), f"no event {kind}: {self.events}"

    def stops(self, number: int) -> dict[int, Body]:
        """The next stops of so many ranks, by rank, in whatever order they come."""
        found: dict[int, Body] = {}
        while len(found) < number:
            body = self.event("stopped")
            found[(body["threadId"] >> 16) - 1] = body
        return found

    def frames(self, thread: int) -> list[Body]:
        return list(self.ask("stackTrace", threadId=thread)["stackFrames"])

    def scope(self, frame: Body, name: str) -> dict[str, Body]:
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        reference = next(s["variablesReference"] for s in scopes if s["name"] == name)
        return self.rows(reference)

    def rows(self, reference: int) -> dict[str, Body]:
        rows = self.ask("variables", variablesReference=reference)["variables"]
        return {row["name"]: row for row in rows}

    def wait_closed(self) -> None:
        assert self.closed.wait(DEADLINE), "the connection is still open"

    def close(self) -> None:
        self.channel.close()
        self.channel.wait()


@contextmanager
def editor(address: Address, *, attached: bool = True) -> Iterator[Editor]:
    one = Editor(address)
    try:
        if attached:
            one.attach()
        yield one
    finally:
        one.close()


def open_port(kernel: Kernel, options: str = "") -> Address:
    return Address(kernel.ok(f"%debugport {options}".strip()).stdout)
