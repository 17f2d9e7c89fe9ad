"""Timers that do not count the time in which this process was stopped.

Checkpoint services and laptops stop the whole tree and let it go on a minute later.  The clock went
on meanwhile, so each deadline would have passed although nobody had had the time for it.  Therefore a
tick runs beside the timers: one that is late by seconds tells how long we were away, and every timer
is put off by as much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

TICK = 1.0  # seconds; only while a timer runs, so that a kernel at rest does nothing at all
AWAY = 2.0  # seconds by which a tick is late if we did not run


@dataclass(slots=True)
class _Timer:
    at: float
    fire: Callable[[], None]
    handle: asyncio.TimerHandle


class Deadlines:
    """One timer per key; setting it again moves it.  Times are the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, back: Callable[[float], None]):
        """``back`` hears after how many seconds we go on."""
        self._loop = loop
        self._back = back
        self._timers: dict[Hashable, _Timer] = {}
        self._tick: asyncio.TimerHandle | None = None
        self._expected = 0.0

    def set(self, key: Hashable, at: float, fire: Callable[[], None]) -> None:
        self.cancel(key)
        self._timers[key] = _Timer(at, fire, self._loop.call_at(at, self._due, key))
        if self._tick is None:
            self._next_tick()

    def cancel(self, key: Hashable) -> None:
        if timer := self._timers.pop(key, None):
            timer.handle.cancel()

    def close(self) -> None:
        for key in list(self._timers):
            self.cancel(key)
        if self._tick is not None:
            self._tick.cancel()

    def _due(self, key: Hashable) -> None:
        if self._was_away():
            return  # it has been put off
        self._timers.pop(key).fire()

    def _next_tick(self) -> None:
        self._expected = self._loop.time() + TICK
        self._tick = self._loop.call_at(self._expected, self._ticked)

    def _ticked(self) -> None:
        self._was_away()
        self._tick = None
        if self._timers:
            self._next_tick()

    def _was_away(self) -> bool:
        """Whether the tick is late; then all timers are put off, the due one included."""
        away = self._loop.time() - self._expected
        if away <= AWAY:
            return False
        self._expected = self._loop.time() + TICK  # said once
        for key, timer in list(self._timers.items()):
            self.set(key, timer.at + away, timer.fire)
        self._back(away)
        return True
