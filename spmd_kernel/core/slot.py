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

from .magics.base import RankView
from .model import Cause, Rank

START_SECONDS = 60.0  # a rank that is silent for so long at start is given up


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
    ended_by: str = ""  # why we ourselves ended it, or why it is not there
    env: Mapping[str, str] = field(default_factory=dict)  # what we put into its environment

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
        if self.pid is None:
            return f"rank {self.rank} could not start: {self.start_fault()}"
        if self.cause is not None and self.cause.signal is not None:
            return f"rank {self.rank} died: {self.cause}"
        return f"rank {self.rank} died: the process {self.cause}"

    def start_fault(self) -> str:
        """Why it never got ready, for people."""
        cause = self.cause
        if cause is None:
            return "it is gone"
        if cause.silent:
            return f"it did not answer within {START_SECONDS:.0f} s"
        if cause.missing:
            return str(cause)
        return f"the process was {cause}" if cause.signal is not None else f"the process {cause}"

    def view(self) -> RankView:
        state = "idle" if self.state is State.READY else str(self.state)
        if self.state is State.READY and self.busy_since is not None:
            state = "busy"
        cause = self.ended_by or (str(self.cause) if self.cause else "")
        return RankView(
            self.rank, self.pid, state, self.seconds, cause, self.generation, self.busy_since
        )
