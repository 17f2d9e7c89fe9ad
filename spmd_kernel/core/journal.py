"""What clients were shown, cell by cell, for those that come back: a reloaded page has missed some.

Messages are kept as they were published, not read; the oldest go when all of them together are too
much.  The outputs of a cell are numbered from 0 in the order in which they were published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from .model import OUTPUT_TYPES, Buffer, Header

OVERHEAD = 300  # bytes that a message costs besides its content
CELLS = 100  # that are remembered, however little they said


class Logged(NamedTuple):
    """``content`` is ``None`` if it was too large to be kept."""

    msg_type: str
    content: bytes | None
    metadata: Mapping[str, Any]
    buffers: tuple[Buffer, ...]
    size: int


@dataclass(slots=True)
class CellLog:
    msg_id: str
    cell_id: str | None = None
    count: int | None = None  # its number, if it has one
    silent: bool = False
    size: int | None = None  # of the world, when ranks ran it
    running: bool = True
    first: int = 0  # number of the oldest message that is there
    messages: deque[Logged] = field(default_factory=deque)

    @property
    def next(self) -> int:
        """The number that its next message will have."""
        return self.first + len(self.messages)

    def since(self, start: int) -> Iterator[tuple[int, Logged]]:
        """Messages with their numbers, from ``start`` on, as far as they are there."""
        start = max(start, self.first)
        return enumerate(islice(self.messages, start - self.first, None), start)


class Journal:
    def __init__(self, limit: int):
        """``limit``: bytes of all messages together; 0: nothing is kept."""
        self._limit = limit
        self._size = 0
        self._cells: dict[str, CellLog] = {}  # the oldest first

    def begin(self, log: CellLog) -> None:
        """A cell begins."""
        if self._limit <= 0:
            return
        self._forget(log.msg_id)
        self._cells[log.msg_id] = log
        while len(self._cells) > CELLS:
            self._forget(next(iter(self._cells)))

    def ran(self, msg_id: str, size: int) -> None:
        """Ranks of a world of ``size`` begin with the cell; its magics may just have made it so large."""
        if log := self._cells.get(msg_id):
            log.size = size

    def end(self, msg_id: str) -> None:
        log = self._cells.get(msg_id)
        if log is None:
            return
        log.running = False
        if log.silent and not log.next:  # front ends ask much by such cells
            self._forget(msg_id)

    def add(
        self,
        msg_type: str,
        content: bytes,
        parent: Header,
        metadata: Mapping[str, Any],
        buffers: tuple[Buffer, ...],
    ) -> None:
        """Something was published."""
        if msg_type not in OUTPUT_TYPES:
            return
        log = self._cells.get(str(parent.get("msg_id")))
        if log is None:
            return
        size = len(content) + OVERHEAD
        if buffers:
            size += sum(memoryview(buffer).nbytes for buffer in buffers)
        if size > self._limit:
            log.messages.append(Logged(msg_type, None, {}, (), OVERHEAD))
            size = OVERHEAD
        else:
            log.messages.append(Logged(msg_type, content, metadata, buffers, size))
        self._size += size
        while self._size > self._limit:
            self._drop_oldest()

    def of(self, msg_id: str) -> CellLog | None:
        return self._cells.get(msg_id)

    def of_cell(self, cell_id: str) -> CellLog | None:
        """The last run of a notebook's cell."""
        return next((log for log in self._newest_first() if log.cell_id == cell_id), None)

    def latest(self) -> CellLog | None:
        """Of the cell that runs, or the last one that ran."""
        return next((log for log in self._newest_first() if not log.silent), None)

    @property
    def cells(self) -> tuple[CellLog, ...]:
        """The oldest first."""
        return tuple(self._cells.values())

    def _newest_first(self) -> Iterator[CellLog]:
        return reversed(self._cells.values())

    def _drop_oldest(self) -> None:
        """One message, or a cell that has none left."""
        log = next(iter(self._cells.values()))
        if log.messages:
            self._size -= log.messages.popleft().size
            log.first += 1
        else:
            del self._cells[log.msg_id]

    def _forget(self, msg_id: str) -> None:
        if log := self._cells.pop(msg_id, None):
            self._size -= sum(message.size for message in log.messages)
