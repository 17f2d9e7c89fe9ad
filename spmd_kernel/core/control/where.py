"""``where``: the Python stack of every rank, while a cell runs too."""

from __future__ import annotations

from ..content import Content
from ..conversation import Script
from .base import Command, Desk, Schema


def _where(arguments: Content, desk: Desk) -> Script:
    found = yield from desk.where()
    return {"text": found.text, **found.data}


_FRAME: dict[str, Schema] = {
    "place": {"type": "string", "description": "for people: cell line 4"},
    "file": {"type": "string"},
    "line": {"type": "integer"},
    "function": {"type": "string"},
}
_RANK: dict[str, Schema] = {
    "rank": {"type": "integer"},
    "state": {"enum": ["idle", "busy", "no answer", "starting", "stopping", "dead"]},
    "frames": {
        "type": "array",
        "items": {"type": "object", "properties": _FRAME, "required": list(_FRAME)},
        "description": "of a busy rank, outermost first",
    },
    "waits_in": {
        "type": ["string", "null"],
        "description": "the collective that a busy rank waits in",
    },
    "seconds": {"type": ["number", "null"], "description": "how long it has been busy"},
}

COMMANDS = (
    Command(
        "where",
        "where every rank is right now: its Python stack",
        _where,
        {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "for people, equal stacks folded"},
                "ranks": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": _RANK,
                        "required": ["rank", "state"],
                    },
                },
            },
            "required": ["text", "ranks"],
        },
    ),
)
