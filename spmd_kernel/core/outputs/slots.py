"""Outputs of a rank that clears on its own (see `clear`): displays that replace each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..content import dumps
from .ids import DisplayIds
from .item import Ranks
from .labels import label_lines

TEXT = 1 << 16  # characters of text in one slot; beyond, text is ordinary: a slot is sent whole


class Shows(Protocol):
    """`Page`, as far as slots need it."""

    def show(self, ranks: Ranks, msg_type: str, content: bytes) -> None: ...
    def message(self, msg_type: str, content: bytes) -> None: ...
    def own_label(self, ranks: Ranks) -> str: ...
    def metadata(self, ranks: Ranks) -> dict[str, Any]: ...


@dataclass(slots=True)
class _Slot:
    display_id: str
    shown: bool = False
    text: list[str] | None = None  # of a text slot, while nothing else has followed
    size: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _RankSlots:
    slots: list[_Slot] = field(default_factory=list)
    used: int = 0  # since the last clear
    waits: bool = False  # clear when the next output comes
    dirty: dict[int, None] = field(default_factory=dict)


class Slots:
    def __init__(self, page: Shows, ids: DisplayIds):
        self._page = page
        self._ids = ids
        self._ranks: dict[int, _RankSlots] = {}
        self.ranks = self._ranks.keys()  # that have slots

    def clear(self, rank: int, wait: bool) -> None:
        """The rank cleared, others did not."""
        mine = self._ranks.setdefault(rank, _RankSlots())
        if wait:
            mine.waits = True
        else:
            mine.used = 0
            self._empty(mine)

    def cleared(self) -> None:
        """All ranks cleared: nothing is left of any slot."""
        self._ranks.clear()

    def text(self, rank: int, text: str) -> bool:
        """Text of the rank, newline included.  False: it is too much for a slot."""
        mine = self._ranks[rank]
        self._start(mine)
        slot = mine.slots[mine.used - 1] if mine.used else None
        if slot is None or slot.text is None:
            slot = self._next(mine)
            slot.text, slot.size = [], 0
        if slot.size + len(text) > TEXT:
            return False
        assert slot.text is not None
        slot.text.append(text)
        slot.size += len(text)
        mine.dirty[mine.used - 1] = None
        return True

    def bundle(self, rank: int, data: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        mine = self._ranks[rank]
        self._start(mine)
        slot = self._next(mine)
        slot.text, slot.data, slot.metadata = None, data, metadata
        mine.dirty[mine.used - 1] = None

    def flush(self) -> None:
        """Publish what changed, each slot once."""
        for rank, mine in self._ranks.items():
            for index in mine.dirty:
                self._publish(rank, mine.slots[index])
            mine.dirty.clear()

    def end(self) -> None:
        """The cell is over: slots that were not needed again after the last clear are emptied."""
        for mine in self._ranks.values():
            if mine.used:
                self._empty(mine)
        self.flush()

    def _start(self, mine: _RankSlots) -> None:
        if mine.waits:
            mine.waits = False
            mine.used = 0

    def _next(self, mine: _RankSlots) -> _Slot:
        if mine.used == len(mine.slots):
            mine.slots.append(_Slot(self._ids.fresh()))
        mine.used += 1
        return mine.slots[mine.used - 1]

    def _empty(self, mine: _RankSlots) -> None:
        for index in range(mine.used, len(mine.slots)):
            slot = mine.slots[index]
            if slot.text != [] or slot.data:
                slot.text, slot.size, slot.data, slot.metadata = [], 0, {}, {}
                mine.dirty[index] = None

    def _publish(self, rank: int, slot: _Slot) -> None:
        data = slot.data if slot.text is None else {"text/plain": self._shown(rank, slot.text)}
        content = {
            "data": data,
            "metadata": {**slot.metadata, **self._page.metadata((rank,))},
            "transient": {"display_id": slot.display_id},
        }
        if slot.shown:
            self._page.message("update_display_data", dumps(content))
        else:
            slot.shown = True
            self._page.show((rank,), "display_data", dumps(content))

    def _shown(self, rank: int, pieces: list[str]) -> str:
        text = "".join(pieces).removesuffix("\n")
        return label_lines(self._page.own_label((rank,)), text) if pieces else ""
