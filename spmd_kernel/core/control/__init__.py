"""Control requests.  One file each: a module of this package with ``COMMANDS`` in it is found by itself."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import Any

from ..content import Content, dumps, read
from ..conversation import Script
from ..errors import BadMessage, SpmdError, UsageError
from ..found import offered
from ..model import Message
from .base import Command, Desk, Raw
from .schema import fault, shown

__all__ = ["COMMANDS", "REQUEST", "failure", "needs_ranks", "serve"]

REQUEST = "spmd_request"


COMMANDS: dict[str, Command] = {
    command.name: command for command in offered(sys.modules[__name__], "COMMANDS")
}


def serve(message: Message, desk: Desk) -> Script:
    """Answers a request; returns the reply's content and buffers. Raises `SpmdError`."""
    command, arguments = _read(message)
    data = yield from command.play(arguments, desk)
    raw = data if isinstance(data, Raw) else Raw(dumps(data))
    head = dumps({"status": "ok", "command": command.name})
    return b"".join((head[:-1], b',"data":', raw.data, b"}")), raw.buffers


def failure(error: SpmdError) -> bytes:
    """The reply's content when the request failed."""
    return dumps(
        {
            "status": "error",
            "ename": error.ename,
            "evalue": str(error),
            "traceback": error.lines(),
            "hint": error.hint,
        }
    )


def needs_ranks(message: Message) -> bool:
    """It is for a command that waits for the first ranks."""
    try:
        return _read(message)[0].needs_ranks
    except SpmdError:
        return False


def _read(message: Message) -> tuple[Command, Content]:
    content = read(message.content)
    command = _command(content.get("command"))
    arguments = content.get("arguments")
    arguments = {} if arguments is None else arguments
    try:
        wrong = fault(arguments, command.schema, "arguments")
    except RecursionError:
        raise BadMessage("arguments are nested too deeply") from None
    if wrong:
        raise UsageError(f"{command.name}: {wrong}", _usage(command))
    return command, Content(arguments)


def _command(name: Any) -> Command:
    command = COMMANDS.get(name) if isinstance(name, str) else None
    if command is None:
        near = get_close_matches(str(name)[:40], COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"commands are {', '.join(COMMANDS)}"
        raise UsageError(f"there is no command {shown(name)}", hint)
    return command


def _usage(command: Command) -> str:
    example = dumps({"command": command.name, "arguments": command.example}).decode()
    return f"for example {example}"
