"""Grouped mode: nothing is shown before the cell's end, and then rank by rank.

What is shown depends on what each rank said and on nothing else: not on when it came, nor on how the
two streams of a rank reached us between two other outputs.  Such text is put in order: first all
of stdout, then all of stderr.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model import Message
from .cell import CellOutputs, Said
from .error import Error
from .item import Item
from .page import Unfinished
from .publish import Publish

STREAMS = ("stdout", "stderr")
HELD = 16 << 20  # characters and bytes of all ranks; with more, the cell is shown as it comes
SOME = 1 << 20  # the same: what is shown at the end in slices, so that others get their turn


@dataclass(slots=True)
class _Script:
    """What one rank said and has not been shown."""

    said: list[Said] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)  # since the last other output

    def add(self, said: Said) -> int:
        if isinstance(said, Item):
            self.end_texts()
            self.said.append(said)
            return said.size
        stream, text = said
        text = text if isinstance(text, str) else text.text
        self.texts.setdefault(stream, []).append(text)
        return len(text)

    def end_texts(self) -> None:
        names = (*STREAMS, *sorted(self.texts.keys() - set(STREAMS)))
        self.said += [(name, "".join(self.texts[name])) for name in names if name in self.texts]
        self.texts.clear()


class GroupedOutputs:
    """As `CellOutputs`, which it fills at the end."""

    def __init__(self, outputs: CellOutputs):
        self._outputs = outputs
        self._scripts: dict[int, _Script] = {}
        self._held = 0
        self._finished: set[int] = set()
        self._plays = False  # what comes is shown at once

    def feed(self, rank: int, message: Message, at: float) -> list[Publish]:
        """Raises `BadMessage`; nothing has changed then."""
        said = self._outputs.read(rank, message, at)
        if said is None:
            return []
        if self._plays:
            self._outputs.take(rank, said, at)
            return self._advanced(at)
        self._held += self._scripts.setdefault(rank, _Script()).add(said)
        if self._held <= HELD:
            return []
        self._play_all(at)
        published = [out for rank in self._finished for out in self._outputs.finish(rank, at)]
        return published + self._advanced(at)

    def _advanced(self, at: float) -> list[Publish]:
        return [] if self._outputs.is_behind else self._outputs.tick(at)

    def cut(self, rank: int, at: float) -> list[Publish]:
        """A question of the rank follows: what it has said so far is needed to answer."""
        self._play(rank, at)
        return self._outputs.cut(rank, at)

    def finish(self, rank: int, at: float) -> list[Publish]:
        self._finished.add(rank)
        if self._plays:
            return self._outputs.finish(rank, at)
        if self._held > SOME and self._finished.issuperset(self._outputs.ranks):
            self._play_all(at)
            return self._outputs.finish_all(at)
        return []

    def tick(self, at: float) -> list[Publish]:
        return self._outputs.tick(at) if self._plays else []

    def close(self, at: float) -> list[Publish]:
        self._play_all(at)
        return self._outputs.close(at)

    def deadline(self) -> float | None:
        return self._outputs.deadline() if self._plays else None

    @property
    def is_behind(self) -> bool:
        return self._plays and self._outputs.is_behind

    @property
    def unfinished(self) -> Unfinished | None:
        return self._outputs.unfinished

    def full(self) -> frozenset[int]:
        return self._outputs.full()

    def hurry(self) -> None:
        self._outputs.hurry()

    def _play_all(self, at: float) -> None:
        # The first error that is played is shown first.
        for rank in sorted(self._scripts, key=lambda rank: (self._follows(rank), rank)):
            self._play(rank, at)
        self._plays = True

    def _follows(self, rank: int) -> bool:
        """It did not fail, or was interrupted because another did."""
        errors = [said for said in self._scripts[rank].said if isinstance(said, Error)]
        return all(error.content.get("ename") == "KeyboardInterrupt" for error in errors)

    def _play(self, rank: int, at: float) -> None:
        if script := self._scripts.pop(rank, None):
            script.end_texts()
            for said in script.said:
                self._outputs.take(rank, said, at)
