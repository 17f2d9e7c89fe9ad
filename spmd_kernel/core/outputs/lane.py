"""One rank's queue of outputs: first in, first out, over all kinds, as order in a rank is sacred."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Sequence

from .item import Item


class Lane:
    __slots__ = (
        "_counts",
        "_uncounted",
        "barriers",
        "blocks",
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
        self._counts: Counter[Hashable] = Counter()  # how many complete items of each key wait here
        self._uncounted: deque[Item] = deque()  # blocks that are not among these yet
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
            self._uncounted.append(item)
        else:
            self._count(item)

    @property
    def counts(self) -> Counter[Hashable]:
        """How many complete items of each key wait here: most blocks go before anybody asks."""
        while self._uncounted:
            block = self._uncounted.popleft()
            self._counts.update(block.keys_left())
        return self._counts

    def _is_counted(self, front: Item) -> bool:
        """The block in front."""
        return not self._uncounted or self._uncounted[0] is not front

    def _count(self, item: Item) -> None:
        if item.key is not None:
            self._counts[item.key] = self._counts.get(item.key, 0) + 1

    def _uncount_several(self, front: Item, keys: Sequence[Hashable]) -> None:
        if not self._is_counted(front):
            return
        if 4 * len(keys) > len(self._counts):
            self.count_anew()
        else:
            for key in keys:
                self._uncount(key)

    def count_anew(self) -> None:
        """When somebody asks: most of what was counted is about to go."""
        self._counts.clear()
        self._uncounted.clear()
        for item in self.items:
            if item.several:
                self._uncounted.append(item)
            else:
                self._count(item)

    def _uncount(self, key: Hashable) -> None:
        count = self._counts[key] - 1
        if count:
            self._counts[key] = count
        else:
            del self._counts[key]

    def complete(self, item: Item, key: Hashable, size: int) -> None:
        """An open item of this lane got its key."""
        item.key = key
        self.size += size - item.size
        item.size = size
        self._count(item)

    def pop(self) -> Item:
        self.unpack()
        item = self.items.popleft()
        self.size -= item.size
        if item.barrier:
            self.barriers.popleft()
        self._uncount(item.key)
        return item

    def unpack(self) -> None:
        """If what is in front stands for several, put the first of them before the others."""
        front = self.items[0]
        if front.several:
            line, is_empty = front.part()
            if not self._is_counted(front):
                self._count(line)
            if is_empty:
                self._gone(front)
                self.items.popleft()
            self.items.appendleft(line)

    def pop_whole(self) -> Item:
        """The front as it is."""
        item = self.items[0]
        if not item.several:
            return self.pop()
        self._uncount_several(item, item.keys_left())
        self._gone(item)
        self.size -= item.size
        return self.items.popleft()

    def pop_several(self, count: int) -> Item:
        """So many of those that the front stands for, as one."""
        front = self.items[0]
        keys = front.keys_left()
        if count == len(keys):
            return self.pop_whole()
        self._uncount_several(front, keys[:count])
        part = front.split(count)
        self.size -= part.size
        return part

    def _gone(self, block: Item) -> None:
        """It is about to be taken out, or nothing is left of it."""
        self.blocks -= 1
        if not self._is_counted(block):
            self._uncounted.popleft()

    @property
    def can_go(self) -> bool:
        """What is in front needs nobody but this rank."""
        if not self.items:
            return False
        item = self.items[0]
        return item.key is not None and (self.free or not item.held) and not item.failure

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
