"""The time that the core knows, and its timers: they do not count while this process was stopped.

Checkpoint services and laptops stop the whole tree and let it go on a minute later.  The loop's clock
went on meanwhile, so each deadline would have passed although nobody had had the time for it, and
what two ranks said together would lie a minute apart.  Therefore a tick runs beside the timers: one
that is late by seconds tells how long we were away, and that is taken off.
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
    """One timer per key; setting it again moves it.  Times are those of `now`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, back: Callable[[float], None]):
        """``back`` hears after how many seconds we go on."""
        self._loop = loop
        self._back = back
        self._timers: dict[Hashable, _Timer] = {}
        self._tick: asyncio.TimerHandle | None = None
        self._expected = 0.0
        self._seen = 0.0  # when we ran last
        self._away = 0.0  # seconds in all

    def now(self) -> float:
        """Seconds of a monotonic clock that stands still when we do."""
        if self._tick is not None:
            self._notice()
        self._seen = self._loop.time()
        return self._seen - self._away

    def set(self, key: Hashable, at: float, fire: Callable[[], None]) -> None:
        self.cancel(key)
        self._timers[key] = _Timer(at, fire, self._call(key, at))
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

    def _call(self, key: Hashable, at: float) -> asyncio.TimerHandle:
        return self._loop.call_at(at + self._away, self._due, key)

    def _due(self, key: Hashable) -> None:
        if not self._notice():  # else it has been put off
            self._timers.pop(key).fire()

    def _next_tick(self) -> None:
        self._expected = self._loop.time() + TICK
        self._tick = self._loop.call_at(self._expected, self._ticked)

    def _ticked(self) -> None:
        self._notice()
        self._tick = None
        if self._timers:
            self._next_tick()

    def _notice(self) -> bool:
        """Whether the tick is late; then all timers are put off."""
        time = self._loop.time()
        if time - self._expected <= AWAY:
            return False
        away = time - max(self._seen, self._expected - TICK)
        self._expected = time + TICK  # noticed once
        self._away += away
        for key, timer in self._timers.items():
            timer.handle.cancel()
            timer.handle = self._call(key, timer.at)
        if away > TICK:  # else the loop was busy
            self._back(away)
        return True
