"""The folding rule: which rank's output is published when, and with whose.

Per rank one queue (`Lane`).  Equal heads of all ranks are one output at once (*full fold*).  What
differs waits until it is *due*: `WINDOW` after it came; up to `WINDOW_LEAD` if so far all agreed and
another rank has said nothing yet (it is late, and will say the same), or if it is an error: ranks
need some time for their first traceback, and take turns at it where they are more than the cores.
If every rank has something to say and all said equally much since they last agreed, one item of each
goes out without waiting (*level*).  A flush releases an item that a single rank holds alone, one that several hold when all
of them have it in front.  A rank that has finished, or whose next output is held, is never waited for.

Times are seconds.  Costs are linear in the number of items.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import inf

from .item import Item
from .lane import Lane
from .page import Page

WINDOW = 0.1
WINDOW_LEAD = 0.5
UNFINISHED = 0.5  # after so long a line is shown although its newline has not come
GAP = 0.015  # between two releases of one item per rank
MUCH = 3_000_000  # characters (and `stream.WEIGHT` of each line): with more a rank is not heard
PENDING = 12_000_000  # the same, if it is heard nevertheless: more does not wait for anything
SLICE = 500  # items published at a time: then whoever else wants something of the kernel gets it
LAST = 10 * SLICE  # the same, once no rank says more
CHEAP = 50  # lines that go together and cost no more than one that goes alone


class Fold:
    def __init__(self, ranks: Iterable[int], page: Page):
        self._lanes = {rank: Lane(rank) for rank in sorted(ranks)}
        self._order = list(self._lanes.values())
        self._page = page
        self._last = -inf  # when something was published
        self._left: float = inf  # items of the slice at hand
        self._goes_on: float | None = None  # since when more could be published at once
        self._first_error: tuple[Lane, Item] | None = None  # while it is queued; precedes others
        self.hurries = False  # what came in blocks of lines is not searched for what ranks share

    def lane(self, rank: int, at: float) -> Lane:
        """The queue of a rank; one that the cell was not sent to may speak, and is not waited for."""
        lane = self._lanes.get(rank)
        if lane is None:
            lane = self._lanes[rank] = Lane(rank)
            lane.finished = at
            self._order = [self._lanes[rank] for rank in sorted(self._lanes)]
        return lane

    def failed_first(self, lane: Lane, error: Item) -> None:
        """``error``, just pushed, is the first of all ranks."""
        self._first_error = (lane, error)

    @property
    def is_over(self) -> bool:
        return all(lane.finished is not None for lane in self._order)

    @property
    def is_behind(self) -> bool:
        """More could be published at once: `advance` will be called for that."""
        return self._goes_on is not None

    def full(self) -> frozenset[int]:
        """Ranks of which so much waits that more had better not come; it goes out soon."""
        return frozenset(
            lane.rank for lane in self._order if lane.size > (PENDING if lane.is_blocked else MUCH)
        )

    # ---------------------------------------------------------------- what time brings

    def advance(self, at: float) -> None:
        """Publish what can be published at this time, or a slice of it if it is much."""
        self._goes_on = None
        self._left = SLICE
        if self.is_over:
            self._left = LAST
            self._end()
            if any(lane.items for lane in self._order):
                self._goes_on = at
            return
        while self._left > 0 and (self._fold(at) or self._level(at) or self._flush(at)):
            pass
        if self._left <= 0:
            self._goes_on = at

    def close(self) -> None:
        """Publish all that is left.  No rank says more."""
        self._goes_on = None
        self._left = inf
        self._end()

    def drain(self, lane: Lane) -> None:
        """Publish all that this rank has queued, results included."""
        was_free, lane.free = lane.free, True
        self._left = inf
        flush = _Flush()
        while self._next(lane, flush):
            self._take_front(lane, flush)
        lane.free = was_free
        flush.publish(self._page)

    def deadline(self) -> float:
        """When `advance` has something to do if nothing else happens; ``inf`` for never."""
        if self._goes_on is not None:
            return self._goes_on
        late = self._someone_is_late()
        due = min((self._due(lane, late) for lane in self._order if lane.items), default=inf)
        return min(due, self._last + GAP) if self._is_level() else due

    # ---------------------------------------------------------------- full fold, level

    def _fold(self, at: float) -> bool:
        lanes = self._agreeing()
        if not lanes:
            return False
        while lanes and self._left > 0:
            self._left -= len(lanes)
            self._page.put(lanes, self._agreed(lanes))
            for lane in lanes:
                lane.pos = 0
                lane.lead = True
            lanes = self._agreeing()
        self._last = at
        return True

    def _agreed(self, lanes: list[Lane]) -> list[Item]:
        first, *others = [lane.items[0] for lane in lanes]
        if not first.several or not all(item.several for item in others):
            return self._pop(lanes)
        count = first.common(others)
        self._left -= len(lanes) * count / CHEAP
        return [lane.pop_several(count) for lane in lanes]

    def _agreeing(self) -> list[Lane]:
        """The ranks to be reckoned with, if all of them have the same in front."""
        lanes: list[Lane] = []
        first: Item | None = None
        for lane in self._order:
            items = lane.items
            if not items:
                if lane.finished is None:
                    return []
                continue
            head = items[0]
            if head.held and not lane.free:
                continue
            if head.key is None:
                return []
            if first is None:
                first = head
            elif head.key != first.key and not head.is_same(first):
                return []
            lanes.append(lane)
        return lanes

    def _is_level(self) -> bool:
        pos = -1
        for lane in self._order:
            items = lane.items
            if not items:
                if lane.finished is None:
                    return False
            elif not items[0].held or lane.free:
                if items[0].key is None or pos not in (-1, lane.pos):
                    return False
                pos = lane.pos
        return pos >= 0

    def _level(self, at: float) -> bool:
        if at < self._last + GAP or not self._is_level():
            return False
        flush = _Flush()
        first = {lane.rank: head for lane in self._order if (head := lane.head)}
        for lane in self._order:
            head = self._next(lane, flush)
            if head is not None and head is first.get(lane.rank):
                peers = (peer for peer in self._in_front(head.key))
                self._take([p for p in peers if p.head is first.get(p.rank)], flush)
        flush.publish(self._page)
        self._last = at
        return True

    # ---------------------------------------------------------------- flush of what is due

    def _someone_is_late(self) -> bool:
        """A running rank has nothing that could be published."""
        for lane in self._order:
            if lane.finished is None:
                items = lane.items
                if not items or items[0].key is None:
                    return True
        return False

    def _due(self, lane: Lane, late: bool) -> float:
        item = lane.items[0]
        if item.key is None:
            return item.born + (UNFINISHED if lane.size <= MUCH else 0.0)
        if item.urgent:
            return item.born
        if item.held and not lane.free:
            return inf
        if self.hurries and item.several:
            return item.born
        if item.failure:
            return item.born + WINDOW + item.patience
        if not (late and lane.lead):
            return item.born + WINDOW
        patient = item.born + WINDOW_LEAD  # also of a rank that has finished: it blocks nobody
        return min(patient, lane.barriers[0] + WINDOW) if lane.barriers else patient

    def _flush(self, at: float) -> bool:
        late = self._someone_is_late()
        due = [lane for lane in self._order if lane.items and self._due(lane, late) <= at]
        full = self._full()
        if not due and not full:
            return False
        if self._break_off([*due, *full], at):
            return True
        flush = _Flush()
        released = self._release(inf if full else at - WINDOW / 2, flush)
        flush.publish(self._page)
        self._last = at
        return released

    def _break_off(self, lanes: list[Lane], at: float) -> bool:
        """Show the unfinished lines in front of these ranks, and those of others about as old."""
        if not any(lane.items[0].key is None for lane in lanes):
            return False
        for lane in self._order:
            head = lane.items[0] if lane.items else None
            old = head and head.born <= at - UNFINISHED + WINDOW / 2
            if head and head.key is None and (old or lane in lanes):
                head.break_off(lane, self._order, at)
        return True

    def _full(self) -> list[Lane]:
        """The ranks of which too much waits; results are not held at that price."""
        full = [lane for lane in self._order if lane.size > PENDING]
        for lane in full:
            lane.free = lane.free or lane.is_blocked
        return full

    def _release(self, youngest: float, flush: _Flush) -> bool:
        """Publish every head that came until ``youngest``, and what must precede it."""
        released = self._release_blocks(youngest, flush)
        while self._left > 0 and (self._pass(youngest, flush) or self._unblock(youngest, flush)):
            released = True
        return released

    def _release_blocks(self, youngest: float, flush: _Flush) -> bool:
        """All that is ripe at once, if no two ranks have anything in common that one must wait for."""
        if not any(lane.blocks for lane in self._order):
            return False
        if not self.hurries and self._something_is_shared():
            return False
        released = False
        for lane in self._order:
            taken = 0
            while self._left > 0 and lane.can_go and lane.items[0].is_ripe(youngest):
                if not taken:
                    lane.count_anew()
                item = lane.pop_whole()
                flush.add([lane], [item])
                count = len(item.keys_left()) if item.several else CHEAP
                self._left -= count / CHEAP
                taken += count if item.several else 1
            if taken:
                lane.pos += taken
                lane.lead = False
                released = True
        return released

    def _something_is_shared(self) -> bool:
        seen: dict[Hashable, int] = {}
        for lane in self._order:
            if not seen.keys().isdisjoint(lane.counts):
                return True
            seen.update(lane.counts)
        return False

    def _pass(self, youngest: float, flush: _Flush) -> bool:
        taken = False
        for lane in self._order:
            while (
                self._left > 0
                and (head := self._next(lane, flush, youngest))
                and head.is_ripe(youngest)
            ):
                holders = self._holders(head.key)
                if len(holders) == 1:
                    self._take(holders, flush)
                    taken = True
                    continue
                if all(holder.head and holder.head.key == head.key for holder in holders):
                    self._take(holders, flush)
                    return True  # lower ranks may go on first
                break
        return taken

    def _unblock(self, youngest: float, flush: _Flush) -> bool:
        """All heads wait for each other: bring one forward, in whose front it can be.

        It is one of the rank that has said least since all agreed: so ranks in step stay in step.
        """
        for lane in self._order:
            self._next(lane, flush, youngest)
        ripe = [ln for ln in self._order if ln.head is not None and ln.head.is_ripe(youngest)]
        head = min(ripe, key=lambda lane: lane.pos).head if ripe else None
        if head is None:
            return False
        for holder in self._holders(head.key):
            while (
                self._left > 0
                and (other := self._next(holder, flush))
                and other.key != head.key
                and len(self._holders(other.key)) == 1
            ):
                self._take([holder], flush)
        if self._left > 0 and (front := self._in_front(head.key)):
            self._take(front, flush)
        return True

    # ---------------------------------------------------------------- the end, and errors

    def _end(self) -> None:
        """No rank says more: everything goes out; results are those of all ranks, in order."""
        while self._left > 0 and any(lane.items for lane in self._order):
            lanes = self._agreeing()
            if lanes and all(lane.items[0].several for lane in lanes):
                self._page.put(lanes, self._agreed(lanes))
                continue
            flush = _Flush()
            self._release(inf, flush)
            if self._left <= 0:
                flush.publish(self._page)
                break
            held = {lane.rank: lane.items[0] for lane in self._order if lane.items}
            for lane in self._order:
                if lane.items and lane.items[0] is held.get(lane.rank):
                    key = lane.items[0].key
                    peers = (p for p in self._order if p.items and p.items[0].key == key)
                    self._take([p for p in peers if p.items[0] is held[p.rank]], flush)
            flush.publish(self._page)

    def _next(self, lane: Lane, flush: _Flush, youngest: float = inf) -> Item | None:
        """The head; before any error that may go comes the one of the rank that failed first."""
        first = self._first_error
        if (
            first is not None
            and (head := lane.head)
            and head.failure
            and head.is_ripe(youngest)
            and lane is not first[0]
        ):
            while self._first_error is first and first[0].head is not None:
                self._take_front(first[0], flush)
        return lane.head

    # ---------------------------------------------------------------- small change

    def _holders(self, key: Hashable) -> list[Lane]:
        """Ranks in whose queue it is, those left out that cannot get there."""
        return [lane for lane in self._order if key in lane.counts and not lane.is_blocked]

    def _in_front(self, key: Hashable) -> list[Lane]:
        return [lane for lane in self._order if (head := lane.head) and head.key == key]

    def _take_front(self, lane: Lane, flush: _Flush) -> None:
        """Its head, with the ranks that have the same in front."""
        assert lane.head is not None
        self._take(self._in_front(lane.head.key), flush)

    def _pop(self, lanes: list[Lane]) -> list[Item]:
        items = [lane.pop() for lane in lanes]
        if items[0].failure and self._first_error and self._first_error[1] in items:
            self._first_error = None
        return items

    def _take(self, lanes: list[Lane], flush: _Flush) -> None:
        flush.add(lanes, self._pop(lanes))
        self._left -= len(lanes)
        for lane in lanes:
            lane.pos += 1
            lane.lead = False


class _Flush:
    """What one flush publishes.  Equal items come together where no rank's order forbids it."""

    def __init__(self) -> None:
        self._groups: list[tuple[list[Lane], list[Item]]] = []
        self._latest: dict[int, int] = {}  # rank -> its last group
        self._where: dict[Hashable, int] = {}  # key -> its last group

    def add(self, lanes: list[Lane], items: list[Item]) -> None:
        index = -1 if items[0].several else self._where.get(items[0].key, -1)
        if index > max([self._latest.get(lane.rank, -1) for lane in lanes]):
            self._groups[index][0].extend(lanes)
            self._groups[index][1].extend(items)
        else:
            index = len(self._groups)
            if not items[0].several:  # what several lines share was not looked for
                self._where[items[0].key] = index
            self._groups.append((lanes, items))
        for lane in lanes:
            self._latest[lane.rank] = index

    def publish(self, page: Page) -> None:
        for lanes, items in self._groups:
            pairs = sorted(zip(lanes, items, strict=True), key=lambda pair: pair[0].rank)
            page.put([lane for lane, _ in pairs], [item for _, item in pairs])
