"""clear_output: real if all ranks of the cell clear together.

A client cannot clear one rank's outputs, and those of others must not be lost.  So a rank that
clears on its own gets slots from then on: its k-th output is a display of its own, replaced by what
is its k-th output after the next clear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..model import Message
from .item import Item, Ranks
from .page import Page
from .splice import Parsed


class Clear(Item):
    __slots__ = ("message", "on_all", "on_some", "wait")

    def __init__(
        self,
        born: float,
        message: Message,
        on_all: Callable[[], None],
        on_some: Callable[[Ranks, bool], None],
    ):
        self.wait = Parsed(message.content).content.flag("wait")
        super().__init__(born, ("clear_output", self.wait), len(message.content))
        self.message = message
        self.on_all = on_all
        self.on_some = on_some

    def publish(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> None:
        if ranks == page.all:
            page.clear(self.message.content)
            self.on_all()
        else:
            self.on_some(ranks, self.wait)
