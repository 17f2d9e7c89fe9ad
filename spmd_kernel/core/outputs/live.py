"""The live slot: one display per cell that shows the lines being rewritten with ``\\r``.

A line per rank, updated a few times a second.  Clients that ignore display updates see its first
state, and the final line, which goes to the stream when its newline comes.
"""

from __future__ import annotations

import re
from math import inf

from ..content import dumps
from .ids import DisplayIds
from .page import Page

DELAY = 0.5  # seconds that a line is rewritten before the slot opens: short bars never show
INTERVAL = 0.1  # seconds between updates
INTERVAL_MANY = 0.25  # the same beyond MANY ranks
MANY = 16
ROWS = 8  # more lines than this are summed up
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")

Row = tuple[int, str]  # rank, stream


class LiveSlot:
    def __init__(self, page: Page, ids: DisplayIds):
        self._page = page
        self._ids = ids
        self._interval = INTERVAL if len(page.all) <= MANY else INTERVAL_MANY
        self._rows: dict[Row, str] = {}
        self._ranks: set[int] = set()  # that ever had a line here
        self._id: str | None = None  # once it is shown
        self._due = inf

    def set(self, rank: int, stream: str, text: str, at: float) -> None:
        self._rows[rank, stream] = text
        self._ranks.add(rank)
        self._change(at)

    def drop(self, rank: int, stream: str, at: float) -> None:
        if self._rows.pop((rank, stream), None) is not None:
            self._change(at)

    def keeps(self, rank: int, stream: str) -> bool:
        """The line is on display and says something: it may stay as the bar's last state."""
        return self._id is not None and bool(self._rows.get((rank, stream), "").strip())

    def deadline(self) -> float:
        return self._due

    def _change(self, at: float) -> None:
        if self._id is None:
            self._due = min(self._due, at + DELAY) if self._rows else inf
        elif self._due == inf:
            self._due = at + self._interval

    def show(self, at: float) -> None:
        if at >= self._due:
            self.finish()

    def finish(self) -> None:
        """Show what has changed, now."""
        if self._due == inf:
            return
        self._due = inf
        if self._id is None:
            self._id = self._ids.fresh()
            self._page.show(self._page.all, "display_data", self._content())
        else:
            self._page.message("update_display_data", self._content())

    def end(self) -> None:
        """The cell is over: the last change is shown, if the slot is."""
        if self._id is None:
            self._due = inf
        self.finish()

    def cleared(self, at: float) -> None:
        """The client forgot the display; what is still being rewritten opens a new one."""
        self._id = None
        self._due = inf
        self._change(at)

    # ---------------------------------------------------------------- what it looks like

    def _content(self) -> bytes:
        return dumps(
            {
                "data": {"text/plain": "\n".join(self._lines())},
                "metadata": self._page.metadata(tuple(sorted(self._ranks)), live=True),
                "transient": {"display_id": self._id},
            }
        )

    def _lines(self) -> list[str]:
        rows = [(rank, self._rows[rank, stream]) for rank, stream in sorted(self._rows)]
        rows = [(rank, text) for rank, text in rows if text.strip()]
        if len(rows) <= ROWS:
            return [self._page.label((rank,)) + text for rank, text in rows]
        return self._summary(rows) or [
            *(self._page.label((rank,)) + text for rank, text in rows[:ROWS]),
            f"… and {len(rows) - ROWS} more",
        ]

    def _summary(self, rows: list[tuple[int, str]]) -> list[str]:
        """From how far to how far they are, and the slowest rank's own line."""
        found = [(_PERCENT.search(text), rank, text) for rank, text in rows]
        done = [(float(match[1]), rank, text) for match, rank, text in found if match]
        if len(done) < len(rows):
            return []
        slowest, fastest = min(done), max(done)
        ranks = tuple(sorted({rank for rank, _ in rows}))
        return [
            f"{self._page.own_label(ranks)}{slowest[0]:g}% to {fastest[0]:g}%, slowest:",
            self._page.own_label((slowest[1],)) + slowest[2],
        ]
