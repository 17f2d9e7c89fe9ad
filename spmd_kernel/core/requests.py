"""What clients ask: each request gets its one reply between its busy and its idle.

A fault of the sender is answered to the sender; a fault of ours, too, as an `InternalError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .bursts import Bursts
from .cells import Cells
from .comms import COMMS, Comms
from .content import dumps, read
from .control import REQUEST, failure, serve
from .control.base import Desk
from .conversation import REPORT, Talk
from .dap.jupyter import REQUEST as DEBUG_REQUEST
from .dap.jupyter import JupyterTransport
from .errors import BadMessage, InternalError, SpmdError
from .group import Group
from .model import (
    NO_HEADER,
    NO_SUBSHELLS,
    FromFront,
    Header,
    Message,
    Rank,
    Settings,
    ToFront,
    ToRank,
)
from .queries import QUERIES, QUESTIONS, unsupported
from .replies import error_reply
from .stage import Stage
from .stdin import Stdin
from .subshells import Subshells, UnknownSubshellError

PASSED_ON = 0.02  # seconds between requests that ranks are told of, and one may be stopped


class Life(Protocol):
    """What the hub alone can do: it concerns everybody."""

    closing: bool

    def interrupt(self) -> None: ...
    def shut_down(self, event: FromFront | None, content: Mapping[str, Any]) -> None: ...


class Requests:
    """Serves them; `queries.QueryContext` for those that are questions."""

    def __init__(
        self,
        stage: Stage,
        life: Life,
        group: Group,
        cells: Cells,
        comms: Comms,
        stdin: Stdin,
        perform: Callable[[Talk, Any], None],
        desk: Desk,
        subshells: Subshells,
        debugging: JupyterTransport,
        bursts: Bursts,
    ):
        self._stage = stage
        self._life = life
        self._group = group
        self._cells = cells
        self._comms = comms
        self._stdin = stdin
        self._perform = perform
        self._desk = desk
        self._subshells = subshells
        self._debugging = debugging
        self._bursts = bursts
        self._passed_on = 0.0  # when ranks were told of a request that they have not to answer

    def serve(self, event: FromFront) -> None:
        """Serve a request; a fault of its sender is answered to its sender."""
        try:
            self._serve(event)
        except SpmdError as error:
            self._stage.log("warning", one_line(f"{event.message.msg_type}: {error}"))
            self._answer_error(event, error)
        except Exception as error:
            what = f"{event.message.msg_type}: {type(error).__name__}: {error}"
            self._stage.log("error", one_line(what))
            self._answer_error(event, InternalError(str(error), REPORT))

    def _serve(self, event: FromFront) -> None:
        message, kind = event.message, event.message.msg_type
        shell = self._subshells.of(message) if event.channel == "shell" else None
        if event.channel == "stdin":
            self._answered(event)
        elif event.channel == "shell" and shell is None and self._waits(event):
            return
        elif kind == "execute_request":
            self._execute(event, shell or self._cells)
        elif kind in COMMS:
            subshells = shell.theirs if shell is not None else NO_SUBSHELLS
            self._comms.from_front(message, self._group.alive, self._group.size, subshells)
        elif kind == "interrupt_request":
            self._framed(event, "interrupt_reply", {"status": "ok"})
            self._life.interrupt()
        elif kind == "shutdown_request":
            self._shutdown_request(event)
        elif kind == REQUEST:
            self._control(event)
        elif kind == DEBUG_REQUEST:
            self._debug(event)
        elif kind.endswith("_request"):
            self._query(event)
        else:
            self._stage.log("warning", f"unknown message type {kind!r} on {event.channel}")

    def _waits(self, event: FromFront) -> bool:
        """For the cell that was sent with it."""
        if event.message.msg_type == "execute_request":
            self._bursts.cell(event)
        return event.message.msg_type in QUESTIONS and self._bursts.holds(event)

    def _debug(self, event: FromFront) -> None:
        """Kernels that have no debugger know no such request."""
        cannot = bool(self._group.alive) and not self._group.can_debug
        if cannot and not self._debugging.session.started:
            self._query(event)
        else:
            self._debugging.request(event)

    def _answered(self, event: FromFront) -> None:
        if event.message.msg_type != "input_reply":
            raise BadMessage(f"{event.message.msg_type!r} came on stdin, where answers come")
        self._stdin.answered(event)

    def _execute(self, event: FromFront, shell: Cells) -> None:
        if self._life.closing:
            self.abort(event)
        else:
            shell.request(event)

    def abort(self, event: FromFront) -> None:
        """A cell that will not run."""
        self._framed(event, "execute_reply", {"status": "aborted"})

    def _shutdown_request(self, event: FromFront) -> None:
        restart = _flag(event.message, "restart")
        self._stage.status("busy", event.message.header)
        if self._life.closing:
            self.answer(event, "shutdown_reply", {"status": "ok", "restart": restart})
            self._stage.status("idle", event.message.header)
        self._life.shut_down(event, {"status": "ok", "restart": restart})

    def _query(self, event: FromFront) -> None:
        header = event.message.header
        if event.channel == "control" and event.message.msg_type == "kernel_info_request":
            self._pass_on(header)
        query = QUERIES.get(event.message.msg_type, unsupported)
        self._stage.status("busy", header)

        def done(content: dict[str, Any] | None, error: SpmdError | None) -> None:
            if isinstance(error, BadMessage):
                self._stage.log("warning", one_line(f"{event.message.msg_type}: {error}"))
            if error is not None:
                content = _error_content(error)
            self.answer(event, _reply_type(event.message), content or {})
            self._stage.status("idle", header)

        Talk(query(event.message, self), self._perform, done).step()

    def _pass_on(self, header: Header) -> None:
        """Code of users may read who asked last on control (ipykernel's ``get_parent``)."""
        if self._stage.at - self._passed_on >= PASSED_ON:
            self._passed_on = self._stage.at
            request = Message(header, NO_HEADER, {}, b"{}")
            self._stage.emit(ToRank(self._group.alive, "control", request))

    def _control(self, event: FromFront) -> None:
        header = event.message.header
        self._stage.status("busy", header)

        def done(answer: Any, error: SpmdError | None) -> None:
            content, buffers = answer if error is None else (failure(error), ())
            reply_type = _reply_type(event.message)
            self._stage.emit(
                ToFront(event.channel, event.idents, reply_type, content, header, {}, buffers)
            )
            self._stage.status("idle", header)

        Talk(serve(event.message, self._desk), self._perform, done).step()

    def answer(self, event: FromFront, msg_type: str, content: Mapping[str, Any]) -> None:
        self._stage.emit(
            ToFront(event.channel, event.idents, msg_type, dumps(content), event.message.header)
        )

    def _framed(self, event: FromFront, msg_type: str, content: Mapping[str, Any]) -> None:
        self._stage.status("busy", event.message.header)
        self.answer(event, msg_type, content)
        self._stage.status("idle", event.message.header)

    def _answer_error(self, event: FromFront, error: SpmdError) -> None:
        if event.message.msg_type.endswith("_request"):
            content = _error_content(error)
            if event.message.msg_type == "execute_request":
                content = error_reply(content, self._cells.count)
            self._framed(event, _reply_type(event.message), content)
        elif isinstance(error, UnknownSubshellError):  # of a comm: there is no other end to it
            self._stage.status("busy", event.message.header)
            self._stage.status("idle", event.message.header)

    # what queries see (`queries.QueryContext`)

    @property
    def settings(self) -> Settings:
        return self._stage.settings

    @property
    def alive(self) -> tuple[Rank, ...]:
        return self._group.alive

    @property
    def kernel_info(self) -> Mapping[str, Any]:
        return self._group.info

    @property
    def can_debug(self) -> bool:
        return self._group.can_debug

    def comm_info(self, target: str | None) -> dict[str, Any]:
        return self._comms.info(target)

    @property
    def has_subshells(self) -> bool:
        return self._subshells.are_supported

    @property
    def subshells(self) -> list[str]:
        return self._subshells.ids


def one_line(text: str) -> str:
    """What a stranger wrote makes no second line of the log."""
    return text if text.isprintable() else repr(text)


def _flag(message: Message, name: str) -> bool:
    try:
        return read(message.content).flag(name)
    except BadMessage:
        return False


def _reply_type(message: Message) -> str:
    return message.msg_type.removesuffix("_request") + "_reply"


def _error_content(error: SpmdError) -> dict[str, Any]:
    return {
        "status": "error",
        "ename": error.ename,
        "evalue": str(error),
        "traceback": error.lines(),
    }
