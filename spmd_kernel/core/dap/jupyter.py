"""The Jupyter transport: `debug_request` on control, `debug_event` on IOPub.

Messaging specification: "Debug request", "Debug event".  All Jupyter clients of the kernel are one
client of the debugger, as they are of a bare kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..content import dumps, read
from ..model import NO_HEADER, FromFront, Header, ToFront
from ..stage import Stage
from .debugger import Debugger
from .events import FocusOnly
from .session import Session

REQUEST = "debug_request"
TIMER = "jupyter"
# JupyterLab looks into the bodies of responses without asking whether the request did well: a frame
# that is stale, because its rank ran on or died just now, would be an error in the page.
NOTHING: dict[str, dict[str, list[Any]]] = {
    "inspectVariables": {"variables": []},
    "modules": {"modules": []},
    "scopes": {"scopes": []},
    "setBreakpoints": {"breakpoints": []},
    "stackTrace": {"stackFrames": []},
    "variables": {"variables": []},
}


class JupyterTransport:
    def __init__(self, stage: Stage, debugger: Debugger):
        self._stage = stage
        self._parent: Header = (
            NO_HEADER  # of events: the request at hand or the last one, as a bare kernel has it
        )
        self.session = Session(TIMER, debugger, self._event, overlay=True)
        self.policy = FocusOnly(
            debugger,
            self.session.post,
            lambda seconds: stage.timer(("dap", TIMER), seconds),
            lambda: stage.cancel(("dap", TIMER)),
        )
        self.session.policy = self.policy
        debugger.sessions.append(self.session)

    def request(self, event: FromFront) -> None:
        """Raises `BadMessage` on content that is no object, and on a command that is no text."""
        content = read(event.message.content)
        content.text("command")
        self.session.request(content, _Request(self._stage, event, self._serve))

    def _serve(self, request: Header) -> None:
        self._parent = request

    def _event(self, message: Mapping[str, Any]) -> None:
        self._stage.publish("debug_event", dumps(message), self._parent)


class _Request:
    def __init__(self, stage: Stage, event: FromFront, serve: Callable[[Header], None]):
        self._stage = stage
        self._event = event
        self._serve = serve

    def begin(self) -> None:
        self._serve(self._event.message.header)
        self._stage.status("busy", self._event.message.header)

    def end(self, response: Mapping[str, Any]) -> None:
        event, header = self._event, self._event.message.header
        if not response["success"] and response["command"] in NOTHING:
            response = {**response, "body": NOTHING[response["command"]]}
        self._stage.emit(
            ToFront(event.channel, event.idents, "debug_reply", dumps(response), header)
        )
        self._stage.status("idle", header)
