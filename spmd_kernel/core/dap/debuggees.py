"""What the debugger knows of each rank: whether it takes part, and where it stands.

::

    running --stopped event--> stopped --we let it go on--> running
                                  |--continued event-------> running
                                  |--its cell ended (SIGINT)-> running, and in need of repair
                                  |--continued, unasked (SIGINT)-> the same

Nobody else resumes a rank that is stopped, and a rank that is not stopped is never told to go on: that
request would get no answer from ipykernel, and no later one either (ipykernel#1255).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..model import Rank

NEVER = float("-inf")
INTERRUPT_SECONDS = 2.0  # a rank that is still stopped so long after one ignores interrupts


@dataclass(frozen=True, slots=True)
class Stop:
    tid: int  # the rank's own number of the thread
    reason: str
    body: dict[str, Any]  # of its event
    serial: int  # over all ranks: which was first
    at: float


@dataclass(slots=True)
class Debuggee:
    rank: Rank
    generation: int
    attached: bool = False
    at_work: bool = False  # its main thread serves a request of its shell
    ours: bool = False  # a request of our own
    ended: bool = False  # it said `terminated`
    stop: Stop | None = None
    armed: bool = False  # it was told to step, and has not stopped since
    broken: bool = False  # an interrupt hit its debugger
    ending: bool = False  # an interrupt was sent to end what it does
    interrupted: float = NEVER  # when an interrupt was sent that it has not shown to have heard
    last: int = -1  # its own number of the last `continued` event


class Debuggees:
    def __init__(self) -> None:
        self.all: dict[Rank, Debuggee] = {}
        self._serial = 0

    def of(self, rank: Rank) -> Debuggee | None:
        return self.all.get(rank)

    def add(self, rank: Rank, generation: int) -> Debuggee:
        self.all[rank] = Debuggee(rank, generation)
        self.all = dict(sorted(self.all.items()))
        return self.all[rank]

    def remove(self, rank: Rank) -> Debuggee | None:
        return self.all.pop(rank, None)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Those whose debugger was started."""
        return tuple(self.all)

    @property
    def attached(self) -> tuple[Rank, ...]:
        return tuple(rank for rank, d in self.all.items() if d.attached)

    @property
    def stopped(self) -> tuple[Rank, ...]:
        return tuple(rank for rank, d in self.all.items() if d.stop is not None)

    def in_doubt(self, at: float) -> dict[Rank, float]:
        """Stopped ranks that were just interrupted, and for how many seconds they may yet go on."""
        resumable = self.resumable(at)
        left = {r: self.all[r].interrupted + INTERRUPT_SECONDS - at for r in self.stopped}
        return {r: seconds for r, seconds in left.items() if r not in resumable}

    def resumable(self, at: float) -> tuple[Rank, ...]:
        """Stopped, and not about to go on because of an interrupt."""
        return tuple(r for r in self.stopped if at - self.all[r].interrupted > INTERRUPT_SECONDS)

    def interrupt(self, ranks: Iterable[Rank], at: float) -> None:
        for rank in ranks:
            if (found := self.all.get(rank)) is not None:
                found.interrupted, found.ending = at, True

    def stop_of(self, rank: Rank) -> Stop | None:
        found = self.all.get(rank)
        return found.stop if found is not None else None

    def is_stopped(self, rank: Rank) -> bool:
        return self.stop_of(rank) is not None

    # ---------------------------------------------------------------- what happens

    def stopped_at(self, rank: Rank, body: dict[str, Any], seq: int, at: float) -> bool:
        """A `stopped` event.  False: it is older than a `continued` that came before it.

        ipykernel asks for the threads before it passes the event on.
        """
        found = self.all.get(rank)
        tid = body.get("threadId")
        if found is None or not isinstance(tid, int) or -1 < seq < found.last:
            return False
        self._serial += 1
        found.stop = Stop(tid, str(body.get("reason", "")), body, self._serial, at)
        found.armed = False
        return True

    def continued_at(self, rank: Rank, seq: int) -> bool:
        """A `continued` event.  True: nobody told a stopped rank to."""
        found = self.all.get(rank)
        if found is None:
            return False
        found.last = max(found.last, seq)
        unasked = found.stop is not None  # an interrupt did
        found.broken |= unasked
        found.stop, found.interrupted = None, NEVER
        return unasked

    def resume(self, ranks: Iterable[Rank], *, steps: bool) -> dict[Rank, Stop]:
        """We let stopped ranks go on; where they were."""
        left: dict[Rank, Stop] = {}
        for rank in ranks:
            found = self.all[rank]
            if found.stop is not None:
                left[rank], found.stop, found.armed = found.stop, None, steps
        return left

    def restore(self, rank: Rank, stop: Stop) -> None:
        """It did not go on after all."""
        found = self.all.get(rank)
        if found is not None and found.stop is None:
            found.stop, found.armed = stop, False

    def cell_over(self, rank: Rank) -> tuple[bool, bool]:
        """Its part of a cell ended: whether it was still stopped, and whether it needs a repair.

        An interrupt may have hit its debugger, which runs at each line of some files, unnoticed.
        """
        found = self.all.get(rank)
        if found is None or not found.attached:
            return False, False
        stopped = found.stop is not None
        broken = stopped or found.armed or found.broken or found.ending
        found.stop, found.armed, found.broken = None, False, False
        found.interrupted, found.ending = NEVER, False
        return stopped, broken


def choose(debuggees: Debuggees, pinned: Rank | None, previous: Rank | None) -> Rank | None:
    """Which stopped rank to look at: pinned, else in an exception, else as before, else the first."""
    stops = {rank: d.stop for rank, d in debuggees.all.items() if d.stop is not None}
    failed = [rank for rank, stop in stops.items() if stop.reason == "exception"]
    if pinned in stops:
        return pinned
    if failed:
        return previous if previous in failed else failed[0]
    if previous in stops:
        return previous
    return min(stops, key=lambda rank: stops[rank].serial, default=None)
