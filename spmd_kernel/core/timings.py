"""How long the last cells took, rank by rank: from the request sent to the rank's reply.

Taken by the kernel alone, from messages that come anyway: no rank does or waits for anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .fanout import Fanout
from .model import Rank

CELLS = 100  # that are remembered
RANKS = 64  # of which each one's time is remembered; of more: the summary
CODE = 200  # characters of a cell's first line


@dataclass(frozen=True, slots=True)
class Timing:
    """One cell.  ``count``: its number, ``None`` if it has none; ``ranks``: those that ran it.

    ``seconds`` has each rank's own; it is empty where there are more than `RANKS` of them.
    """

    count: int | None
    code: str  # its first line
    ranks: tuple[Rank, ...]
    world_size: int
    seconds: Mapping[Rank, float]
    least: float
    median: float
    most: float
    slowest: Rank
    failed: tuple[Rank, ...] = ()
    interrupted: bool = False

    def as_json(self) -> dict[str, Any]:
        """For clients that draw it themselves; ranks are keys, as text."""
        return {
            "execution_count": self.count,
            "code": self.code,
            "ranks": list(self.ranks),
            "world_size": self.world_size,
            "seconds": {str(rank): seconds for rank, seconds in self.seconds.items()},
            "min": self.least,
            "median": self.median,
            "max": self.most,
            "slowest": self.slowest,
            "failed": list(self.failed),
            "interrupted": self.interrupted,
        }


@dataclass(slots=True)
class Stopwatch:
    """Adds up the rounds of one cell."""

    seconds: dict[Rank, float] = field(default_factory=dict)
    failed: set[Rank] = field(default_factory=set)
    interrupted: bool = False
    world_size: int = 0

    def add(self, fanout: Fanout) -> None:
        for rank, ended in fanout.ended.items():
            self.seconds[rank] = self.seconds.get(rank, 0.0) + ended - fanout.started
        wrong = {rank for rank, reply in fanout.replies.items() if reply.get("status") != "ok"}
        self.failed |= wrong | set(fanout.lost)
        self.interrupted = self.interrupted or fanout.interrupted
        self.world_size = fanout.world_size

    def timing(self, count: int | None, code: str) -> Timing | None:
        """``None`` if no rank ran anything."""
        if not self.seconds:
            return None
        ranks = tuple(sorted(self.seconds))
        slowest = max(ranks, key=lambda rank: self.seconds[rank])
        return Timing(
            count,
            _first_line(code),
            ranks,
            self.world_size,
            {rank: self.seconds[rank] for rank in ranks} if len(ranks) <= RANKS else {},
            min(self.seconds.values()),
            _median(sorted(self.seconds.values())),
            self.seconds[slowest],
            slowest,
            tuple(sorted(self.failed)),
            self.interrupted,
        )


class Timings:
    def __init__(self) -> None:
        self._cells: deque[Timing] = deque(maxlen=CELLS)

    def add(self, stopwatch: Stopwatch, count: int | None, code: str) -> None:
        if timing := stopwatch.timing(count, code):
            self._cells.append(timing)

    def last(self) -> tuple[Timing, ...]:
        """The oldest first."""
        return tuple(self._cells)

    def as_json(self) -> list[dict[str, Any]]:
        return [timing.as_json() for timing in self._cells]


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2


def _first_line(code: str) -> str:
    lines: Iterable[str] = (line.strip() for line in code.splitlines())
    return next((line for line in lines if line), "")[:CODE]
