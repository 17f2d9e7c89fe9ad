"""``outputs``: what a client has missed of a cell, from the log that the kernel keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..content import Content, dumps, loads
from ..conversation import Script
from ..errors import BadMessage, UsageError
from ..journal import CellLog, Logged
from ..model import Buffer
from .base import Command, Desk, Raw, Schema

MOST = 1_000_000  # bytes of messages in one answer, unless asked otherwise


def _outputs(arguments: Content, desk: Desk) -> Script:
    yield from ()
    msg_id, cell_id = arguments.text("msg_id", None), arguments.text("cell_id", None)
    log = _log(msg_id, cell_id, desk)
    start, most = arguments.integer("from"), arguments.integer("most", MOST)
    chosen = list(_within(log, start, most)) if log is not None else []
    state = _state(log, msg_id)
    after = chosen[-1][0] + 1 if chosen else max(start, state["next"])
    known: dict[str, Any] = {
        **state,
        "next": min(after, state["next"]),
        "more": bool(chosen) and after < state["next"],
        "dropped": _dropped(log, start, chosen),
    }
    if msg_id is None and cell_id is None:
        known["cells"] = [_state(known_log, None) for known_log in desk.journal.cells]
        known["cells"] += [_state(None, c.msg_id) | {"cell_id": c.cell_id} for c in desk.queue]
    kept = [(number, logged) for number, logged in chosen if logged.content is not None]
    listed = b",".join(_message(number, logged) for number, logged in kept)
    buffers: tuple[Buffer, ...] = sum((logged.buffers for _, logged in kept), ())
    return Raw(b"".join((dumps(known)[:-1], b',"messages":[', listed, b"]}")), buffers)


def _log(msg_id: str | None, cell_id: str | None, desk: Desk) -> CellLog | None:
    """``None``: the cell has not begun, or there was none. Raises `UsageError`."""
    if msg_id is not None:
        log = desk.journal.of(msg_id)
        if log is None and not desk.waiting(msg_id):
            raise UsageError(f"outputs: nothing is known of the cell {msg_id!r:.80}", _ASK)
        return log
    if cell_id is not None:
        log = desk.journal.of_cell(cell_id)
        if log is None:
            raise UsageError(f"outputs: nothing is known of the cell {cell_id!r:.80}", _ASK)
        return log
    return desk.journal.latest()


_ASK = "without msg_id and cell_id the answer lists the cells that are known"


def _within(log: CellLog, start: int, most: int) -> Iterator[tuple[int, Logged]]:
    """The oldest of them that are ``most`` bytes together, but one at least."""
    size = 0
    for number, logged in log.since(start):
        size += logged.size
        if size > most and size > logged.size:
            return
        yield number, logged


def _dropped(log: CellLog | None, start: int, chosen: list[tuple[int, Logged]]) -> int:
    if log is None:
        return 0
    lost = sum(logged.content is None for _, logged in chosen)
    return lost + max(0, log.first - start)


def _state(log: CellLog | None, msg_id: str | None) -> dict[str, Any]:
    if log is None:
        state = "unknown" if msg_id is None else "queued"
        return {
            "msg_id": msg_id,
            "cell_id": None,
            "execution_count": None,
            "state": state,
            "size": None,
            "next": 0,
        }
    return {
        "msg_id": log.msg_id,
        "cell_id": log.cell_id,
        "execution_count": log.count,
        "state": "running" if log.running else "done",
        "size": log.size,
        "next": log.next,
    }


def _message(number: int, logged: Logged) -> bytes:
    head = {"seq": number, "msg_type": logged.msg_type, "buffers": len(logged.buffers)}
    head["metadata"] = dict(logged.metadata)
    return b"".join((dumps(head)[:-1], b',"content":', _json(logged.content), b"}"))


def _json(content: bytes | None) -> bytes:
    """As it was published; what is no JSON, which a rank may well send, would spoil the answer."""
    try:
        loads(content or b"")
    except BadMessage:
        return b"{}"
    return content or b"{}"


ARGUMENTS: dict[str, Schema] = {
    "msg_id": {
        "type": "string",
        "description": "of the cell's execute_request; default: the cell that runs, or the last",
    },
    "cell_id": {
        "type": "string",
        "description": "instead: the notebook's name of the cell; its last run is meant",
    },
    "from": {
        "type": "integer",
        "minimum": 0,
        "default": 0,
        "description": "the number of the first message that is wanted",
    },
    "most": {
        "type": "integer",
        "minimum": 0,
        "default": MOST,
        "description": "bytes of messages in one answer, which has one message at least",
    },
}
_CELL: dict[str, Schema] = {
    "msg_id": {"type": ["string", "null"]},
    "cell_id": {"type": ["string", "null"]},
    "execution_count": {"type": ["integer", "null"]},
    "state": {
        "enum": ["queued", "running", "done", "unknown"],
        "description": "unknown: no cell has run yet",
    },
    "size": {
        "type": ["integer", "null"],
        "description": "the world size when it ran; with one rank nothing is labelled; null: no rank ran it",
    },
    "next": {
        "type": "integer",
        "description": "in the answer: what to ask from next time; in cells: how many there were",
    },
}
_MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "seq": {"type": "integer", "description": "its number among the cell's outputs, from 0"},
        "msg_type": {"type": "string"},
        "metadata": {"type": "object"},
        "content": {},
        "buffers": {
            "type": "integer",
            "description": "how many of the reply's buffers are its own; they come in order",
        },
    },
    "required": ["seq", "msg_type", "metadata", "content", "buffers"],
}
DATA: Schema = {
    "type": "object",
    "properties": {
        **_CELL,
        "more": {"type": "boolean", "description": "there are more already: ask from next"},
        "dropped": {
            "type": "integer",
            "description": "messages between from and next that are not kept: too old or too large",
        },
        "cells": {
            "type": "array",
            "items": {"type": "object", "properties": _CELL, "required": list(_CELL)},
            "description": "all that is known, the oldest first, those that wait last; where no cell was named",
        },
        "messages": {"type": "array", "items": _MESSAGE},
    },
    "required": [*_CELL, "more", "dropped", "messages"],
}

COMMANDS = (
    Command(
        "outputs",
        "outputs of a cell, as published, for a client that has missed some",
        _outputs,
        DATA,
        ARGUMENTS,
        example={"msg_id": "0f6c…", "from": 12},
    ),
)
