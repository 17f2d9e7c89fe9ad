"""DAP over TCP: the debug port, for clients that are no notebook (VS Code, nvim-dap, …).

Off until `%debugport` opens it.  Anybody on this machine can connect, so nothing happens to a rank
before a client has said the token, as an argument of its attach request, within a few seconds; what
is no frame of this protocol ends the connection.  One client is attached at a time.  It is one more
`session.Session` of the debugger that JupyterLab has, and each keeps its own breakpoints.

Specification: Debug Adapter Protocol, "Initialization", "Launching and attaching".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any

from ..content import Content, loads
from ..conversation import Script
from ..errors import BadMessage, RankLost, UsageError
from ..magics.base import PortReport
from ..model import (
    ClosePort,
    Connected,
    Disconnected,
    HangUp,
    KeepSource,
    OpenPort,
    PortOpened,
    Received,
    ToConnection,
)
from ..stage import Stage
from .base import Call, Until
from .debugger import Debugger
from .events import AllRanks
from .frames import MOST, BadFrame, Frames, framed
from .lifecycle import send_breakpoints
from .recent import MOST_CHARACTERS, RecentCell, RecentCells
from .session import Session

OPENING_SECONDS = 5.0  # from the connection to the token
MOST_STRANGERS = 8  # connections that have not said it
MOST_OF_STRANGERS = 64 << 10  # bytes of one message of theirs
TIMER = "dap-port"

# What the ranks' debuggers are told of their client, which is us: both kinds of clients share them.
CLIENT = {
    "clientID": "spmd-kernel",
    "clientName": "spmd-kernel",
    "adapterID": "",
    "pathFormat": "path",
    "linesStartAt1": True,
    "columnsStartAt1": True,
    "supportsVariableType": True,
    "supportsVariablePaging": True,
    "supportsRunInTerminalRequest": False,
    "locale": "en",
}

# Said before any rank was asked; `_attach` takes back what they cannot.
CAPABILITIES: Mapping[str, Any] = {
    "supportsConfigurationDoneRequest": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsLogPoints": True,
    "supportsFunctionBreakpoints": True,
    "supportsCompletionsRequest": True,
    "supportsDelayedStackTraceLoading": True,
    "supportsEvaluateForHovers": True,
    "supportsExceptionInfoRequest": True,
    "supportsSetExpression": True,
    "supportsSetVariable": True,
    "supportsValueFormattingOptions": True,
    "supportsClipboardContext": True,
}
OURS: Mapping[str, Any] = {
    "supportsLoadedSourcesRequest": True,
    "supportsSingleThreadExecutionRequests": True,
    "supportsTerminateRequest": False,
    "supportTerminateDebuggee": False,
    "exceptionBreakpointFilters": [  # `uncaught` is not among them: IPython catches all
        {"filter": "userUnhandled", "label": "Errors that end a cell", "default": False},
        {"filter": "raised", "label": "Raised exceptions", "default": False},
    ],
}


@dataclass(slots=True)
class _Client:
    number: int
    session: Session = field(init=False)
    frames: Frames = field(default_factory=lambda: Frames(MOST_OF_STRANGERS))
    trusted: bool = False  # it knows the token
    over: bool = False  # its next answer is the last


class TcpTransport:
    def __init__(self, stage: Stage, debugger: Debugger):
        self._stage = stage
        self._debugger = debugger
        self._port: int | None = None
        self._token = ""
        self._opening = False  # it was asked for, and is not there yet
        self._waiting: list[Callable[[PortReport], None]] = []  # who asked, meanwhile or first
        self._clients: dict[int, _Client] = {}
        self._leaving: set[int] = set()  # gone, but not disconnected from the ranks yet
        self._next: list[Callable[[], None]] = []  # whoever waits for them
        self.cells = RecentCells(stage.settings.cells)

    # ---------------------------------------------------------------- the port

    def open(self, port: int, resume: Callable[[PortReport], None]) -> Callable[[], None]:
        """``resume`` hears how it is, also if it was open before. Returns what gives up on that."""
        if self._port is not None:
            self._show_cells()
            resume(self._report())
            return lambda: None
        self._waiting.append(resume)
        if not self._opening:
            self._opening = True
            self._stage.emit(OpenPort(port))

        def give_up() -> None:
            if resume in self._waiting:
                self._waiting.remove(resume)

        return give_up

    def opened(self, event: PortOpened) -> None:
        self._opening = False
        if not event.problem:
            self._port, self._token = event.port, event.token
        waiting, self._waiting = self._waiting, []
        if self._port is not None and not waiting:  # the user pressed Stop: nobody knows the token
            self.close()
        token = event.token
        for resume in waiting:  # the first is told the token
            resume(self._report(token=token, problem=event.problem))
            token = ""

    def _report(self, token: str = "", problem: str = "") -> PortReport:
        files = [(cell.name, cell.path) for cell in self.cells]
        return PortReport(self._port, token, problem, self._attached() is not None, tuple(files))

    def close(self) -> PortReport:
        """Nobody connects any more, and who is connected hears that it is over."""
        was = self._report()
        if self._port is not None:
            self._port, self._token = None, ""
            self._stage.emit(ClosePort())
        for client in list(self._clients.values()):
            self._end(client)
            self._hang_up(client)
        return was

    def shut_down(self) -> None:
        """The kernel ends, and its ranks with it: nobody needs to disconnect from them."""
        for client in self._clients.values():
            self._end(client)
            self._stage.emit(HangUp(client.number))
        self._clients.clear()
        self._stage.emit(ClosePort())

    def _end(self, client: _Client) -> None:
        if client.session.attached:
            client.session.post("terminated")

    # ---------------------------------------------------------------- connections

    def connected(self, event: Connected) -> None:
        strangers = sum(not client.trusted for client in self._clients.values())
        if self._port is None or strangers >= MOST_STRANGERS:
            self._stage.emit(HangUp(event.connection))
            return
        client = _Client(event.connection)
        client.session = Session(
            f"tcp-{client.number}",
            self._debugger,
            lambda message: self._send(client, message),
            serve=lambda call: self._script(client, call),
        )
        client.session.policy = AllRanks(self._debugger, client.session.post)
        self._clients[client.number] = client
        self._stage.timer((TIMER, client.number), OPENING_SECONDS)

    def received(self, event: Received) -> None:
        client = self._clients.get(event.connection)
        try:
            if client is not None:
                for body in client.frames.feed(event.data):
                    if client.number in self._clients:  # it was not sent away for the one before
                        self._message(client, body)
        except BadMessage as error:
            assert client is not None
            what = "dropped" if isinstance(error, BadFrame) else "a message of it makes no sense"
            self._stage.log("warning", f"debug port: connection {client.number}: {what}: {error}")
            self._hang_up(client)

    def _message(self, client: _Client, body: bytes) -> None:
        message = loads(body)
        if not isinstance(message, dict):
            raise BadMessage(f"a {type(message).__name__}, not an object")
        request = Content(message)
        kind = request.text("type")
        if kind in ("response", "event"):
            return  # nothing is asked of clients, and what they tell is not needed
        if kind != "request" or not request.text("command"):
            raise BadMessage("neither a request nor a response")
        request.integer("seq")
        client.session.request(request, _Waiting(lambda response: self._answer(client, response)))

    def disconnected(self, event: Disconnected) -> None:
        client = self._clients.get(event.connection)
        if client is not None:
            self._lose(client)

    def due(self, connection: int) -> None:
        """It has not said the token in time."""
        client = self._clients.get(connection)
        if client is not None and not client.trusted:
            self._stage.log(
                "warning", f"debug port: connection {connection} did not attach in time"
            )
            self._hang_up(client)

    def _send(self, client: _Client, message: Mapping[str, Any]) -> None:
        if client.number in self._clients:
            self._stage.emit(ToConnection(client.number, framed(message)))

    def _answer(self, client: _Client, response: Mapping[str, Any]) -> None:
        self._send(client, response)
        if client.over:
            self._hang_up(client)

    def _hang_up(self, client: _Client) -> None:
        if client.number in self._clients:
            self._stage.emit(HangUp(client.number))
            self._lose(client)

    def _lose(self, client: _Client) -> None:
        """The ranks, and the other client, go on as if it had disconnected."""
        del self._clients[client.number]
        self._stage.cancel((TIMER, client.number))
        self._leaving.add(client.number)
        client.session.abandon(_Waiting(lambda _: self._left(client)))

    def _left(self, client: _Client) -> None:
        self._leaving.discard(client.number)
        if client.session in self._debugger.sessions:
            self._debugger.sessions.remove(client.session)
        waiting, self._next = self._next, []
        for resume in waiting:
            resume()

    def _wait_for_others(self, resume: Callable[[], None]) -> Callable[[], None]:
        self._next.append(resume)
        return lambda: self._next.remove(resume) if resume in self._next else None

    def _attached(self) -> _Client | None:
        return next((client for client in self._clients.values() if client.trusted), None)

    # ---------------------------------------------------------------- requests

    def _script(self, client: _Client, call: Call) -> Script:
        match call.command:
            case "initialize":
                return self._initialize(client, call)
            case "attach" | "launch":
                return self._attach(client, call)
            case "disconnect":
                return self._disconnect(client, call)
        if not client.trusted:
            client.over = True
            raise UsageError("nothing is served before attach", TOKEN_HINT)
        match call.command:
            case "loadedSources":
                return self._loaded_sources()
            case "source":
                return self._source(call)
            case "setBreakpoints":
                return self._set_breakpoints(call)
            case "stackTrace":
                return self._stack_trace(call)
        return self._debugger.script(call)

    def _initialize(self, client: _Client, call: Call) -> Script:
        yield from ()
        client.over = True
        self._require_vacancy(client)
        if (
            call.arguments.get("linesStartAt1") is False
            or call.arguments.get("columnsStartAt1") is False
            or call.arguments.get("pathFormat", "path") != "path"
        ):
            raise UsageError("lines and columns count from 1 here, and a path is a path, not a URI")
        client.over = False
        return {**CAPABILITIES, **OURS}

    def _require_vacancy(self, client: _Client) -> None:
        if self._attached() not in (None, client):
            raise UsageError(
                "another client is attached to this port", "disconnect it: one is served at a time"
            )

    def _attach(self, client: _Client, call: Call) -> Script:
        if client.trusted:
            raise UsageError("it is attached already")
        client.over = True  # unless it does well
        token = call.arguments.get("token")
        if not isinstance(token, str) or not self._is_token(token):
            raise UsageError("no token, or a wrong one", TOKEN_HINT)
        self._stage.cancel((TIMER, client.number))
        while self._leaving:
            yield Until(self._wait_for_others)
        if client.number not in self._clients:
            raise UsageError("the client is gone")
        self._require_vacancy(client)
        client.trusted, client.frames.most = True, MOST
        session, debugger = client.session, self._debugger
        debugger.sessions.append(session)
        found = yield from debugger.script(Call("initialize", Content(CLIENT), session, debugger))
        lacking = {key: False for key in CAPABILITIES if not found.get(key)}
        if lacking:
            session.post("capabilities", {"capabilities": lacking})
        yield from debugger.script(Call("attach", Content(), session, debugger))
        self._show_cells()
        client.over = False
        return None

    def _is_token(self, said: str) -> bool:
        known = compare_digest(said.encode("utf-8", "replace"), self._token.encode())
        return known and self._port is not None

    def _disconnect(self, client: _Client, call: Call) -> Script:
        client.over = True
        if client.session.started:
            yield from self._debugger.script(call)
        return None

    # ---------------------------------------------------------------- cells

    def ran(self, code: str, count: int | None) -> None:
        """Ranks begin to run this."""
        self.cells.ran(code, count)
        client = self._attached()
        path = self.cells.path(code) if client is not None else None
        cell = self.cells.at(path) if path is not None else None
        if client is not None and client.session.attached and cell is not None:
            self._stage.emit(KeepSource(cell.path, cell.code))
            client.session.post("loadedSource", {"reason": "new", "source": _source_of(cell)})

    def prepare(self, code: str) -> Script:
        """Before ranks run a cell: a client that was attached to an earlier kernel has breakpoints in it,
        and no rank's debugger has the file yet.  An editor set them before anybody knew the text; JupyterLab
        does not send it again, as the path has stayed the same."""
        client, debugger = self._attached(), self._debugger
        session = next((each for each in debugger.sessions if each.attached), None)
        wanted = [path for path in debugger.store.paths if path not in debugger.sources.cells]
        if session is None or not any(map(self._is_cell, wanted)):
            return
        path = self.cells.named(code) if len(code) <= MOST_CHARACTERS else None
        if path is None or path not in wanted:
            return
        try:
            yield from debugger.script(Call("dumpCell", Content({"code": code}), session, debugger))
            yield from send_breakpoints(debugger, path, {})
        except RankLost as error:
            debugger.say(f"breakpoints of this cell could not be set: {error}")
        if client is None or not client.session.attached:
            return
        for point in debugger.store.at(path):
            told = {"reason": "changed", "breakpoint": point.as_told(path)}
            client.session.post("breakpoint", told)

    def _is_cell(self, path: str) -> bool:
        return self._debugger.sources.is_cell(path)

    def _show_cells(self) -> None:
        """Where an editor finds them."""
        for cell in self.cells:
            self._stage.emit(KeepSource(cell.path, cell.code))

    def _loaded_sources(self) -> Script:
        yield from ()
        return {"sources": [_source_of(cell) for cell in self.cells]}

    def _source(self, call: Call) -> Script:
        cell = self.cells.at(_path(call))
        if cell is not None:
            return {"content": cell.code}
        return (yield from self._debugger.script(call))

    def _stack_trace(self, call: Call) -> Script:
        """With the names of cells beside those of their files, which are numbers."""
        body = yield from self._debugger.script(call)
        names = {cell.path: cell.name for cell in self.cells}
        for frame in body.get("stackFrames", ()):
            source = frame.get("source") if isinstance(frame, Mapping) else None
            if isinstance(source, dict) and (name := names.get(source.get("path", ""))):
                source["name"] = name
        return body

    def _set_breakpoints(self, call: Call) -> Script:
        """In a cell: each rank's debugger must have the file first, as it has for a notebook's."""
        cell = self.cells.at(_path(call))
        if cell is not None and cell.path not in self._debugger.sources.cells:
            dump = Content({"code": cell.code})
            yield from self._debugger.script(Call("dumpCell", dump, call.session, call.debugger))
        return (yield from self._debugger.script(call))


TOKEN_HINT = "`token` in the attach configuration is what `%debugport` showed"


@dataclass(frozen=True, slots=True)
class _Waiting:
    end: Callable[[Mapping[str, Any]], None]

    def begin(self) -> None:
        pass


def _path(call: Call) -> str:
    source = call.arguments.get("source")
    path = source.get("path") if isinstance(source, Mapping) else None
    return path if isinstance(path, str) else ""


def _source_of(cell: RecentCell) -> dict[str, str]:
    """DAP's Source."""
    return {"name": cell.name, "path": cell.path, "origin": "notebook"}
