"""Who owns each comm, both ways.

A comm that a rank opens belongs to that rank; one that a front end opens belongs to every rank that
lived then.  A message to a comm goes to its owners only.  Source: Jupyter messaging, "Custom
Messages"; comm_info is answered from this table, so it answers while cells run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .content import Content, read
from .model import Header, Message, Rank, ToRank
from .stage import Stage

COMMS = {"comm_open", "comm_msg", "comm_close"}


class Own(Protocol):
    """Comms of the kernel itself, which no rank hears of."""

    def heard(self, message: Message, content: Content) -> bool:
        """A client's message. False: it is of another comm."""

    @property
    def targets(self) -> dict[str, str]:
        """Target names of the open ones, by id."""


@dataclass(slots=True)
class _Comm:
    target: str
    owners: set[Rank] = field(default_factory=set)


class Comms:
    def __init__(self, stage: Stage, own: Own, serving_ends: Callable[[str], None]):
        """``serving_ends`` hears the id of a client's message right before its idle."""
        self._stage = stage
        self._own = own
        self._serving_ends = serving_ends
        self._comms: dict[str, _Comm] = {}
        self._served: dict[str, tuple[Header, set[Rank]]] = {}  # whose owners are at work on it

    def from_rank(self, rank: Rank, message: Message) -> None:
        """Keep the table; the hub forwards the message itself."""
        content = read(message.content)
        comm_id = content.text("comm_id")
        if message.msg_type == "comm_open":
            comm = self._comms.setdefault(comm_id, _Comm(content.text("target_name")))
            comm.owners.add(rank)
        elif message.msg_type == "comm_close":
            self._drop(comm_id, {rank})

    def from_front(self, message: Message, alive: tuple[Rank, ...]) -> None:
        """Send it to its owners.  Idle follows when they are done with it: widgets throttle by it."""
        header = message.header
        self._stage.status("busy", header)
        owners: set[Rank] = set()
        try:
            owners = self._owners(message, alive)
        finally:
            if not owners:
                self._stage.status("idle", header)
        if owners:
            plain = {key: value for key, value in header.items() if key != "subshell_id"}
            self._served[message.msg_id] = (header, owners)
            request = replace(message, header=plain)
            self._stage.emit(ToRank(tuple(sorted(owners)), "shell", request))

    def _owners(self, message: Message, alive: tuple[Rank, ...]) -> set[Rank]:
        content = read(message.content)
        comm_id = content.text("comm_id")
        if self._own.heard(message, content):
            return set()
        if message.msg_type == "comm_open" and alive:
            self._comms[comm_id] = _Comm(content.text("target_name"), set(alive))
        comm = self._comms.get(comm_id)
        if comm is None:
            self._stage.log("info", f"{message.msg_type} for a comm that no rank has: {comm_id!r}")
            return set()
        owners = comm.owners & set(alive)
        if message.msg_type == "comm_close":
            self._drop(comm_id, owners)
        return set(owners)

    def idle(self, msg_id: str, rank: Rank) -> None:
        """A rank is done with a request, perhaps one of a comm."""
        if msg_id not in self._served:
            return
        header, owners = self._served[msg_id]
        owners.discard(rank)
        if not owners:
            del self._served[msg_id]
            self._serving_ends(msg_id)
            self._stage.status("idle", header)

    @property
    def busy(self) -> set[Rank]:
        """Ranks that are at work on a message of a front end: a callback of a widget, say."""
        return {rank for _, owners in self._served.values() for rank in owners}

    def lost(self, rank: Rank) -> None:
        """The rank's process is gone, and its comms with it."""
        for comm_id in list(self._comms):
            self._drop(comm_id, {rank})
        for msg_id in list(self._served):
            self.idle(msg_id, rank)

    def info(self, target: str | None) -> dict[str, Any]:
        names = {comm_id: comm.target for comm_id, comm in self._comms.items()} | self._own.targets
        comms = {
            comm_id: {"target_name": name}
            for comm_id, name in names.items()
            if target is None or name == target
        }
        return {"status": "ok", "comms": comms}

    def _drop(self, comm_id: str, ranks: set[Rank]) -> None:
        comm = self._comms.get(comm_id)
        if comm is None:
            return
        comm.owners -= ranks
        if not comm.owners:
            del self._comms[comm_id]
