"""Questions that a client sends together with a cell: as those of the bare kernel, they come after it.

Whoever sends several requests in one go, without having looked whether the cell has begun, relies on
their order: ``x = 1``, then the help for ``x``.  Such questions wait for the cell, a second at most.
All others are answered beside it.  A client writes the time into each request, which here is compared
with no other clock: within 0.9 ms no client hears that a cell has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeGuard

from .model import Effect, FromFront, Message, ToFront
from .stage import Stage

GAP = timedelta(milliseconds=0.9)  # between two requests of one go, as they are sent
TOGETHER = 0.0005  # seconds between two that have both waited for us, as they are read
NONE = timedelta(0)
SECONDS = 1.0  # the longest wait for a cell
TIMER = "burst"

Idents = tuple[bytes, ...]


@dataclass(slots=True)
class _Burst:
    cell: str  # its last one
    last: datetime  # when its last request was sent
    at: float  # when that came


class Bursts:
    def __init__(self, stage: Stage, serve: Callable[[FromFront], None]):
        """``serve`` answers a question now."""
        self._stage = stage
        self._serve = serve
        self._bursts: dict[Idents, _Burst] = {}  # of each client the last, while that cell is open
        self._held: dict[str, list[FromFront]] = {}  # by the cell that they wait for

    def cell(self, event: FromFront) -> None:
        """A client wants a cell of the main shell to be run."""
        if (date := sent_at(event.message)) is not None:
            self._bursts[event.idents] = _Burst(event.message.msg_id, date, event.at)

    def holds(self, event: FromFront) -> bool:
        """Whether this question waits for the cell that was sent with it."""
        burst, date = self._bursts.get(event.idents), sent_at(event.message)
        if burst is None or date is None or not date - burst.last >= NONE:
            return False
        if date - burst.last > GAP and event.at - burst.at > TOGETHER:
            return False
        burst.last, burst.at = date, event.at
        if burst.cell not in self._held:
            self._stage.timer((TIMER, burst.cell), SECONDS)
        self._held.setdefault(burst.cell, []).append(event)
        return True

    def after(self, effects: Iterable[Effect]) -> None:
        """What is about to be sent: replies to cells, and so answers to what has waited for them."""
        if not self._bursts and not self._held:
            return
        replied = [str(e.parent.get("msg_id")) for e in effects if _is_reply(e)]
        if replied:
            self._bursts = {k: b for k, b in self._bursts.items() if b.cell not in replied}
        for cell in replied:
            self._release(cell)

    def due(self, cell: str) -> None:
        """They have waited long enough, and so will whatever else is sent with it."""
        self._bursts = {k: b for k, b in self._bursts.items() if b.cell != cell}
        self._release(cell)

    def _release(self, cell: str) -> None:
        if (held := self._held.pop(cell, None)) is not None:
            self._stage.cancel((TIMER, cell))
            for event in held:
                self._serve(event)


def _is_reply(effect: Effect) -> TypeGuard[ToFront]:
    return isinstance(effect, ToFront) and effect.msg_type == "execute_reply"


def sent_at(message: Message) -> datetime | None:
    """By the client's own clock; None: it does not say so in a way that we know."""
    date = message.header.get("date")
    try:
        sent = datetime.fromisoformat(date) if isinstance(date, str) else None
    except ValueError:
        return None
    return sent if sent is not None and sent.tzinfo is not None else None
