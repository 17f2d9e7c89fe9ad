"""display_data and update_display_data: mime bundles that carry their ranks in the metadata."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from ..content import dumps
from ..errors import BadMessage
from ..model import Message
from .closed import Closed, opened
from .ids import DisplayIds
from .item import Alone, Item, Ranks
from .keys import Keys
from .labels import label_lines
from .page import Page
from .slots import Slots
from .splice import Parsed

_RICH = 8  # bytes of rich content count as one character of text among what may be pending


class Bundle(Item):
    """Data by mime type.  Equal ones of several ranks are one, unless a display id tells them apart."""

    __slots__ = ("data", "message", "parsed", "rank")
    named: ClassVar[str] = ""  # msg_type

    def __init__(self, born: float, rank: int, message: Message, keys: Keys):
        self.parsed = Parsed(message.content)
        self.data = self.parsed.content.mapping("data")
        weight = len(message.content) // _RICH  # it does not wait long, and is worth it
        super().__init__(born, self._key(message, keys), weight)
        self.message = message
        self.rank = rank

    @property
    def display_id(self) -> str | None:
        return self.parsed.content.mapping("transient").get("display_id")

    def _key(self, message: Message, keys: Keys) -> Hashable:
        content = self.parsed.content
        if self.display_id is not None or message.buffers:
            return Alone()
        data = tuple((mime, _comparable(mime, self.data[mime], keys)) for mime in sorted(self.data))
        return (self.named, data, dumps(content.mapping("metadata")))

    def is_same(self, other: Item) -> bool:
        return (
            type(other) is type(self)
            and not isinstance(self.key, Alone)
            and not isinstance(other.key, Alone)
            and self.data == other.data
            and self.parsed.content.get("metadata") == other.parsed.content.get("metadata")
        )

    def shown(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> dict[str, Any]:
        """The data; of ranks that each named their own device, without its number."""
        if all(isinstance(item, Bundle) and item.data == self.data for item in items):
            return self.data
        star = page.keys[ranks[0]].shown
        return {
            mime: star(value) if mime.startswith("text/") and isinstance(value, str) else value
            for mime, value in self.data.items()
        }

    def bundle(self, page: Page, ranks: Ranks, items: Sequence[Item], ids: DisplayIds) -> bytes:
        """The content with its mark: ranks in the metadata, labels if it is nothing but text."""
        data = self.shown(page, ranks, items)
        if ranks != page.all and is_text(data):
            data = {"text/plain": label_lines(page.label(ranks), data["text/plain"])}
        content = self.parsed.content
        changes: dict[str, Any] = {"metadata": content.mapping("metadata") | page.metadata(ranks)}
        if data is not self.data:
            changes["data"] = opened(data)
        if (own := self.display_id) is not None:
            transient = content.mapping("transient")
            changes["transient"] = transient | {"display_id": ids.of(self.rank, own)}
        return self.parsed.replaced(changes)


def is_text(data: dict[str, Any]) -> bool:
    """Nothing but text/plain, which can carry labels itself."""
    return data.keys() == {"text/plain"} and isinstance(data["text/plain"], str)


def _comparable(mime: str, value: Any, keys: Keys) -> Hashable:
    if isinstance(value, Closed):
        return value
    if not isinstance(value, str):
        return dumps(value)
    return keys.short(value) if mime.startswith("text/") else value


class Display(Bundle):
    __slots__ = ("ids",)
    named = "display_data"

    def __init__(self, born: float, rank: int, message: Message, keys: Keys, ids: DisplayIds):
        super().__init__(born, rank, message, keys)
        self.ids = ids

    def publish(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> None:
        if not is_text(self.data):
            page.caption(ranks)
        content = self.bundle(page, ranks, items, self.ids)
        page.show(ranks, self.named, content, self.message.metadata, self.message.buffers)

    def to_slot(self, slots: Slots, rank: int) -> bool:
        if isinstance(self.key, Alone):
            return False
        slots.bundle(rank, opened(self.data), self.parsed.content.mapping("metadata"))
        return True


class Update(Display):
    """It has no place among the outputs, so nobody needs to agree on it."""

    __slots__ = ()
    named = "update_display_data"
    urgent = True

    def _key(self, message: Message, keys: Keys) -> Hashable:
        if not isinstance(self.display_id, str):
            raise BadMessage("an update without display_id")
        return Alone()

    def publish(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> None:
        content = self.bundle(page, ranks, items, self.ids)
        page.message(self.named, content, self.message.metadata, self.message.buffers)


class Result(Display):
    """One per distinct value, once all ranks have finished: only then it is known who agrees."""

    __slots__ = ()
    named = "execute_result"
    held = True

    def to_slot(self, slots: Slots, rank: int) -> bool:
        return False
