"""One rank: what it is doing, since when, and why it is gone.

Life of a rank, as a table; an event that a state does not know changes nothing::

    starting --ready--> ready --stop--> stopping --exited--> dead
        |                 |                                   ^
        +-----exited------+-----------------------------------+
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .model import Cause, Rank


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    DEAD = "dead"


TRANSITIONS: Mapping[tuple[State, str], State] = {
    (State.STARTING, "ready"): State.READY,
    (State.STARTING, "stop"): State.STOPPING,
    (State.STARTING, "exited"): State.DEAD,
    (State.READY, "stop"): State.STOPPING,
    (State.READY, "exited"): State.DEAD,
    (State.STOPPING, "exited"): State.DEAD,
}


@dataclass(slots=True)
class Slot:
    rank: Rank
    generation: int
    state: State = State.STARTING
    pid: int | None = None
    cause: Cause | None = None
    stderr: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    busy_since: float | None = None
    seconds: float | None = None  # time of its last cell
    ended_by: str = ""  # why we ourselves ended it

    def move(self, event: str) -> bool:
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        return True

    def obituary(self) -> str:
        """What happened to it, for people."""
        if self.ended_by:
            return f"rank {self.rank} {self.ended_by}"
        if self.cause is not None and self.cause.missing:
            return f"rank {self.rank} is not there: {self.cause}"
        if self.cause is not None and self.cause.signal is not None:
            return f"rank {self.rank} died: {self.cause}"
        return f"rank {self.rank} died: the process {self.cause}"
