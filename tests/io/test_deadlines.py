"""Timers of a process that is stopped for a while: on a loop whose clock the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from spmd_kernel.io.deadlines import Deadlines


class Loop(asyncio.SelectorEventLoop):
    """The clock stands still, but for `stop_for` and for sleeping until the next timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def stop_for(self, seconds: float) -> None:
        self.now += seconds

    async def go_on(self, seconds: float) -> None:
        """The process runs: nothing is late by more than a blink."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.1)
            for _ in range(5):
                await asyncio.sleep(0)


def run(test: Coroutine[Any, Any, None], loop: Loop) -> None:
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()


def test_the_time_in_which_it_was_stopped_does_not_count() -> None:
    loop, fired, away = Loop(), [], []

    async def main() -> None:
        deadlines = Deadlines(loop, away.append)
        for key, after in (("soon", 0.5), ("due meanwhile", 5.0), ("due after", 62.0)):
            deadlines.set(key, deadlines.now() + after, lambda key=key: fired.append(key))
        await loop.go_on(2.0)
        assert fired == ["soon"]
        loop.stop_for(60.0)
        await loop.go_on(2.0)
        assert fired == ["soon"]
        assert len(away) == 1
        assert 58 < away[0] < 61
        await loop.go_on(4.0)
        assert fired == ["soon", "due meanwhile"]
        await loop.go_on(50.0)
        assert fired == ["soon", "due meanwhile"]  # 58 of its 62 seconds
        await loop.go_on(6.0)
        assert fired == ["soon", "due meanwhile", "due after"]
        deadlines.close()

    run(main(), loop)


def test_a_timer_is_moved_cancelled_and_may_set_itself_again() -> None:
    loop, fired = Loop(), []

    async def main() -> None:
        deadlines = Deadlines(loop, fired.append)

        def again() -> None:
            fired.append("again")
            if len(fired) < 3:
                deadlines.set("a", deadlines.now() + 1.0, again)

        deadlines.set("a", deadlines.now() + 1.0, lambda: fired.append("moved"))
        deadlines.set("a", deadlines.now() + 2.0, again)
        deadlines.set("b", deadlines.now() + 1.0, lambda: fired.append("cancelled"))
        deadlines.cancel("b")
        deadlines.cancel("never set")
        await loop.go_on(1.5)
        assert fired == []
        await loop.go_on(5.0)
        assert fired == ["again"] * 3

    run(main(), loop)


def test_nothing_ticks_where_nothing_is_set() -> None:
    loop = Loop()

    async def main() -> None:
        deadlines = Deadlines(loop, lambda _: None)
        deadlines.set("a", deadlines.now() + 1.0, lambda: None)
        await loop.go_on(10.0)
        assert [h for h in loop._scheduled if not h.cancelled()] == []  # type: ignore[attr-defined]
        loop.stop_for(60.0)  # at rest: no deadline, so nothing to put off
        fired: list[float] = []
        deadlines.set("a", deadlines.now() + 1.0, lambda: fired.append(loop.time()))
        await loop.go_on(1.5)
        assert len(fired) == 1
        deadlines.close()

    run(main(), loop)
