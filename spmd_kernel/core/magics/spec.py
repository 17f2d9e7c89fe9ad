"""Which ranks: ``0``, ``0,2-3``, ``-1`` (from the end), ``-2--1``, ``all``."""

from __future__ import annotations

import re

from ..errors import UsageError
from ..model import Rank

_ITEM = re.compile(r"(-?\d{1,9})(?:-(-?\d{1,9}))?", re.ASCII)


def parse(text: str, size: int) -> tuple[Rank, ...]:
    """The ranks that ``text`` names in a world of ``size``, ascending. Raises `UsageError`."""
    if not text.strip():
        raise UsageError("no ranks are named", _hint(size))
    named: set[Rank] = set()
    for item in text.split(","):
        ranks = _item(item.strip(), size)
        if twice := named.intersection(ranks):
            raise UsageError(f"rank {min(twice)} is named twice in {text.strip()!r}", _hint(size))
        named.update(ranks)
    return tuple(sorted(named))


def _item(item: str, size: int) -> range:
    if item == "all":
        return range(size)
    match = _ITEM.fullmatch(item)
    if match is None:
        raise UsageError(_malformed(item), _hint(size))
    first = _resolve(match[1], size)
    last = first if match[2] is None else _resolve(match[2], size)
    if first > last:
        raise UsageError(f"{item} runs backwards, from rank {first} to {last}", _hint(size))
    return range(first, last + 1)


def _resolve(text: str, size: int) -> Rank:
    number = int(text)
    if not -size <= number < size:
        raise UsageError(f"there is no rank {number}: {_world(size)}", _examples(size))
    return number % size


def _malformed(item: str) -> str:
    if not item:
        return "a rank is missing beside a comma"
    return f"{item!r} is neither a rank nor a range of ranks"


def _world(size: int) -> str:
    return "there is only rank 0" if size == 1 else f"ranks are 0-{size - 1}"


def _examples(size: int) -> str:
    if size == 1:
        return "`%processes N` starts more"
    return f"write `0`, `0,{size - 1}`, `0-{size - 1}`, `-1` or `all`"


def _hint(size: int) -> str:
    return f"{_world(size)}: {_examples(size)}"
