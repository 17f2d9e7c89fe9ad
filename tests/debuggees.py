"""What ipykernel's debugger answers, as small as the tests need it, and what it never forgives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RESUMES = {"continue", "next", "stepIn", "stepOut"}
CAPABILITIES = {"supportsSetVariable": True, "supportsLogPoints": True, "filters": []}
FRAMES = [(11, "f", 4), (12, "<module>", 7)]  # own id, name, line
LOCALS, GLOBALS = 21, 22
DICT = 23


@dataclass
class FakeDebuggee:
    """Of one rank.  Events that follow an answer are in ``events``; whoever performs them empties it."""

    rank: int
    pid: int
    started: bool = False
    attached: bool = False
    stopped: bool = False
    stepping: bool = False
    lines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    cells: list[str] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    locals: dict[str, str] = field(default_factory=lambda: {"a": "1"})
    frames: list[tuple[int, str, int]] = field(default_factory=lambda: list(FRAMES))
    fails: set[str] = field(default_factory=set)  # commands that do not do well
    silent: set[str] = field(default_factory=set)  # commands whose handler raises: no reply
    excused: set[int] = field(default_factory=set)  # requests that an interrupt has overtaken
    _seq: int = 0

    @property
    def prefix(self) -> str:
        return f"/tmp/ipykernel_{self.pid}/"

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The reply's content; ``None``: there is none."""
        self.heard.append(dict(request))
        command, arguments = request["command"], request["arguments"]
        if command in RESUMES and not self.stopped:
            assert request["seq"] in self.excused, "its control channel is wedged"
            return None
        if command in self.silent or (command == "scopes" and not self.stopped):
            return None
        if command == "attach" and self.attached:
            return {"type": "response", "success": False, "message": "Session is already started"}
        if command in self.fails:
            return {"type": "response", "success": False, "message": f"{command}: no"}
        body = self._body(command, arguments)
        reply = {"type": "response", "success": True, "command": command, "seq": 7}
        return reply if body is None else {**reply, "body": body}

    def _body(self, command: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        match command:
            case "debugInfo":
                return {"tmpFilePrefix": self.prefix, "richRendering": True, "copyToGlobals": True}
            case "initialize":
                self.started = True
                return dict(CAPABILITIES)
            case "attach":
                assert self.started
                self.attached = True
                self.event("initialized")
            case "disconnect":
                if self.stopped:
                    self.go_on()
                self.started = self.attached = False
                self.event("terminated")
            case "dumpCell":
                self.cells.append(arguments["code"])
                return {"sourcePath": f"{self.prefix}{len(arguments['code'])}.py"}
            case "setBreakpoints":
                return self._set(arguments)
            case "continue" | "next" | "stepIn" | "stepOut":
                self.stepping = command != "continue"
                self.go_on()
                return {"allThreadsContinued": True} if command == "continue" else None
            case "stackTrace":
                return {"stackFrames": [self._frame(*frame) for frame in self.frames]}
            case "scopes":
                scopes = (("Locals", LOCALS), ("Globals", GLOBALS))
                return {"scopes": [{"name": n, "variablesReference": r} for n, r in scopes]}
            case "variables" | "inspectVariables":
                return {"variables": self._variables()}
            case "threads":
                return {"threads": [{"id": 1, "name": "MainThread"}]}
            case "evaluate":
                return {"result": f"{arguments['expression']}@{self.rank}", "variablesReference": 9}
        return {}

    def _set(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        path, points = arguments["source"]["path"], arguments["breakpoints"]
        self.lines[path] = [dict(point) for point in points]
        return {
            "breakpoints": [
                {
                    "verified": True,
                    "id": 100 + i,
                    "line": p.get("line", 0),
                    "source": {"path": path},
                }
                for i, p in enumerate(points)
            ]
        }

    def _frame(self, own: int, name: str, line: int) -> dict[str, Any]:
        return {"id": own, "name": name, "line": line, "source": {"path": f"{self.prefix}5.py"}}

    def _variables(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "value": value,
                "type": "t",
                "variablesReference": DICT * (value[0] == "{"),
            }
            for name, value in self.locals.items()
        ]

    # ---------------------------------------------------------------- events

    def event(self, kind: str, **body: Any) -> None:
        self._seq += 1
        event = {"type": "event", "event": kind, "seq": self._seq}
        self.events.append({**event, "body": body} if body else event)

    def stop(self, reason: str = "breakpoint") -> None:
        self.stopped, self.stepping = True, False
        self.event("stopped", reason=reason, threadId=1, allThreadsStopped=True)

    def go_on(self) -> None:
        self.stopped = False
        self.event("continued", threadId=1, allThreadsContinued=True)
