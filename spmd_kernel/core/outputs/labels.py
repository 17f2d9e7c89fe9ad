"""The plain-text label that says which ranks a line is from: ``0-2,5 │ ready``.

No label means every rank that ran the cell.  There is no colour in a label: text without escapes is
what front ends draw fast, and what Markdown export and logs show as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

BAR = "│"
_LABEL = re.compile(r" *([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*) │ ")
_BEGINNING = re.compile(r" *[0-9][0-9,-]* │ ?")  # could grow into a label, or is one
_GOES_ON = re.compile(r"[0-9,-]* ?│ ")  # could complete what was no label so far
_MOST = 65536  # ranks one label may name: more is some program's own text


def rank_ranges(ranks: Iterable[int]) -> str:
    """``0-2,5`` of ranks 0, 1, 2 and 5, in any order."""
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in _runs(sorted(ranks))
    )


def label(ranks: Iterable[int], world_size: int) -> str:
    """What stands before each line of these ranks; a single rank is as wide as the last rank."""
    return rank_ranges(ranks).rjust(len(str(world_size - 1))) + f" {BAR} "


def parse_label(line: str) -> tuple[tuple[int, ...] | None, str]:
    """The ranks of a line's first label, and the text after it; ``(None, line)`` without one."""
    found = _LABEL.match(line)
    ranks = found and _expand(found[1])
    return (ranks, line[found.end() :]) if found and ranks else (None, line)


def looks_labelled(line: str) -> bool:
    """A program printed something that reads like one of our labels."""
    return _LABEL.match(line) is not None


def may_become_labelled(unfinished: str) -> bool:
    """An unfinished line of which more may follow could yet read like a label."""
    return _BEGINNING.match(unfinished) is not None


def may_complete_label(continuation: str) -> bool:
    """Text that goes on in an unfinished line could make that line read like a label."""
    return _GOES_ON.match(continuation) is not None


def label_lines(prefix: str, text: str) -> str:
    """``text``, which has no final newline, with the label before every line of it."""
    return prefix + text.replace("\n", "\n" + prefix)


def _runs(ranks: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for index, rank in enumerate(ranks):
        if index + 1 == len(ranks) or ranks[index + 1] != rank + 1:
            yield ranks[start], rank
            start = index + 1


def _expand(text: str) -> tuple[int, ...] | None:
    ranks: list[int] = []
    for part in text.split(","):
        if len(part) > 15:
            return None
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high - low >= _MOST or (ranks and low <= ranks[-1]):
            return None
        ranks.extend(range(low, high + 1))
    return tuple(ranks)
