"""What a control command sees of the hub, and may do (`control.base.Desk`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .cell import Cell
from .conversation import Script
from .journal import Journal
from .magics.base import Context, RankView
from .model import Interrupt, Rank, Settings
from .view import MagicView

if TYPE_CHECKING:
    from .hub import Hub


class Desk:
    def __init__(self, hub: Hub):
        self._hub = hub

    @property
    def at(self) -> float:
        return self._hub.stage.at

    @property
    def settings(self) -> Settings:
        return self._hub.settings

    @property
    def state(self) -> str:
        hub = self._hub
        if hub.closing:
            return "closing"
        if hub.is_starting:
            return "starting"
        return "busy" if hub.cells.are_engaged else "idle"

    @property
    def world(self) -> tuple[RankView, ...]:
        return self._hub.group.view()

    @property
    def context(self) -> Context:
        return MagicView(self._hub, headless=False)

    @property
    def cell(self) -> Cell | None:
        return self._hub.cells.running

    @property
    def queue(self) -> Sequence[Cell]:
        return self._hub.cells.waiting

    @property
    def queued(self) -> int:
        return len(self.queue)

    @property
    def count(self) -> int:
        return self._hub.cells.count

    @property
    def kernel_info(self) -> Mapping[str, Any]:
        return self._hub.group.info

    @property
    def journal(self) -> Journal:
        return self._hub.stage.journal

    def busy_since(self, rank: Rank) -> float | None:
        return self._hub.group.slots[rank].busy_since

    def stopped(self, rank: Rank) -> str | None:
        """Why the debugger has stopped it."""
        stop = self._hub.debugger.debuggees.stop_of(rank)
        return stop.reason if stop is not None else None

    def waiting(self, msg_id: str) -> bool:
        return self._hub.cells.is_queued(msg_id) or self._hub.is_held(msg_id)

    def where(self) -> Script:
        return self._hub.where()

    # ---------------------------------------------------------------- questions

    @property
    def question(self) -> Mapping[str, Any] | None:
        return self._hub.stdin.question

    def answer(self, value: str, msg_id: str | None) -> tuple[Rank, ...]:
        return self._hub.stdin.answer(value, msg_id)

    # ---------------------------------------------------------------- interrupts

    def busy(self) -> tuple[Rank, ...]:
        return tuple(sorted({*self._in_cell(), *self._hub.busy_beside_the_cell()}))

    def _in_cell(self) -> tuple[Rank, ...]:
        fanout = self._hub.cells.rounds.fanout
        return fanout.running if fanout is not None else ()

    def interrupt(self, ranks: tuple[Rank, ...] | None) -> None:
        if ranks is None:
            self._hub.interrupt()
        elif ranks:
            self._interrupt_some(ranks)

    def _interrupt_some(self, ranks: tuple[Rank, ...]) -> None:
        """Their questions are void; those of others stay."""
        in_cell = tuple(rank for rank in ranks if rank in self._in_cell())
        if beside := tuple(rank for rank in ranks if rank not in in_cell):
            self._hub.stage.emit(Interrupt(beside))
        if in_cell:
            self._hub.cells.rounds.interrupt_some(in_cell)
        self._hub.stdin.withdraw(ranks)

    def make_way(self, ranks: tuple[Rank, ...]) -> None:
        if stuck := tuple(rank for rank in ranks if rank in self._in_cell()):
            self._hub.group.end(stuck, "was killed to be restarted, as a client asked")
        else:
            self._hub.interrupt()
