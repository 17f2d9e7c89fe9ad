"""Numbers, ranks and lists as people read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from ..model import Rank

MB = 10**6


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def spec_of(ranks: Iterable[Rank]) -> str:
    """``0,2-3`` for 0, 2, 3: what `spec.parse` reads."""
    return ",".join(_runs(ranks))


def name_ranks(ranks: Iterable[Rank]) -> str:
    """``rank 2``, ``ranks 0, 2-3``."""
    distinct = set(ranks)
    return ("rank " if len(distinct) == 1 else "ranks ") + ", ".join(_runs(distinct))


def listed(items: Sequence[str], most: int = 6) -> str:
    """Joined by commas, the end of a long list counted."""
    if len(items) <= most:
        return ", ".join(items)
    return f"{', '.join(items[:most])} and {len(items) - most} more"


def duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds:.0f} s"


def megabytes(size: int) -> str:
    return f"{size // MB} MB"


def shortened(text: str, most: int) -> str:
    """On one line of at most ``most`` characters, without control characters."""
    line = "".join(char if char.isprintable() else " " for char in text[: 2 * most])
    return line if len(line) <= most else line[: most - 1] + "…"


def aligned(rows: Sequence[Sequence[str]], left: Collection[str] = ()) -> str:
    """A line per row, columns as wide as their widest; the first row is the head.

    Columns whose head is in ``left`` are texts; the others are numbers, aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(_line(row, rows[0], widths, left) for row in rows)


def _line(
    row: Sequence[str], head: Sequence[str], widths: Sequence[int], left: Collection[str]
) -> str:
    cells = (
        cell.ljust(width) if name in left else cell.rjust(width)
        for name, cell, width in zip(head, row, widths, strict=True)
    )
    return "  ".join(cells).rstrip() + "\n"


def _runs(ranks: Iterable[Rank]) -> list[str]:
    ordered = sorted(set(ranks))
    if not ordered:
        return []
    gaps = [(a, b) for a, b in pairwise(ordered) if b != a + 1]
    firsts = [ordered[0], *(b for _, b in gaps)]
    lasts = [*(a for a, _ in gaps), ordered[-1]]
    return [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True)]
