"""One subshell (JEP 91): cells that run beside those of the main shell, in a thread of each rank.

Clients know it by one id; each rank has given its thread an id of its own.  What runs there cannot be
interrupted: SIGINT reaches the main thread of a process, and that one may be at work on another cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .cell import Cell
from .cells import Cells, Numbers
from .conversation import Script, Talk
from .echoes import Echoes
from .fanout import Fanout
from .model import Rank, Subshells
from .outputs import DisplayIds
from .rounds import Ranks, Rounds
from .stage import Stage
from .stdin import Asker


class Present:
    """The ranks as a subshell sees them (`rounds.Ranks`): those that it has a thread in."""

    def __init__(self, ranks: Ranks, subshells: Subshells):
        self._ranks = ranks
        self._subshells = subshells

    @property
    def alive(self) -> tuple[Rank, ...]:
        return tuple(rank for rank in self._ranks.alive if rank in self._subshells)

    @property
    def size(self) -> int:
        return self._ranks.size

    def obituaries(self) -> str:
        if missing := [r for r in self._ranks.alive if r not in self._subshells]:
            return f"the subshell could not be created on rank {', '.join(map(str, missing))}"
        return self._ranks.obituaries()

    def mark_busy(self, rank: Rank, since: float) -> None:
        """Busy is a rank whose main shell is."""

    def mark_done(self, rank: Rank, at: float) -> None: ...

    def end(self, ranks: tuple[Rank, ...], why: str) -> None:
        raise AssertionError("a cell of a subshell ends no rank")


class SubshellRounds(Rounds):
    def interrupt(self, fanout: Fanout, ranks: tuple[Rank, ...]) -> None:
        """Nobody is: see above."""

    def interrupt_some(self, ranks: tuple[Rank, ...]) -> None:
        """Nobody is: see above."""

    def _policy(self) -> str:
        return "wait"

    def survivors_overdue(self, msg_id: str) -> None:
        """Another rank of the cell died a while ago: it ends without those that still run."""
        fanout = self.fanout_of(msg_id)
        for rank in fanout.running if fanout is not None else ():
            text = (
                f"rank {rank} is still at work on this cell of a subshell, of which another rank"
                " died; the cell ended without it"
            )
            error = {"ename": "RankLost", "evalue": text, "traceback": [f"RankLost: {text}"]}
            self.lost(rank, error)


class Subshell(Cells):
    make_rounds = SubshellRounds

    def __init__(
        self,
        stage: Stage,
        ranks: Ranks,
        display_ids: DisplayIds,
        numbers: Numbers,
        script: Callable[[Subshell, Cell], Script],
        perform: Callable[[Talk, Any], None],
        ended: Callable[[Subshell, Cell, bool], None],
        echoes: Echoes,
        is_changing: Callable[[], bool],
    ):
        """``is_changing``: ranks are being started or stopped; cells wait for the outcome."""
        self.id = ""  # what clients know it by, once it has been created
        self.theirs: dict[Rank, str] = {}  # the id that each rank gave it
        self.awaited: set[Rank] = set()  # have been asked to create it
        self.serial = 0
        self.overdue = False  # its creation took long: who has it now is enough
        self.created: Callable[..., None] | None = None  # who asked for it
        self.delete: Callable[[], None] | None = None  # once it is idle
        self.is_deleted = False
        self.asker = Asker()  # of the questions of the running cell
        self._is_changing = is_changing
        super().__init__(
            stage,
            Present(ranks, self.theirs),
            display_ids,
            lambda cell: script(self, cell),
            perform,
            lambda cell, failed: ended(self, cell, failed),
            lambda _: None,
            lambda _: None,
            lambda _: None,
            echoes,
            numbers,
            self.theirs,
        )

    @property
    def present(self) -> tuple[Rank, ...]:
        """The ranks that it has a thread in."""
        return self._ranks.alive

    @property
    def has_cells(self) -> bool:
        return self.running is not None or bool(self._queue)

    def next(self) -> None:
        self.held = bool(self.awaited) or self._is_changing()
        super().next()
