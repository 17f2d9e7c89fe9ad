"""How outputs are shown: what the user chose (``%processes``, SPMD_OUTPUT) and what the client can."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from ..model import OutputMode
from .item import Ranks

MODES: tuple[OutputMode, ...] = ("live", "grouped")
WATCH = 5.0
Client = Literal["notebook", "headless", "terminal"]
RESTATES: dict[Client, float] = {"notebook": inf, "headless": 30.0, "terminal": 5.0}


@dataclass(frozen=True, slots=True)
class OutputPolicy:
    """``mode``: as it comes, or rank by rank at the cell's end.  ``show``: the ranks whose outputs are
    published (errors always are); ``None`` for all.  ``log_dir``: where the text of each rank is
    written too; empty for nowhere.  ``marks``: the ranks mark the lines of one write call.
    ``watch``: seconds after which a cell whose ranks wait in vain says so; 0 for never.
    """

    mode: OutputMode = "live"
    show: Ranks | None = None
    log_dir: str = ""
    client: Client = "notebook"
    marks: bool = True
    watch: float = WATCH

    @property
    def has_live_slot(self) -> bool:
        """The client shows updates of a display."""
        return self.client != "terminal"

    @property
    def restates_after(self) -> float:
        """Seconds after which a line that is being rewritten is also said on the stream.

        A terminal shows no updates at all, and those who run notebooks headlessly read logs.
        """
        return RESTATES[self.client]
