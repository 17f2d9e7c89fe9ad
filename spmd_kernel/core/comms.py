"""Who owns each comm, both ways.

A comm that a rank opens belongs to that rank; one that a front end opens belongs to every rank that
lived then.  A message to a comm goes to its owners only.  Source: Jupyter messaging, "Custom
Messages"; comm_info is answered from this table, so it answers while cells run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .content import read
from .model import Message, Rank, ToRank
from .stage import Stage


@dataclass(slots=True)
class _Comm:
    target: str
    owners: set[Rank] = field(default_factory=set)


class Comms:
    def __init__(self, stage: Stage):
        self._stage = stage
        self._comms: dict[str, _Comm] = {}

    def from_rank(self, rank: Rank, message: Message) -> None:
        """Keep the table; the hub forwards the message itself."""
        content = read(message.content)
        comm_id = content.text("comm_id")
        if message.msg_type == "comm_open":
            comm = self._comms.setdefault(comm_id, _Comm(content.text("target_name")))
            comm.owners.add(rank)
        elif message.msg_type == "comm_close":
            self._drop(comm_id, {rank})

    def from_front(self, message: Message, alive: tuple[Rank, ...]) -> tuple[Rank, ...]:
        """Send it to the owners; returns who they are."""
        content = read(message.content)
        comm_id = content.text("comm_id")
        if message.msg_type == "comm_open":
            self._comms[comm_id] = _Comm(content.text("target_name"), set(alive))
        comm = self._comms.get(comm_id)
        if comm is None:
            self._stage.log("info", f"{message.msg_type} for a comm that no rank has: {comm_id!r}")
            return ()
        owners = tuple(sorted(comm.owners & set(alive)))
        if message.msg_type == "comm_close":
            self._drop(comm_id, set(owners))
        if owners:
            self._stage.emit(ToRank(owners, "shell", message))
        return owners

    def lost(self, rank: Rank) -> None:
        """The rank's process is gone, and its comms with it."""
        for comm_id in list(self._comms):
            self._drop(comm_id, {rank})

    def info(self, target: str | None) -> dict[str, Any]:
        comms = {
            comm_id: {"target_name": comm.target}
            for comm_id, comm in self._comms.items()
            if target is None or comm.target == target
        }
        return {"status": "ok", "comms": comms}

    def _drop(self, comm_id: str, ranks: set[Rank]) -> None:
        comm = self._comms.get(comm_id)
        if comm is None:
            return
        comm.owners -= ranks
        if not comm.owners:
            del self._comms[comm_id]
