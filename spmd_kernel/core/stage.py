"""What all machines of one hub share: settings, how outputs are shown, the time of the event at
hand, the outbox.

A machine appends its effects here instead of returning lists, so that a long chain of calls (a rank
dies, its cell ends, the next one starts) needs no plumbing.  `Hub.handle` empties the outbox.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Literal

from .content import dumps, execute_content
from .floods import Floods
from .journal import Journal
from .model import (
    NO_HEADER,
    NO_SUBSHELLS,
    Buffer,
    CancelTimer,
    Effect,
    Header,
    Log,
    Message,
    Rank,
    SetTimer,
    Settings,
    Subshells,
    ToFront,
    ToRank,
)
from .outputs import OutputPolicy, Publish
from .pace import Pace


class Stage:
    def __init__(self, settings: Settings):
        self.settings = settings
        self.policy = OutputPolicy(settings.output or "live", marks=bool(settings.setup))
        if settings.watch is not None:
            self.policy = replace(self.policy, watch=settings.watch)
        self.at = 0.0
        self.effects: list[Effect] = []
        self.journal = Journal(settings.kept_outputs)
        self.pace = Pace(self.emit)
        self.floods = Floods(settings, self.emit)
        self._cells: set[str] = set()  # ids of the execute_requests that are at work
        self._serial = 0

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def take(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def to_shells(
        self, ranks: tuple[Rank, ...], message: Message, subshells: Subshells = NO_SUBSHELLS
    ) -> None:
        """Send on shell: to each rank's subshell of ``subshells``, to the main one of the others."""
        if main := tuple(rank for rank in ranks if rank not in subshells):
            self.emit(ToRank(main, "shell", message))
        for rank in ranks:
            if rank in subshells:
                header = {**message.header, "subshell_id": subshells[rank]}
                self.emit(ToRank((rank,), "shell", replace(message, header=header)))

    def timer(self, key: Hashable, delay: float) -> None:
        self.emit(SetTimer(key, self.at + delay))

    def cancel(self, key: Hashable) -> None:
        self.emit(CancelTimer(key))

    def log(self, level: Literal["debug", "info", "warning", "error"], text: str) -> None:
        self.emit(Log(level, text))

    def own_header(self, msg_type: str) -> dict[str, Any]:
        """The header of a request that we ourselves send to ranks; its session says so."""
        self._serial += 1
        session = self.settings.session
        return {
            "msg_id": f"{session}_{self._serial}",
            "msg_type": msg_type,
            "username": "spmd",
            "session": session,
            "date": "1970-01-01T00:00:00Z",  # the core has no clock, and ranks do not read it
            "version": "5.4",
        }

    def is_own(self, header: Header) -> bool:
        return header.get("session") == self.settings.session

    def is_own_id(self, msg_id: str) -> bool:
        return msg_id.startswith(f"{self.settings.session}_")

    def own_execute(self, code: str, *, silent: bool) -> Message:
        """An execute_request of ours; not silent, it counts and goes into the history."""
        return self.own_request("execute_request", execute_content(code, silent=silent))

    def own_request(self, msg_type: str, content: Mapping[str, Any], subshell: str = "") -> Message:
        header = self.own_header(msg_type)
        if subshell:
            header["subshell_id"] = subshell
        return Message(header, NO_HEADER, {}, dumps(content))

    def publish(
        self,
        msg_type: str,
        content: bytes,
        parent: Header,
        metadata: Mapping[str, Any] | None = None,
        buffers: tuple[Buffer, ...] = (),
    ) -> None:
        metadata = metadata or {}
        self.journal.add(msg_type, content, parent, metadata, buffers)
        self.emit(ToFront("iopub", (), msg_type, content, parent, metadata, buffers))

    def show(self, item: Publish, parent: Header) -> None:
        """An output of the ranks, as merged: or what of it is not too much."""
        self._show(self.floods.passed(str(parent.get("msg_id", "")), item), parent)

    def end_text(self, parent: Header) -> None:
        """The cell is over: what is shown of its text at the end."""
        self._show(self.floods.end(str(parent.get("msg_id", ""))), parent)

    def _show(self, items: list[Publish], parent: Header) -> None:
        for item in items:
            self.publish(item.msg_type, item.content, parent, item.metadata, item.buffers)

    def status(self, state: Literal["starting", "busy", "idle"], parent: Header) -> None:
        """For servers and front ends a kernel's state is what they heard last, whatever its parent.

        So after the end of another request a kernel whose cell still runs says that it is busy, as
        such, for no request.
        """
        self.publish("status", _STATUS[state], parent)
        if parent.get("msg_type") == "execute_request" and state == "busy":
            self._cells.add(str(parent["msg_id"]))
        elif state == "idle":
            self._cells.discard(str(parent.get("msg_id")))
            if self._cells:
                self.publish("status", _STATUS["busy"], NO_HEADER)


_STATUS = {state: dumps({"execution_state": state}) for state in ("starting", "busy", "idle")}
