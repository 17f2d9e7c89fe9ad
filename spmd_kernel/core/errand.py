"""A script of no cell that needs the ranks for itself: a client starts ranks from a toolbar.

It has its turn among the cells, and no cell runs while it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conversation import Script, Talk
from .errors import Interrupted, SpmdError


class Errand:
    def __init__(self, script: Script, asker: Talk, perform: Callable[[Talk, Any], None]):
        """``asker`` is resumed with what the script returns, or with its error."""
        self._script = script
        self._asker = asker
        self._perform = perform
        self._talk: Talk | None = None

    def begin(self, over: Callable[[], None]) -> None:
        def done(value: Any, error: SpmdError | None) -> None:
            over()
            self._asker.step(value, error)

        self._talk = Talk(self._script, self._perform, done)
        self._asker.nest(self._talk)

    def interrupt(self) -> None:
        if self._talk is not None:
            self._talk.throw(Interrupted("stopped by the user"))

    def end(self, error: SpmdError) -> None:
        """Drop it, or never begin it."""
        if self._talk is not None:
            self._talk.close()
        self._asker.step(error=error)

    @property
    def asking(self) -> tuple[int, ...]:
        """The ranks that it has asked something."""
        return self._talk.asking if self._talk is not None else ()
