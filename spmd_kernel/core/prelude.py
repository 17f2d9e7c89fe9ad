"""What prepared the first rank, to be said again to the ranks that the first `%processes` starts.

Clients run set-up of their own before the user's first cell (VS Code), and papermill puts its
parameters into a cell of literal assignments: both mean the same on any rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from .literals import assigned_names, is_literal_assignments


@dataclass(frozen=True, slots=True)
class Replay:
    """Code that runs again on new ranks, and the names that it sets."""

    code: str
    names: tuple[str, ...] = ()


class Prelude:
    def __init__(self) -> None:
        self._items: dict[str, Replay] = {}  # by code: the same cell run twice is replayed once
        self._user_has_begun = False
        self._complete = False  # the first `%processes` has started its ranks

    @property
    def items(self) -> tuple[Replay, ...]:
        return tuple(self._items.values())

    def user_begins(self) -> None:
        self._user_has_begun = True

    def ranks_started(self) -> None:
        """After the first start that a user asked for, nothing of the user's is replayed any more.

        Parameters may have changed by then; what a client set up silently has not.
        """
        if self._user_has_begun:
            self._complete = True
            self._items = {code: item for code, item in self._items.items() if not item.names}

    def remember(self, code: str, *, unseen: bool) -> None:
        """A cell without magics of ours that did well."""
        if self._complete or not code.strip():
            return
        if is_literal_assignments(code):
            self._items.pop(code, None)
            self._items[code] = Replay(code, assigned_names(code))
        elif unseen and not self._user_has_begun:
            self._items[code] = Replay(code)
