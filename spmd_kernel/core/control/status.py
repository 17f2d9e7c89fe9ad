"""``status``: the ranks, the cell that runs, how outputs are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import __version__
from ..cell import Cell
from ..content import Content
from ..conversation import Script
from ..magics.base import Look, RankView
from ..model import Facts, Rank
from .base import Command, Desk, Schema

RANK_STATES = ["idle", "busy", "starting", "stopping", "dead"]
CLOCK = "seconds of the kernel's monotonic clock"


def _status(arguments: Content, desk: Desk) -> Script:
    status = snapshot(desk)
    if arguments.flag("resources"):
        facts: Facts = yield Look(usage=True)
        status = with_resources(status, facts)
    return {"now": desk.at, **status}


def snapshot(desk: Desk) -> dict[str, Any]:
    """Without what changes by itself: two are equal if nothing has happened between them."""
    return {
        "state": desk.state,
        "size": len(desk.world),
        "kernel": desk.context.kernel,
        "language": desk.settings.language,
        "execution_count": desk.count,
        "running": _running(desk.cell),
        "queued": desk.queued,
        "question": desk.question,
        "ranks": [_rank(view, desk) for view in desk.world],
        "settings": _settings(desk),
        "versions": _versions(desk.kernel_info),
    }


def with_resources(status: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """The same, and what each rank holds of the machine."""
    ranks = [entry | _held(entry["rank"], facts) for entry in status["ranks"]]
    return {**status, "ranks": ranks}


def _held(rank: Rank, facts: Facts) -> dict[str, Any]:
    gpu = facts.gpu_memory or {}
    return {
        "cpu": facts.cpu.get(rank),
        "rss": facts.rss.get(rank),
        "gpu_memory": gpu.get(rank),
    }


def _rank(view: RankView, desk: Desk) -> dict[str, Any]:
    busy_since = desk.busy_since(view.rank)
    return {
        "rank": view.rank,
        "state": view.state,
        "pid": view.pid,
        "generation": view.generation,
        "busy_since": busy_since if view.state == "busy" else None,
        "last_seconds": view.seconds,
        "cause": view.cause if view.state == "dead" else None,
        "stopped": desk.stopped(view.rank),
    }


def _running(cell: Cell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    return {
        "msg_id": cell.msg_id,
        "cell_id": cell.cell_id,
        "execution_count": cell.count if cell.counts else None,
        "started": cell.began,
        "ranks": list(cell.fanout.running) if cell.fanout is not None else [],
    }


def _settings(desk: Desk) -> dict[str, Any]:
    policy, settings = desk.context.policy, desk.settings
    return {
        "output": policy.mode,
        "show": None if policy.show is None else list(policy.show),
        "log_dir": policy.log_dir or None,
        "on_error": desk.context.on_error,
        "pinned": settings.pinned,
        "max_processes": settings.max_processes,
        "kept_outputs": settings.kept_outputs,
    }


def _versions(info: Mapping[str, Any]) -> dict[str, Any]:
    names = ("implementation", "implementation_version", "protocol_version")
    return {"spmd_kernel": __version__, **{name: _text(info.get(name)) for name in names}}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _object(description: str = "", **properties: Schema) -> dict[str, Any]:
    """All of them are there."""
    said = {"description": description} if description else {}
    return {
        **said,
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _maybe(kind: str, description: str = "") -> Schema:
    return {"type": [kind, "null"], **({"description": description} if description else {})}


RESOURCES: dict[str, Schema] = {
    "cpu": _maybe(
        "number", "seconds of CPU time, with child processes; this and what follows: with resources"
    ),
    "rss": _maybe("integer", "bytes of resident memory"),
    "gpu_memory": _maybe(
        "integer", "bytes on NVIDIA devices; null: none, or the driver does not tell"
    ),
}
_RANK: dict[str, Schema] = _object(
    rank={"type": "integer"},
    state={"enum": RANK_STATES},
    pid=_maybe("integer"),
    generation={"type": "integer", "description": "tells processes of one rank number apart"},
    busy_since=_maybe("number", "since when it runs the cell, by the clock of now"),
    last_seconds=_maybe("number", "how long its last cell took"),
    cause=_maybe("string", "what a dead rank died of"),
    stopped=_maybe("string", "why the debugger has stopped it: breakpoint, step, exception …"),
)
RANK: Schema = {**_RANK, "properties": {**_RANK["properties"], **RESOURCES}}
DATA = _object(
    now={"type": "number", "description": CLOCK},
    state={"enum": ["starting", "idle", "busy", "closing"]},
    size={"type": "integer", "description": "the world size"},
    kernel={"type": "string", "description": "the kernelspec that the ranks run"},
    language={"type": "string"},
    execution_count={"type": "integer", "description": "of the last cell that has one"},
    running={
        "anyOf": [
            {"type": "null"},
            _object(
                "the cell that runs",
                msg_id={"type": "string", "description": "of its execute_request"},
                cell_id=_maybe("string", "the notebook's name of the cell, if it said one"),
                execution_count=_maybe("integer"),
                started={"type": "number", "description": "by the clock of now"},
                ranks={
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "those that have not finished",
                },
            ),
        ]
    },
    queued={"type": "integer", "description": "cells that wait for the running one"},
    question={
        "anyOf": [
            {"type": "null"},
            _object(
                "what ranks ask, with input() or a debugger: answer it with the command answer",
                msg_id={"type": "string", "description": "of the input_request"},
                cell={"type": "string", "description": "msg_id of the execute_request"},
                prompt={"type": "string"},
                password={"type": "boolean"},
                ranks={"type": "array", "items": {"type": "integer"}},
            ),
        ]
    },
    ranks={"type": "array", "items": RANK},
    settings=_object(
        output={"enum": ["live", "grouped"]},
        show={
            "type": ["array", "null"],
            "items": {"type": "integer"},
            "description": "ranks whose outputs are shown; null: all",
        },
        log_dir=_maybe("string"),
        on_error={"enum": ["wait", "stop", None], "description": "null: as the client is"},
        pinned=_maybe("integer", "SPMD_PROCESSES"),
        max_processes=_maybe("integer", "SPMD_MAX_PROCESSES"),
        kept_outputs={"type": "integer", "description": "bytes of the log of outputs"},
    ),
    versions=_object(
        spmd_kernel={"type": "string"},
        implementation=_maybe("string", "of the ranks"),
        implementation_version=_maybe("string"),
        protocol_version=_maybe("string"),
    ),
)

ARGUMENTS: dict[str, Schema] = {
    "resources": {
        "type": "boolean",
        "default": False,
        "description": "also what each rank holds of the machine: some system calls per rank",
    }
}

COMMANDS = (
    Command(
        "status",
        "the ranks, the running cell, the settings",
        _status,
        DATA,
        ARGUMENTS,
        example={"resources": True},
    ),
)
