"""IPython keeps what cells said for ``%notebook``: here not without bound.

A cell that prints 1 GB would else leave two in its process.  Of such a cell the beginning is kept.
Executed by path in a rank; must not need our package.
"""

from __future__ import annotations

from typing import Any

CELL = 4_000_000  # characters of one cell's outputs
ALL = 32_000_000  # of all cells together: then the oldest are forgotten
PIECE = 60  # what one piece of text costs besides its characters


class Texts(list):  # type: ignore[type-arg]
    """The pieces of one stream output."""

    def __init__(self, cell: Outputs, pieces: Any):
        super().__init__()
        self._cell = cell
        for piece in pieces:
            self.append(piece)

    def append(self, text: str) -> None:
        if self._cell.takes(len(text) + PIECE):
            super().append(text)


class Outputs(list):  # type: ignore[type-arg]
    """What one cell said: ``HistoryOutput``s."""

    size = 0

    def __init__(self, book: Book):
        super().__init__()
        self._book = book

    def takes(self, size: int) -> bool:
        if self.size + size > CELL:
            return False
        self.size += size
        self._book.grew(size)
        return True

    def append(self, output: Any) -> None:
        bundle = output.bundle
        pieces = bundle.get("stream")
        if not self.takes(PIECE + sum([_size(value) for value in bundle.values()])):
            # IPython looks at the last one, so there must be one.
            if self:
                return
            bundle = output.bundle = {}
        if type(pieces) is list and output.output_type in ("out_stream", "err_stream"):
            bundle["stream"] = Texts(self, pieces)
        super().append(output)


class Book(dict):  # type: ignore[type-arg]
    """In place of ``HistoryManager.outputs``: by execution count."""

    size = 0

    def __missing__(self, count: int) -> Outputs:
        found = self[count] = Outputs(self)
        return found

    def setdefault(self, count: Any, default: Any = None) -> Any:
        return self[count]

    def grew(self, size: int) -> None:
        self.size += size
        while self.size > ALL and len(self) > 1:
            oldest = min(self)
            self.size -= getattr(self.pop(oldest), "size", 0)

    def clear(self) -> None:
        super().clear()
        self.size = 0


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list)) else PIECE


def install(shell: Any) -> None:
    """For IPython, if it is a version that keeps outputs, and nothing was kept yet."""
    history: Any = getattr(shell, "history_manager", None)
    kept = getattr(history, "outputs", None)
    if isinstance(kept, dict) and not kept and not isinstance(kept, Book):
        history.outputs = Book()
