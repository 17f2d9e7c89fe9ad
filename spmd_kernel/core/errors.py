"""Who is at fault decides what is answered.

* `BadMessage`: the peer's; the message is dropped or answered with an error, one log line.
* `UsageError`: the user's; an error output with a ``hint:``, state untouched.
* `RankLost`: a rank died; named, with its cause.
* `InternalError`: ours; the request still gets its one reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def headline(error: Mapping[str, Any]) -> str:
    """One line for an error's content; Bash's kernel, for one, gives no name and no traceback."""
    name, value = error.get("ename") or "Error", error.get("evalue") or ""
    return f"{name}: {value}" if value else str(name)


class SpmdError(Exception):
    """``str(error)`` is what happened (and on which rank); ``hint`` is what to do about it."""

    def __init__(self, what: str, hint: str = ""):
        super().__init__(what)
        self.hint = hint

    @property
    def ename(self) -> str:
        return type(self).__name__

    def lines(self) -> list[str]:
        """The traceback of the error output: no frames of ours, which would help nobody."""
        head = f"{self.ename}: {self}"
        return [head, f"hint: {self.hint}"] if self.hint else [head]


class BadMessage(SpmdError):
    pass


class UsageError(SpmdError):
    pass


class RankLost(SpmdError):
    pass


class InternalError(SpmdError):
    pass


class TimeLimit(SpmdError):
    """A cell ran longer than its ``%%timeout`` allowed."""


class Interrupted(SpmdError):
    """The user pressed Stop while we (not a rank) were at work."""

    @property
    def ename(self) -> str:
        return "KeyboardInterrupt"
