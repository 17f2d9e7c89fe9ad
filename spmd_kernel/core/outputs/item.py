"""What waits in a rank's queue: one output, of whatever kind, until it is decided who said it too."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from .lane import Lane
    from .page import Page
    from .slots import Slots

Ranks = tuple[int, ...]


class Item:
    """One output of one rank.  Items of several ranks with equal ``key`` may become one output."""

    __slots__ = ("born", "key", "size")

    barrier: ClassVar[bool] = True  # text before it is not kept waiting for a straggler
    held: ClassVar[bool] = False  # until every rank of the cell has finished
    urgent: ClassVar[bool] = False  # nothing is gained by waiting once it is in front
    failure: ClassVar[bool] = False  # the first of all ranks comes first
    patience: ClassVar[float] = 0.0  # seconds that it waits longer than others
    several: ClassVar[bool] = False  # it stands for many: see `part`

    def __init__(self, born: float, key: Hashable | None, size: int):
        self.born = born  # when it came
        self.key = key  # None: not complete, cannot be published yet
        self.size = size  # how much of what may be pending it takes, in characters

    # Of an item that stands for `several`:

    def part(self) -> tuple[Item, bool]:
        """Take the first off; and whether it was the last."""
        raise NotImplementedError

    def common(self, others: Sequence[Item]) -> int:
        """With how many of its first ones the others begin, too."""
        raise NotImplementedError

    def split(self, count: int) -> Item:
        """Take so many off, as one; some are left."""
        raise NotImplementedError

    def keys_left(self) -> Sequence[Hashable]:
        """The keys of those that it still stands for."""
        raise NotImplementedError

    def is_ripe(self, youngest: float) -> bool:
        """It came early enough to go out in a flush that takes what came until ``youngest``."""
        return self.born <= youngest - self.patience or self.urgent

    def is_same(self, other: Item) -> bool:
        """They came equal.  Keys can differ all the same: rank 0's own device is not rank 1's."""
        return False

    def publish(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> None:
        """Put it on the page for ``ranks``, whose ``items`` are all equal; ``self`` is the first."""
        raise NotImplementedError

    def to_slot(self, slots: Slots, rank: int) -> bool:
        """Show it in a slot of its rank, which clears on its own.  False: it is published as ever."""
        return False

    def break_off(self, lane: Lane, lanes: Sequence[Lane], at: float) -> None:
        """It is not complete and will not be waited for: complete it as far as it has come."""
        raise NotImplementedError


class Alone:
    """The key of what never folds: equal to nothing."""

    __slots__ = ()
