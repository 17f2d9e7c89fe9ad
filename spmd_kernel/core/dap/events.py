"""Which stops a client is told of.

A client that knows one stopped thread (JupyterLab: each `stopped` replaces the last one, any
`continued` empties the panels) hears of one rank, the *focus*; one that speaks DAP itself of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ..model import Rank
from .debuggees import Debuggees, choose
from .ids import Threads

GRACE = (
    1.0  # seconds that the focus rank has to stop first: ranks of a busy machine differ by tenths
)
REFOCUS = 0.5  # seconds that a client sees nothing stopped before another rank takes the focus


class Room(Protocol):
    """What a policy sees of the debugger."""

    debuggees: Debuggees
    threads: Threads
    pinned: Rank | None

    @property
    def live(self) -> tuple[Rank, ...]: ...
    def in_cell(self, rank: Rank) -> bool:
        """The rank runs a cell, or is stopped in one."""


Post = Callable[[str, Mapping[str, Any]], None]


def stopped_body(room: Room, rank: Rank, **more: Any) -> dict[str, Any]:
    """Of a `stopped` event for clients."""
    stop = room.debuggees.stop_of(rank)
    assert stop is not None
    everybody = set(room.debuggees.stopped) >= set(room.live)
    return {
        **stop.body,
        "threadId": room.threads.out(rank, stop.tid),
        "allThreadsStopped": everybody,
        **more,
    }


def continued_body(room: Room, rank: Rank, tid: int) -> dict[str, Any]:
    return {
        "threadId": room.threads.out(rank, tid),
        "allThreadsContinued": not room.debuggees.stopped,
    }


class FocusOnly:
    """One rank at a time is stopped, as far as this client knows."""

    def __init__(
        self,
        room: Room,
        post: Post,
        timer: Callable[[float], None],
        cancel: Callable[[], None],
    ):
        self._room = room
        self._post = post
        self._timer = timer
        self._cancel = cancel
        self.focus: Rank | None = None  # the rank looked at, stopped or not
        self._told: tuple[Rank, int] | None = (
            None  # the rank and thread that the client sees stopped
        )
        self._listed: dict[Rank, int] = {}  # more threads that it was told of when it asked
        self._awaited: Rank | None = None

    def resumed(self, ranks: Iterable[Rank]) -> None:
        if self.focus in set(ranks):
            self._awaited = self.focus

    def stopped(self, rank: Rank) -> None:
        told = self._told[0] if self._told else None
        if told is not None and told != rank and self._room.debuggees.is_stopped(told):
            return
        awaited = self._awaited if self._awaited is not None else self._room.pinned
        if awaited in (None, rank) or not self._may_stop(awaited):
            self._show(rank if awaited == rank else None)
        else:
            self._timer(GRACE)

    def _may_stop(self, rank: Rank | None) -> bool:
        return rank is not None and rank in self._room.live and self._room.in_cell(rank)

    def continued(self, rank: Rank) -> None:
        if self._told is None or self._told[0] != rank:
            return
        _, tid = self._told
        self._told = None
        self._listed.pop(rank, None)
        for each, its in ((rank, tid), *self._listed.items()):
            self._post("continued", continued_body(self._room, each, its))
        self._listed = {}
        if self._room.debuggees.stopped:
            self._timer(REFOCUS)

    def due(self) -> None:
        self._awaited = None
        if self._told is None or not self._room.debuggees.is_stopped(self._told[0]):
            self._show(None)

    def pin(self, rank: Rank) -> None:
        """The client looks at this one from now on."""
        self.focus = rank
        told = self._told[0] if self._told else None
        if self._room.debuggees.is_stopped(rank) and told != rank:
            self._show(rank)

    def look_at(self, rank: Rank) -> None:
        """The client itself showed another rank, and steps there."""
        stop = self._room.debuggees.stop_of(rank)
        self.focus = rank
        if stop is not None and self._told is not None:
            self._told = rank, stop.tid

    def _show(self, rank: Rank | None) -> None:
        room = self._room
        rank = choose(room.debuggees, room.pinned, self.focus) if rank is None else rank
        stop = room.debuggees.stop_of(rank) if rank is not None else None
        if rank is None or stop is None:
            return
        self.focus, self._told, self._awaited = rank, (rank, stop.tid), None
        self._listed = {}  # for the client this stop replaces all others
        self._cancel()
        self._post("stopped", stopped_body(room, rank, preserveFocusHint=False))

    def listed(self, threads: Mapping[Rank, int]) -> None:
        """It believes that they all are stopped, until it hears otherwise."""
        self._listed = dict(threads)

    def thread(self, body: Mapping[str, Any]) -> None:
        pass

    def reset(self) -> None:
        self.focus = self._told = self._awaited = None
        self._listed = {}
        self._cancel()


class AllRanks:
    """Every rank's threads stop and go on by themselves, as DAP has it."""

    def __init__(self, room: Room, post: Post):
        self._room = room
        self._post = post
        self.focus: Rank | None = None  # where it stepped last
        self._told: dict[Rank, int] = {}

    def resumed(self, ranks: Iterable[Rank]) -> None:
        pass

    def stopped(self, rank: Rank) -> None:
        stop = self._room.debuggees.stop_of(rank)
        if stop is not None:
            others = bool(set(self._told) - {rank})
            self._told[rank] = stop.tid
            self._post("stopped", stopped_body(self._room, rank, preserveFocusHint=others))

    def continued(self, rank: Rank) -> None:
        tid = self._told.pop(rank, None)
        if tid is not None:
            self._post("continued", continued_body(self._room, rank, tid))

    def due(self) -> None:
        pass

    def listed(self, threads: Mapping[Rank, int]) -> None:
        pass

    def thread(self, body: Mapping[str, Any]) -> None:
        self._post("thread", body)

    def look_at(self, rank: Rank) -> None:
        self.focus = rank

    pin = look_at

    def reset(self) -> None:
        self.focus = None
        self._told.clear()
