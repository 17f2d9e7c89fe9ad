"""``interrupt``: as Stop does, or some ranks only."""

from __future__ import annotations

from ..content import Content
from ..conversation import Script
from .base import Command, Desk
from .ranks import RANKS, ranks_of


def _interrupt(arguments: Content, desk: Desk) -> Script:
    yield from ()
    busy = desk.busy()
    if arguments.get("ranks") is None:
        desk.interrupt(None)
        return {"interrupted": list(busy)}
    named = ranks_of(arguments["ranks"], len(desk.world))
    hit = tuple(rank for rank in named if rank in busy)
    desk.interrupt(hit)
    return {"interrupted": list(hit)}


COMMANDS = (
    Command(
        "interrupt",
        "interrupt the running cell, on all ranks or on some",
        _interrupt,
        {
            "type": "object",
            "properties": {
                "interrupted": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "ranks that were at work; an idle one is left alone",
                }
            },
            "required": ["interrupted"],
        },
        {"ranks": RANKS},
        example={"ranks": [1]},
        acts=True,
    ),
)
