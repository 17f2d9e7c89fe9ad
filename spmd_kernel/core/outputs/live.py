"""The live slot: one display per cell that shows the lines being rewritten with ``\\r``.

A line per rank, updated a few times a second; the final line goes to the stream when its newline
comes.  Where nobody sees updates (a terminal, a log) the lines are said on the stream from time to
time instead or as well: see `OutputPolicy.restates_after`.
"""

from __future__ import annotations

import re
from math import inf

from ..content import dumps
from .ids import DisplayIds
from .item import Ranks
from .page import Page
from .policy import OutputPolicy

DELAY = 0.5  # seconds that a line is rewritten before the slot opens: short bars never show
INTERVAL = 0.1  # seconds between updates
INTERVAL_MANY = 0.25  # the same beyond MANY ranks
MANY = 16
ROWS = 8  # more lines than this are summed up
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")

Row = tuple[int, str]  # rank, stream


class LiveSlot:
    def __init__(self, page: Page, ids: DisplayIds, policy: OutputPolicy):
        self._page = page
        self._ids = ids
        self._policy = policy
        self._interval = INTERVAL if len(page.all) <= MANY else INTERVAL_MANY
        self._rows: dict[Row, str] = {}
        self._ranks: set[int] = set()  # that ever had a line here
        self._id: str | None = None  # once it is shown
        self._due = inf
        self._restate_due = inf

    def set(self, rank: int, stream: str, text: str, at: float) -> None:
        if self._page.hides(rank):
            return
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
        return min(self._due, self._restate_due)

    def _change(self, at: float) -> None:
        if not self._rows:
            self._restate_due = inf
        elif self._restate_due == inf:
            self._restate_due = at + self._policy.restates_after
        if not self._policy.has_live_slot:
            return
        if self._id is None:
            self._due = min(self._due, at + DELAY) if self._rows else inf
        elif self._due == inf:
            self._due = at + self._interval

    def show(self, at: float) -> None:
        if at >= self._due:
            self.finish()
        if at >= self._restate_due:
            self._restate_due = inf
            self._restate()

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
        self._restate_due = inf

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
        texts = self._texts()
        entries = self._entries(texts)
        label = self._page.label if len(texts) <= ROWS else self._page.own_label
        return [label(ranks) + text for ranks, text in entries]

    def _restate(self) -> None:
        """The lines as they are now, on their streams."""
        for stream in sorted({stream for _, stream in self._rows}):
            for ranks, text in self._entries(self._texts(stream)):
                self._page.text(stream, ranks, text, True)

    def _texts(self, stream: str | None = None) -> list[tuple[int, str]]:
        """The lines, of one stream or of both, by rank."""
        rows = ((rank, name, self._rows[rank, name]) for rank, name in sorted(self._rows))
        return [
            (rank, text) for rank, name, text in rows if text.strip() and stream in (None, name)
        ]

    def _entries(self, rows: list[tuple[int, str]]) -> list[tuple[Ranks, str]]:
        """What is shown of them, and whose it is."""
        if len(rows) <= ROWS:
            return [((rank,), text) for rank, text in rows]
        rest = tuple(sorted({rank for rank, _ in rows[ROWS:]}))
        return self._summary(rows) or [
            *(((rank,), text) for rank, text in rows[:ROWS]),
            (rest, f"… and {len(rows) - ROWS} more"),
        ]

    def _summary(self, rows: list[tuple[int, str]]) -> list[tuple[Ranks, str]]:
        """From how far to how far they are, and the slowest rank's own line."""
        found = [(_PERCENT.search(text), rank, text) for rank, text in rows]
        done = [(float(match[1]), rank, text) for match, rank, text in found if match]
        if len(done) < len(rows):
            return []
        slowest, fastest = min(done), max(done)
        ranks = tuple(sorted({rank for rank, _ in rows}))
        return [
            (ranks, f"{slowest[0]:g}% to {fastest[0]:g}%, slowest:"),
            ((slowest[1],), slowest[2]),
        ]
