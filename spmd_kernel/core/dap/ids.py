"""Ids that clients see, for ids that ranks gave: injective, and no number stands for two things.

Every rank counts its threads, frames and variables for itself, from the same numbers on.  A thread's
number holds its rank, so that it is the same after a step; all others are handed out in order,
and none is given a second time: what a client still holds of a rank that ran on is stale, not wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from ..errors import UsageError
from ..model import Rank

SHIFT = 16
FIRST_ODD = 1 << 40  # threads whose own number has more than 16 bits
MAIN = 1  # ipykernel's main thread, in every rank


def thread_id(rank: Rank, tid: int) -> int:
    return ((rank + 1) << SHIFT) | tid


class Threads:
    """No thread has the number 1: JupyterLab says 1 when it means the thread that it shows."""

    def __init__(self) -> None:
        self._odd: dict[tuple[Rank, int], int] = {}
        self._back: dict[int, tuple[Rank, int]] = {}

    def out(self, rank: Rank, tid: int) -> int:
        if 0 <= tid < 1 << SHIFT:
            return thread_id(rank, tid)
        number = self._odd.setdefault((rank, tid), FIRST_ODD + len(self._odd))
        self._back[number] = rank, tid
        return number

    def back(self, number: int) -> tuple[Rank, int] | None:
        """The rank and its own number; ``None``: no thread has this one."""
        if number >= FIRST_ODD:
            return self._back.get(number)
        rank, tid = (number >> SHIFT) - 1, number & ((1 << SHIFT) - 1)
        return (rank, tid) if rank >= 0 else None


class Table:
    """Numbers from 1 on for pairs of a rank and its own number; 0 stays 0 (DAP: there is none)."""

    def __init__(self, what: str, numbers: Iterator[int] | None = None):
        """``numbers``: tables that share them never give the same one."""
        self._what = what
        self._numbers = count(1) if numbers is None else numbers
        self._out: dict[tuple[Rank, int], int] = {}
        self._back: dict[int, tuple[Rank, int]] = {}

    def out(self, rank: Rank, own: int) -> int:
        if own == 0:
            return 0
        number = self._out.get((rank, own))
        if number is None:
            number = self.fresh()
            self._out[rank, own] = number
            self._back[number] = rank, own
        return number

    def fresh(self) -> int:
        """A number of this table for something that is no rank's."""
        return next(self._numbers)

    def back(self, number: int) -> tuple[Rank, int]:
        """Raises `UsageError` on a number that stands for nothing, or for nothing any more."""
        found = self._back.get(number)
        if found is None:
            raise UsageError(f"stale {self._what} {number}: its rank has run on since")
        return found

    def __contains__(self, number: int) -> bool:
        return number in self._back

    def drop(self, ranks: Iterable[Rank]) -> None:
        """Forget what stood for something of these ranks."""
        gone = set(ranks)
        for key in [key for key in self._out if key[0] in gone]:
            del self._back[self._out.pop(key)]

    def __len__(self) -> int:
        return len(self._back)
