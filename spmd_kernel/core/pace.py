"""Which ranks are not heard for a while, because they say more than can be shown at once.

What a rank says meanwhile stays in its process, and soon it waits itself where it prints (see
`rank/flow.py`): so nothing piles up here, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from .model import Effect, Listen, Rank

NOBODY: frozenset[Rank] = frozenset()


class Pace:
    """Of all machines that ranks' outputs wait in, each named by its ``key``."""

    def __init__(self, emit: Callable[[Effect], None]):
        self._emit = emit
        self._full: dict[str, frozenset[Rank]] = {}
        self._unheard = NOBODY

    def set(self, key: str, full: frozenset[Rank]) -> None:
        """These ranks have said too much there, and no others."""
        if full == self._full.get(key, NOBODY):
            return
        if full:
            self._full[key] = full
        else:
            del self._full[key]
        before, self._unheard = self._unheard, NOBODY.union(*self._full.values())
        if begin := before - self._unheard:
            self._emit(Listen(tuple(sorted(begin)), True))
        if end := self._unheard - before:
            self._emit(Listen(tuple(sorted(end)), False))
