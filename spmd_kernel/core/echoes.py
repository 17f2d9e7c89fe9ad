"""What a headless client still has to send before the reply of its cell may come.

nbclient sends each state of an Output widget back to the kernel, on the very socket on which it
waits for the reply.  A send on a ZeroMQ socket can eat the edge-triggered wake-up of a message that
has just come, and nothing that comes later wakes it: the cell would last until its timeout.  So the
reply waits for the echoes of what the widgets took.  Source: `zmq_getsockopt`, ZMQ_FD.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from .cell import Cell
from .stage import Stage

TIMER = "echoes"
SECONDS = 1.0  # a headless client that does not know Output widgets echoes nothing


class Echoes:
    def __init__(self, stage: Stage):
        self._stage = stage
        self._owed: Counter[str] = Counter()  # by comm id
        self._held: Callable[[], None] | None = None

    def expect(self, comm_id: str) -> None:
        """An Output widget took something, as every client sees."""
        self._owed[comm_id] += 1

    def came(self, comm_id: str) -> None:
        """A client sent the state of a widget."""
        if comm_id in self._owed:
            self._owed -= Counter((comm_id,))
        self._next()

    def closed(self, comm_id: str) -> None:
        del self._owed[comm_id]
        self._next()

    def reply(self, cell: Cell, send: Callable[[], None], *, more: bool) -> None:
        """``send`` the reply of a cell, and its idle, when the client has nothing more to say.

        ``more``: cells wait, so their client does not go from reply to reply.
        """
        self.send()
        if self._owed and cell.headless and not more:
            self._held = send
            self._stage.timer(TIMER, SECONDS)
        else:
            self._owed.clear()
            send()

    def send(self) -> None:
        """Whatever is still owed: nobody waits any longer."""
        if (held := self._held) is not None:
            self._held = None
            self._owed.clear()
            self._stage.cancel(TIMER)
            held()

    def _next(self) -> None:
        if not self._owed:
            self.send()
