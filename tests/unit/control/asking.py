"""Control requests of a client in a `tests.world.World`; what is answered is held against its schema."""

from __future__ import annotations

import json
from typing import Any

from spmd_kernel.core.control import COMMANDS
from spmd_kernel.core.control.schema import fault

from ...world import Sent, World


def checked(command: str, sent: Sent) -> Any:
    """The data of the one answer, which is as its schema says."""
    reply = sent.reply
    assert reply["status"] == "ok", reply
    assert reply["command"] == command
    assert fault(reply["data"], closed(COMMANDS[command].data), "data") == ""
    return reply["data"]


def closed(schema: Any) -> Any:
    """The same schema, where nothing is allowed that it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in schema else inner


def now(world: World, command: str, **arguments: Any) -> Any:
    """What is answered at once, with no time for anybody else but a look at the machine."""
    sent = world.control(command, **arguments)
    while world.surveys and not sent.replies:
        world.survey()
    return checked(command, sent)


def refused(sent: Sent) -> tuple[str, str, str]:
    """Name, text and hint of an error that is shaped as errors are."""
    reply = sent.reply
    assert set(reply) == {"status", "ename", "evalue", "traceback", "hint"}
    assert reply["status"] == "error"
    assert reply["traceback"][0] == f"{reply['ename']}: {reply['evalue']}"
    assert sent.states == ["busy", "idle"]
    return reply["ename"], reply["evalue"], reply["hint"]


def pushed(world: World, comm_id: str = "s") -> list[Any]:
    """The data of the comm messages that were published, oldest first."""
    effects = [e for e in world.effects if getattr(e, "msg_type", "") == "comm_msg"]
    contents = [json.loads(effect.content) for effect in effects]  # type: ignore[union-attr]
    return [content["data"] for content in contents if content["comm_id"] == comm_id]
