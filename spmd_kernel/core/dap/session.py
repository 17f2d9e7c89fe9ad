"""One client of the debugger: its requests, one after the other, and what it is told.

Each transport has one: JupyterLab's `debug_request` and `debug_event` (`jupyter`), a socket that speaks
DAP itself.  All of them share the ranks and what is known of these (`debugger.Debugger`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..content import Content
from ..conversation import Talk
from ..errors import BadMessage, InternalError, SpmdError
from .base import Call, Play, Policy

if TYPE_CHECKING:
    from .debugger import Debugger

SHARED = {"inspectVariables"}  # Lab asks at every message of a cell: one answer for all that wait


class Waiting(Protocol):
    """A request that has come: it is served, then answered, once each."""

    def begin(self) -> None: ...
    def end(self, response: Mapping[str, Any]) -> None:
        """``response``: DAP's, complete."""


Event = Callable[[Mapping[str, Any]], None]
Make = Callable[[Callable[[str, Mapping[str, Any]], None]], Policy]


@dataclass(slots=True)
class _Item:
    request: Content
    waiting: Waiting


@dataclass(slots=True)
class Session:
    """``send`` takes complete DAP events; ``policy`` decides which stops the client hears of.

    ``overlay``: a breakpoint that comes back without its condition keeps it (Lab forgets them).
    ``serve``: what serves its requests, if that is not the debugger alone.
    """

    name: str
    debugger: Debugger
    send: Event
    overlay: bool = False
    serve: Play | None = None
    policy: Policy = field(init=False)
    started: bool = False  # it has sent initialize
    attached: bool = False
    returns: bool = False  # the last thing that it did was to disconnect
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)  # see `commands.breakpoints`
    _seq: int = 0
    _queue: deque[_Item] = field(default_factory=deque)
    _served: list[_Item] = field(default_factory=list)
    _talk: Talk | None = None

    def post(self, event: str, body: Mapping[str, Any] | None = None) -> None:
        message: dict[str, Any] = {"seq": self._next_seq(), "type": "event", "event": event}
        if body is not None:
            message["body"] = body
        self.send(message)

    def request(self, request: Content, waiting: Waiting) -> None:
        self._queue.append(_Item(request, waiting))
        self._go_on()

    def abandon(self, waiting: Waiting) -> None:
        """The client is gone: it disconnects once what is being served is over, and asks nothing else."""
        self._queue.clear()
        self.request(Content({"command": "disconnect"}), waiting)

    def close(self, why: str) -> None:
        """Nobody will answer what waits."""
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.close()
        error = InternalError(why)
        served, self._served = self._served, []
        for item in served:
            self._answer(item, None, error)
        while self._queue:
            item = self._queue.popleft()
            item.waiting.begin()
            self._answer(item, None, error)

    def _go_on(self) -> None:
        # A loop, not recursion: many requests may wait that are answered at once.
        while self._queue and not self._served:
            self._serve(self._take())

    def _take(self) -> list[_Item]:
        first = self._queue.popleft()
        if first.request.get("command") not in SHARED:
            return [first]
        alike = [i for i in self._queue if i.request.get("command") == first.request["command"]]
        self._queue = deque(item for item in self._queue if item not in alike)
        return [first, *alike]

    def _serve(self, items: list[_Item]) -> None:
        self._served = items
        items[0].waiting.begin()

        def done(body: Any, error: SpmdError | None) -> None:
            served, self._served, self._talk = self._served, [], None
            for item in served:
                if item is not items[0]:
                    item.waiting.begin()
                self._answer(item, body, error)
            self._go_on()

        try:
            serve = self.serve or self.debugger.script
            script = serve(self._call(items[0].request))
        except SpmdError as error:
            done(None, error)
            return
        self._talk = Talk(script, self.debugger.perform, done)
        self._talk.step()

    def _call(self, request: Content) -> Call:
        command = request.text("command")
        if not command:
            raise BadMessage("a debug request without a command")
        self.returns &= command == "initialize"
        arguments = request.get("arguments")
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, Mapping):
            raise BadMessage(f"'arguments' has type {type(arguments).__name__}")
        return Call(command, Content(arguments), self, self.debugger)

    def _answer(self, item: _Item, body: Any, error: SpmdError | None) -> None:
        response: dict[str, Any] = {
            "seq": self._next_seq(),
            "type": "response",
            "request_seq": item.request.get("seq", 0),
            "success": error is None,
            "command": item.request.get("command", ""),
        }
        if error is not None:
            response["message"] = f"{error}\nhint: {error.hint}" if error.hint else str(error)
        elif body is not None:
            response["body"] = body
        item.waiting.end(response)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq
