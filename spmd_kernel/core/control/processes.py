"""``processes``: as ``%processes``, for a field in a toolbar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..content import Content
from ..conversation import Script
from .base import Alone, Command, Desk, Schema
from .speech import spoken

FLAGS = ("keep", "fresh")
VALUES = ("kernel", "on_error", "output", "show", "log_dir", "watch")


def _processes(arguments: Content, desk: Desk) -> Script:
    script = spoken("%processes", _words(arguments), desk)
    text = yield Alone(script, arguments.flag("wait"))
    return {"text": text, "size": len(desk.world)}


def _words(arguments: Content) -> Iterator[str]:
    if arguments.get("size") is not None:
        yield str(arguments["size"])
    for name in FLAGS:
        if arguments.flag(name):
            yield f"--{name}"
    for name in VALUES:
        if arguments.get(name) is not None:
            yield f"--{name.replace('_', '-')}={arguments[name]}"
    if modules := arguments.items_of("preload"):
        yield f"--preload={','.join(modules)}"
    for name, value in arguments.mapping("env").items():
        yield f"--env={name}={value}"


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


WAIT: Schema = {
    "type": "boolean",
    "default": False,
    "description": "while a cell runs: wait for it and those behind it. Otherwise that is an error",
}
ARGUMENTS: dict[str, Schema] = {
    "size": {
        "anyOf": [{"type": "integer"}, {"enum": ["auto"]}],
        "description": "how many ranks; auto: one per visible GPU",
    },
    "keep": {
        "type": "boolean",
        "description": "grow or shrink: the ranks that stay keep their memory",
    },
    "fresh": {"type": "boolean", "description": "restart the ranks even if so many are alive"},
    "kernel": _text("the kernelspec that the ranks run"),
    "env": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "variables for the environment of the ranks to be started",
    },
    "preload": {
        "type": "array",
        "items": {"type": "string"},
        "description": "modules to import once, before the ranks are forked",
    },
    "on_error": _text("what the others do when a rank fails: wait or stop"),
    "output": _text("live or grouped"),
    "show": _text("publish only what these ranks say: 0; 0,2-3; -1; all"),
    "log_dir": _text("append the text of each rank to files there; empty: no more"),
    "watch": {
        "anyOf": [{"type": "number"}, {"enum": ["off"]}],
        "description": "after how many seconds a cell that hangs says so",
    },
    "wait": WAIT,
}
SAID: Schema = {
    "type": "object",
    "properties": {
        "text": _text("what the magic would have said"),
        "size": {"type": "integer", "description": "the world size now"},
    },
    "required": ["text", "size"],
}

COMMANDS = (
    Command(
        "processes",
        "start ranks, as %processes does; answers when they are ready",
        _processes,
        SAID,
        ARGUMENTS,
        example={"size": 4},
        acts=True,
        needs_ranks=True,
    ),
)
