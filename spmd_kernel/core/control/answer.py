"""``answer``: to what ranks ask, in the place of a client that is gone, or that shows no question."""

from __future__ import annotations

from ..content import Content
from ..conversation import Script
from .base import Command, Desk


def _answer(arguments: Content, desk: Desk) -> Script:
    yield from ()
    ranks = desk.answer(arguments.text("value"), arguments.text("msg_id", None))
    return {"ranks": list(ranks)}


COMMANDS = (
    Command(
        "answer",
        "answer what ranks ask with input()",
        _answer,
        {
            "type": "object",
            "properties": {
                "ranks": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "those that waited for it",
                }
            },
            "required": ["ranks"],
        },
        {
            "value": {"type": "string", "description": "what somebody would have typed"},
            "msg_id": {
                "type": "string",
                "description": "of the question that is meant, as status has it; default: whichever is asked",
            },
        },
        required=("value",),
        example={"value": "yes"},
        acts=True,
    ),
)
