"""The outputs of one cell: messages of ranks in, messages of the one kernel out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from ..content import Content, read
from ..model import Message
from .clear import Clear
from .display import Display, Result, Update
from .error import Error
from .fold import Fold
from .ids import DisplayIds
from .item import Item, Ranks
from .keys import Keys
from .lane import Lane
from .live import LiveSlot
from .page import Page, Unfinished
from .policy import OutputPolicy
from .publish import Publish
from .stream import RankText
from .writing import Escaped, read_stream

Said = Item | tuple[str, str | Escaped]  # an output, or text of a stream: (its name, the text)


class CellOutputs:
    """Every output of every rank that runs the cell, labelled and folded.

    ``ranks`` run it, of ``world_size``.  ``local_ranks`` gives LOCAL_RANK where it is not the rank.
    ``unfinished`` is what outputs before these have left.  All times are seconds of one monotonic
    clock.  After each call `deadline` says when to `tick`.
    """

    def __init__(
        self,
        ranks: tuple[int, ...],
        world_size: int,
        display_ids: DisplayIds | None = None,
        local_ranks: Mapping[int, int] | None = None,
        policy: OutputPolicy = OutputPolicy(),
        unfinished: Unfinished | None = None,
    ):
        self.ranks = ranks
        self._policy = policy
        self._ids = display_ids or DisplayIds()
        self._local_ranks = local_ranks or {}
        self._bare = world_size == 1
        self._keys: dict[int, Keys] = {}
        self._texts: dict[int, RankText] = {}
        self._page = Page(ranks, world_size, self._keys, self._ids, policy.show, unfinished)
        self._fold = Fold(ranks, self._page)
        self._live = LiveSlot(self._page, self._ids, policy)
        self._slots = self._page.slots
        self._root_cause: tuple[int, Content] | None = None
        self._at = 0.0
        for rank in ranks:
            self._lane(rank, 0.0)

    @property
    def unfinished(self) -> Unfinished | None:
        """The line at the end of what has been published, if its newline has not come."""
        return self._page.unfinished

    @property
    def root_cause(self) -> tuple[int, Content] | None:
        """The rank whose error came first, and its error as the rank sent it."""
        return self._root_cause

    def feed(self, rank: int, message: Message, at: float) -> list[Publish]:
        """An IOPub message of a rank.  Raises `BadMessage`; nothing has changed then."""
        if self._bare:
            return self._pass_on(rank, message)
        said = self.read(rank, message, at)
        if said is None:
            return []
        self.take(rank, said, at)
        return [] if self._fold.is_behind else self._advance(at)

    def read(self, rank: int, message: Message, at: float) -> Said | None:
        """What a message says; ``None``: it is no output.  Raises `BadMessage`."""
        self._at = at
        if message.msg_type == "stream":
            if simple := read_stream(message.content):
                return simple
            content = read(message.content)
            return content.text("name", "stdout"), content.text("text")
        if make := _KINDS.get(message.msg_type):
            self._lane(rank, at)
            return make(self, rank, message)
        return None

    def take(self, rank: int, said: Said, at: float) -> None:
        """Queue it.  Nothing is published before `tick` or `close`."""
        lane = self._lane(rank, at)
        if isinstance(said, Item):
            self._texts[rank].cut(at)
            lane.push(said)
            if isinstance(said, Error):
                self._failed(lane, said)
        else:
            stream, text = said
            self._texts[rank].feed(stream, text, at)

    def cut(self, rank: int, at: float) -> list[Publish]:
        """Publish all that this rank has said: a question of its follows."""
        if not self._bare:
            lane = self._lane(rank, at)
            self._texts[rank].cut(at)
            self._fold.drain(lane)
        return self._advance(at)

    def finish(self, rank: int, at: float) -> list[Publish]:
        """The rank is done or dead; it is not waited for any more."""
        lane = self._lane(rank, at)
        if lane.finished is None:
            lane.finished = at
        self._texts[rank].finish(at)
        return self._advance(at)

    def finish_all(self, at: float) -> list[Publish]:
        """No rank says more."""
        self._all_are_done(at)
        return self._advance(at)

    def tick(self, at: float) -> list[Publish]:
        """The deadline has passed."""
        return self._advance(at)

    def close(self, at: float) -> list[Publish]:
        """The cell is over: everything still held is published."""
        self._all_are_done(at)
        self._fold.close()
        self._live.end()
        self._slots.end()
        return self._page.take()

    def deadline(self) -> float | None:
        """When `tick` has something to do; ``None``: nothing is pending but held results."""
        due = min(self._fold.deadline(), self._live.deadline())
        return None if due == inf else due

    @property
    def is_behind(self) -> bool:
        """It is not done with what could be published now: `tick` at once."""
        return self._fold.is_behind

    def full(self) -> frozenset[int]:
        """Ranks of which so much is held that they had better not be heard for a while."""
        return self._fold.full()

    def hurry(self) -> None:
        """From now on, to be done is more important than to find all that ranks have in common."""
        self._fold.hurries = True

    # ---------------------------------------------------------------- inside

    def _advance(self, at: float) -> list[Publish]:
        self._at = at
        self._fold.advance(at)
        self._live.show(at)
        return self._page.take()

    def _all_are_done(self, at: float) -> None:
        for rank in list(self._texts):
            lane = self._lane(rank, at)
            lane.finished = at
            self._texts[rank].finish(at)

    def _lane(self, rank: int, at: float) -> Lane:
        lane = self._fold.lane(rank, at)
        if rank not in self._texts:
            keys = self._keys[rank] = Keys(self._local_ranks.get(rank, rank))
            self._texts[rank] = RankText(lane, keys, self._live, self._policy.marks)
        return lane

    def _failed(self, lane: Lane, error: Error) -> None:
        lane.free = True  # an error is not kept waiting behind a held result
        if self._root_cause is None:
            self._root_cause = (lane.rank, error.content)
            self._fold.failed_first(lane, error)

    def _pass_on(self, rank: int, message: Message) -> list[Publish]:
        if message.msg_type == "error" and self._root_cause is None:
            self._root_cause = (rank, read(message.content))
        return [Publish(message.msg_type, message.content, message.metadata, message.buffers)]

    def _clear_all(self) -> None:
        self._slots.cleared()
        self._live.cleared(self._at)

    def _clear_some(self, ranks: Ranks, wait: bool) -> None:
        if not self._policy.has_live_slot:
            return  # a client that ignores updates must get all as ordinary outputs
        for rank in ranks:
            self._slots.clear(rank, wait)

    # ---------------------------------------------------------------- kinds of output

    def _display(self, rank: int, message: Message) -> Item:
        return Display(self._at, rank, message, self._keys[rank], self._ids)

    def _update(self, rank: int, message: Message) -> Item:
        return Update(self._at, rank, message, self._keys[rank], self._ids)

    def _result(self, rank: int, message: Message) -> Item:
        return Result(self._at, rank, message, self._keys[rank], self._ids)

    def _error(self, rank: int, message: Message) -> Item:
        return Error(self._at, message, self._keys[rank])

    def _clear(self, rank: int, message: Message) -> Item:
        return Clear(self._at, message, self._clear_all, self._clear_some)


_KINDS: dict[str, Callable[[CellOutputs, int, Message], Item]] = {
    "display_data": CellOutputs._display,
    "update_display_data": CellOutputs._update,
    "execute_result": CellOutputs._result,
    "error": CellOutputs._error,
    "clear_output": CellOutputs._clear,
}
