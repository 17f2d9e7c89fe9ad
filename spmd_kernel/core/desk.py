"""What a control command sees of the hub, and may do (`control.base.Desk`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .cell import Cell
from .journal import Journal
from .magics.base import Context, RankView
from .model import Rank, Settings

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
        return self._hub.state

    @property
    def world(self) -> tuple[RankView, ...]:
        return self._hub.group.view()

    @property
    def context(self) -> Context:
        return self._hub.context

    @property
    def cell(self) -> Cell | None:
        return self._hub.cells.running

    @property
    def queued(self) -> int:
        return len(self._hub.cells.waiting)

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

    def waiting(self, msg_id: str) -> bool:
        return self._hub.waiting(msg_id)

    def busy(self) -> tuple[Rank, ...]:
        return self._hub.busy()

    def interrupt(self, ranks: tuple[Rank, ...] | None) -> None:
        if ranks is None:
            self._hub.interrupt()
        elif ranks:
            self._hub.interrupt_some(ranks)

    def make_way(self, ranks: tuple[Rank, ...]) -> None:
        self._hub.make_way(ranks)
