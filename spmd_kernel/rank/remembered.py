"""IPython keeps what cells said for ``%notebook``: here not without bound.

A cell that prints 1 GB would else leave two in its process.  Of such a cell the beginning is kept.
Executed by path in a rank; must not need our package.
"""

from __future__ import annotations

from typing import Any

CELL = 4_000_000  # characters of one cell's outputs
ALL = 32_000_000  # of all cells together: then the oldest are forgotten
PIECE = 60  # what one piece of text costs besides its characters


class Outputs(list):  # type: ignore[type-arg]
    """What one cell said: ``HistoryOutput``s.  The pieces of the last text are counted by `trim`."""

    size = 0
    counted = 0  # pieces of the last text

    def __init__(self, book: Book):
        super().__init__()
        self._book = book
        self._pieces: Any = []

    def append(self, output: Any) -> None:
        self.trim()
        pieces = output.bundle.get("stream")
        is_text = output.output_type in ("out_stream", "err_stream") and type(pieces) is list
        size = PIECE + (0 if is_text else sum([_size(value) for value in output.bundle.values()]))
        if self.size + size > CELL:
            if self:
                return
            # IPython looks at the last one, so there must be one.
            output.bundle = {"stream": pieces} if is_text else {}
            size = PIECE
        self._pieces = pieces if is_text else []
        self.counted = 0
        self._grow(size)
        super().append(output)

    def trim(self) -> None:
        """Of what was printed since the last time nothing is kept that is too much."""
        pieces = self._pieces
        new = pieces[self.counted :]
        size = sum(map(len, new)) + PIECE * len(new)
        if self.size + size > CELL:
            del pieces[self.counted :]
        else:
            self.counted += len(new)
            self._grow(size)

    def _grow(self, size: int) -> None:
        self.size += size
        self._book.grow(size)


class Book(dict):  # type: ignore[type-arg]
    """In place of ``HistoryManager.outputs``: by execution count."""

    size = 0
    newest: Any = None

    def __missing__(self, count: int) -> Outputs:
        found = self[count] = self.newest = Outputs(self)
        return found

    def setdefault(self, count: Any, default: Any = None) -> Any:
        return self[count]

    def trim(self) -> None:
        """Often enough that what comes in between is not much.  In any thread."""
        if self.newest is not None:
            self.newest.trim()

    def grow(self, size: int) -> None:
        self.size += size
        while self.size > ALL and len(self) > 1:
            self.size -= self.pop(min(self)).size

    def clear(self) -> None:
        super().clear()
        self.size = 0
        self.newest = None


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list)) else PIECE


def install(shell: Any) -> Any:
    """For IPython, if it is a version that keeps outputs, and nothing was kept yet: the new book."""
    history: Any = getattr(shell, "history_manager", None)
    kept = getattr(history, "outputs", None)
    if not isinstance(kept, dict) or kept or isinstance(kept, Book):
        return None
    history.outputs = Book()
    return history.outputs
