"""Questions to the system about ranks, and who waits for the answer: dumps, connections closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .model import Dump, Dumped, Rank, Unblock, Unblocked
from .stage import Stage

ANSWER_SECONDS = 2.0  # whoever waits goes on without; an engine answers within 0.5 s


class Lookouts:
    def __init__(self, stage: Stage):
        self._stage = stage
        self._token = 0
        self._waiting: dict[int, Callable[[Any], None]] = {}

    def dump(self, ranks: tuple[Rank, ...], resume: Callable[[Dumped], None]) -> Callable[[], None]:
        """``resume`` hears the stacks, once. Returns a function that gives up."""
        token = self._ask(resume)
        self._stage.emit(Dump(token, ranks))
        self._stage.timer(("dump", token), ANSWER_SECONDS)

        def give_up() -> None:
            self._forget(token)

        return give_up

    def unblock(
        self,
        ranks: tuple[Rank, ...],
        ports: tuple[int, ...],
        resume: Callable[[Unblocked], None],
        *,
        store: bool = False,
    ) -> None:
        self._stage.emit(Unblock(self._ask(resume), ranks, ports, store))

    def _ask(self, resume: Callable[[Any], None]) -> int:
        self._token += 1
        self._waiting[self._token] = resume
        return self._token

    def answered(self, event: Dumped | Unblocked) -> None:
        if resume := self._forget(event.token):
            resume(event)

    def overdue(self, token: int) -> None:
        self.answered(Dumped(self._stage.at, token, {}))

    def _forget(self, token: int) -> Callable[[Any], None] | None:
        resume = self._waiting.pop(token, None)
        if resume is not None:
            self._stage.cancel(("dump", token))
        return resume
