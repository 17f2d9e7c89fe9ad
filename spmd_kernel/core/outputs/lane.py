"""One rank's queue of outputs: first in, first out, over all kinds, as order in a rank is sacred."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable

from .item import Item


class Lane:
    __slots__ = (
        "barriers",
        "blocks",
        "counts",
        "finished",
        "free",
        "items",
        "lead",
        "pos",
        "rank",
        "size",
    )

    def __init__(self, rank: int):
        self.rank = rank
        self.items: deque[Item] = deque()
        self.counts: Counter[Hashable] = Counter()  # how many complete items of each key wait here
        self.barriers: deque[float] = deque()  # when those that hurry what is before them came
        self.pos = 0  # items published since the last that all agreed on
        self.lead = True  # the last one published was agreed on by all
        self.finished: float | None = None  # since when nothing more comes
        self.free = False  # its results are no longer held
        self.size = 0
        self.blocks = 0  # items that stand for several

    def push(self, item: Item) -> None:
        self.items.append(item)
        self.size += item.size
        if item.barrier:
            self.barriers.append(item.born)
        if item.several:
            self.blocks += 1
        self._count(item)

    def _count(self, item: Item) -> None:
        if item.several:
            self.counts.update(item.keys_left())
        elif item.key is not None:
            self.counts[item.key] = self.counts.get(item.key, 0) + 1

    def complete(self, item: Item, key: Hashable, size: int) -> None:
        """An open item of this lane got its key."""
        item.key = key
        self.size += size - item.size
        item.size = size
        self.counts[key] = self.counts.get(key, 0) + 1

    def pop(self) -> Item:
        self.unpack()
        item = self.items.popleft()
        self.size -= item.size
        if item.barrier:
            self.barriers.popleft()
        key = item.key
        count = self.counts[key] - 1
        if count:
            self.counts[key] = count
        else:
            del self.counts[key]
        return item

    def unpack(self) -> None:
        """If what is in front stands for several, put the first of them before the others."""
        front = self.items[0]
        if front.several:
            line, is_empty = front.part()
            if is_empty:
                self.items.popleft()
                self.blocks -= 1
            self.items.appendleft(line)

    def pop_whole(self) -> Item:
        """The front as it is; `recount` when no more is taken."""
        item = self.items.popleft()
        self.size -= item.size
        self.blocks -= item.several
        if item.barrier:
            self.barriers.popleft()
        return item

    @property
    def can_go(self) -> bool:
        """What is in front needs nobody but this rank."""
        if not self.items:
            return False
        item = self.items[0]
        return item.key is not None and (self.free or not item.held) and not item.failure

    def recount(self) -> None:
        self.counts.clear()
        for item in self.items:
            self._count(item)

    def insert_second(self, item: Item) -> None:
        """Put what was split off the head behind it."""
        head = self.items.popleft()
        self.items.appendleft(item)
        self.items.appendleft(head)
        self.size += item.size

    def remove(self, item: Item) -> None:
        """Take an open item out: it turned out to be a line that is being rewritten."""
        self.items.remove(item)
        self.size -= item.size

    @property
    def head(self) -> Item | None:
        """What could be published next, if it is complete and not held."""
        if self.items:
            item = self.items[0]
            if item.several:
                self.unpack()
                return self.items[0]
            if item.key is not None and (self.free or not item.held):
                return item
        return None

    @property
    def is_blocked(self) -> bool:
        """Its next output is held to the end of the cell: nobody waits for this rank."""
        return bool(self.items) and self.items[0].held and not self.free

    @property
    def is_running(self) -> bool:
        """More may come from it, and what comes can be published."""
        return self.finished is None and not self.is_blocked
