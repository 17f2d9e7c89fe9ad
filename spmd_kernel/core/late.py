"""Output that belongs to no running round: of threads, of earlier cells, of requests of our own.

It is never dropped.  It goes to the cell that it names, else to that rank's running, else last cell
(every shell request resets ipykernel's parent of threads, so output may name a query).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .errors import BadMessage
from .fanout import Bare, Outputs, raw
from .model import Header, Message, Rank
from .outputs import CellOutputs, DisplayIds, Publish, Unfinished
from .pace import NOBODY
from .stage import Stage

REMEMBERED = 64  # cells


@dataclass(slots=True)
class _Open:
    parent: Header
    outputs: Outputs


class Late:
    def __init__(self, stage: Stage, display_ids: DisplayIds):
        self._stage = stage
        self._display_ids = display_ids
        self._open: dict[str, _Open] = {}
        self._unfinished: dict[str, Unfinished] = {}  # what cells have ended with, the last ones

    def feed(
        self, rank: Rank, message: Message, parent: Header, alive: tuple[Rank, ...], world: int
    ) -> None:
        key = str(parent.get("msg_id", ""))
        entry = self._open.get(key)
        if entry is None:
            entry = self._open[key] = _Open(parent, self._outputs(key, alive, world))
        try:
            published = entry.outputs.feed(rank, message, self._stage.at)
        except BadMessage:
            published = [raw(message)]
        self._show(key, entry, published)

    def ended(self, key: str, outputs: Outputs) -> None:
        """The cell, or what came late: the next words stand behind its last line, or below it."""
        self._unfinished.pop(key, None)
        if outputs.unfinished is not None:
            self._unfinished[key] = outputs.unfinished
            if len(self._unfinished) > REMEMBERED:
                del self._unfinished[next(iter(self._unfinished))]

    def _outputs(self, key: str, alive: tuple[Rank, ...], world: int) -> Outputs:
        if world == 1:
            return Bare()
        policy = replace(self._stage.policy, mode="live")  # there is no end to wait for
        before = self._unfinished.pop(key, None)
        return CellOutputs(alive, world, self._display_ids, policy=policy, unfinished=before)

    def cut(self, rank: Rank, parent: Header) -> None:
        """Something that is no output follows from this rank: what it wrote comes before."""
        key = str(parent.get("msg_id", ""))
        if entry := self._open.get(key):
            self._show(key, entry, entry.outputs.cut(rank, self._stage.at))

    def due(self, key: str) -> None:
        if entry := self._open.get(key):
            self._show(key, entry, entry.outputs.tick(self._stage.at))

    def flush(self, key: str) -> None:
        """The cell ends: what it was given late comes before its idle."""
        if entry := self._open.pop(key, None):
            self._publish(entry, entry.outputs.close(self._stage.at))
            self.ended(key, entry.outputs)
            self._stage.cancel(("late", key))
            self._stage.pace.set(f"late {key}", NOBODY)

    def flush_all(self) -> None:
        for key in list(self._open):
            self.flush(key)

    def _show(self, key: str, entry: _Open, published: list[Publish]) -> None:
        self._publish(entry, published)
        deadline = entry.outputs.deadline()
        self._stage.pace.set(f"late {key}", entry.outputs.full())
        if deadline is None:
            self.flush(key)
        else:
            self._stage.timer(("late", key), max(0.0, deadline - self._stage.at))

    def _publish(self, entry: _Open, published: list[Publish]) -> None:
        for item in published:
            self._stage.show(item, entry.parent)
