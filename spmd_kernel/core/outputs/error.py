"""error: one per distinct traceback, the rank that failed first before all others."""

from __future__ import annotations

from collections.abc import Sequence

from ..content import Content
from ..errors import headline
from ..model import Message
from .item import Item, Ranks
from .keys import Keys
from .page import Page
from .splice import Parsed


class Error(Item):
    __slots__ = ("message", "parsed", "traceback")
    failure = True
    patience = 0.4  # others may be about to fail alike: a first traceback takes a while

    def __init__(self, born: float, message: Message, keys: Keys):
        self.message = message
        self.parsed = Parsed(message.content)
        self.traceback = [str(line) for line in self.content.items_of("traceback")]
        said = (self.content.text("ename"), self.content.text("evalue"), *self.traceback)
        super().__init__(born, ("error", *map(keys.short, said)), len(message.content))

    @property
    def content(self) -> Content:
        return self.parsed.content

    def is_same(self, other: Item) -> bool:
        return isinstance(other, Error) and self.content == other.content

    def publish(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> None:
        content = self.message.content
        traceback = self._shown(page, ranks, items)
        if prefix := page.label(ranks):
            first, *others = traceback or [headline(self.content)]
            traceback = [prefix + first, *others]
        if traceback != self.traceback:
            content = self.parsed.replaced({"traceback": traceback})
        page.show(ranks, "error", content, self.message.metadata, self.message.buffers)

    def _shown(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> list[str]:
        if all(isinstance(item, Error) and item.traceback == self.traceback for item in items):
            return self.traceback
        return [page.keys[ranks[0]].shown(line) for line in self.traceback]
