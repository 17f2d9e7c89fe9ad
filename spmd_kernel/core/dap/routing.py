"""Where a request goes when its command has no rule of its own: where its arguments point, else to all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..conversation import Script
from ..errors import RankLost, UsageError
from ..model import Rank
from .base import ANSWER_SECONDS, Ask, Call, Reply, Request
from .lifecycle import broadcast, failures
from .translate import Reference


def require_started(call: Call) -> None:
    if not call.debugger.is_on:
        raise UsageError("the debugger is not started")


def one(
    call: Call,
    rank: Rank,
    arguments: Mapping[str, Any],
    command: str = "",
    seconds: float = ANSWER_SECONDS,
) -> Script:
    """Ask one rank; returns its `Reply`, which did well. Raises `RankLost` if not."""
    replies: dict[Rank, Reply] = yield Ask(
        {rank: Request(command or call.command, arguments)}, seconds
    )
    reply = replies[rank]
    if not reply.success:
        raise RankLost(failures(replies, named=call.debugger.size > 1 or reply.silent))
    return reply


def references(call: Call) -> dict[str, Reference]:
    """What the arguments refer to.  Frames and variables of a rank that runs are refused: ipykernel's
    handler would fail over them, and answer nothing.  Raises `UsageError`.
    """
    known = call.debugger.translator.references(call.arguments)
    for reference in known.values():
        rank = reference.rank
        if reference.kind in ("frame", "variable") and not call.debugger.debuggees.is_stopped(rank):
            raise UsageError(f"stale {reference.kind}: rank {rank} runs")
    return known


def routed(call: Call, seconds: float = ANSWER_SECONDS) -> Script:
    """To the rank that the arguments refer to; returns it and its body for clients."""
    debugger, known = call.debugger, references(call)
    rank = next((reference.rank for reference in known.values()), None)
    if rank is None:
        rank = focus_or_first(call)
    arguments = debugger.translator.back(rank, call.arguments, known)
    reply = yield from one(call, rank, arguments, seconds=seconds)
    return rank, debugger.translator.out(rank, reply.body)


def focus_or_first(call: Call) -> Rank:
    """Raises `UsageError` if no rank takes part."""
    rank = call.debugger.focus_of(call.session)
    rank = (
        min(call.debugger.live or call.debugger.debuggees.ranks, default=None)
        if rank is None
        else rank
    )
    if rank is None:
        raise UsageError("the debugger is not started")
    return rank


def everywhere(call: Call, arguments: Mapping[str, Any] | None = None) -> Script:
    """To all; returns the lowest one's body for clients. Raises `RankLost` unless all did well."""
    debugger = call.debugger
    replies: dict[Rank, Reply] = yield broadcast(
        debugger.debuggees.ranks, call.command, call.arguments if arguments is None else arguments
    )
    if why := failures(replies, named=debugger.size > 1):
        raise RankLost(why)
    rank, reply = min(replies.items(), key=lambda item: item[0])
    return debugger.translator.out(rank, reply.body) or None


def default(call: Call) -> Script:
    """A command without a file in `commands`."""
    require_started(call)
    if call.debugger.translator.references(call.arguments):
        _, body = yield from routed(call)
        return body or None
    source = call.arguments.get("source")
    if isinstance(source, Mapping):
        _, body = yield from routed(call)
        return body or None
    return (yield from everywhere(call))
