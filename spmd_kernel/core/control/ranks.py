"""The argument that names ranks: ``"0,2-3"`` as in magics, or ``[0, 2, 3]``."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from ..magics import spec
from ..model import Rank
from .base import Schema

RANKS: Schema = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}],
    "description": "[0, 2, 3], or as text: 0,2-3; -1; all",
}


def ranks_of(value: Any, size: int) -> tuple[Rank, ...]:
    """Ascending. Raises `UsageError` if there is no such rank."""
    if isinstance(value, str):
        return spec.parse(value, size)
    if not value:
        raise UsageError("no ranks are named", "leave ranks out to mean all of them")
    return spec.parse(",".join(map(str, value)), size)
