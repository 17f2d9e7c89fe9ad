"""``timing``: how long the last cells took on each rank."""

from __future__ import annotations

from ..content import Content
from ..conversation import Script
from ..timings import CELLS
from .base import Command, Desk, Schema

LAST = 10


def _timing(arguments: Content, desk: Desk) -> Script:
    yield from ()
    last = arguments.integer("last", LAST)
    return {"cells": [timing.as_json() for timing in tuple(desk.context.timings)[-last:]]}


_NUMBER: Schema = {"type": "number"}
_RANKS: Schema = {"type": "array", "items": {"type": "integer"}}
_CELL: dict[str, Schema] = {
    "execution_count": {"type": ["integer", "null"]},
    "code": {"type": "string", "description": "its first line"},
    "ranks": {**_RANKS, "description": "those that ran it"},
    "world_size": {"type": "integer"},
    "seconds": {
        "type": "object",
        "additionalProperties": _NUMBER,
        "description": "by rank; empty in worlds of more than 64",
    },
    "min": _NUMBER,
    "median": _NUMBER,
    "max": _NUMBER,
    "slowest": {"type": "integer", "description": "the rank that took longest"},
    "failed": _RANKS,
    "interrupted": {"type": "boolean"},
}

COMMANDS = (
    Command(
        "timing",
        "how many seconds the last cells took on each rank",
        _timing,
        {
            "type": "object",
            "properties": {
                "cells": {
                    "type": "array",
                    "items": {"type": "object", "properties": _CELL, "required": list(_CELL)},
                    "description": "the oldest first",
                }
            },
            "required": ["cells"],
        },
        {
            "last": {
                "type": "integer",
                "minimum": 1,
                "default": LAST,
                "description": f"how many cells; {CELLS} are remembered",
            }
        },
        example={"last": 3},
    ),
)
