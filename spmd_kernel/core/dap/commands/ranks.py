"""``spmdFocus`` and ``spmdRanks``: which rank a client with one stopped thread looks at, and which it could."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...conversation import Script
from ...errors import UsageError
from ...model import Rank
from ..all_ranks import name_of
from ..base import Ask, Call, Command, Reply, Request


def _pin(call: Call) -> Script:
    """``{"rank": 2}``: this rank has the focus whenever it is stopped; ``null``: as it comes."""
    yield from ()
    debugger, rank = call.debugger, call.arguments.get("rank")
    if rank is not None and rank not in debugger.ranks.slots:
        raise UsageError(f"there is no rank {rank!r}")
    debugger.pinned = rank
    if rank is not None:
        call.session.policy.pin(rank)
    focus = debugger.focus_of(call.session)
    answer: dict[str, Any] = {"pinned": rank, "focus": focus}
    return answer


def _ranks(call: Call) -> Script:
    """Stopped ranks with their top frames; those that run are not asked anything."""
    debugger = call.debugger
    stops = {r: stop for r in debugger.debuggees.stopped if (stop := debugger.debuggees.stop_of(r))}
    replies: dict[Rank, Reply] = yield Ask(
        {r: Request("stackTrace", {"threadId": stop.tid, "levels": 1}) for r, stop in stops.items()}
    )
    silent = {rank for rank, owed in debugger.asking.owing.items() if owed}
    places = {rank: _place(call, rank, reply) for rank, reply in replies.items()}
    return overview(call, silent, places)


def _state(call: Call, rank: Rank, silent: Collection[Rank]) -> str:
    found = call.debugger.debuggees.of(rank)
    if rank not in call.debugger.ranks.alive:
        return "dead"
    if rank in silent:
        return "not answering"
    if found is None or not found.attached:
        return "detached"
    return "stopped" if found.stop is not None else "running"


def _place(call: Call, rank: Rank, reply: Reply) -> dict[str, Any] | None:
    frame = next(iter(reply.items("stackFrames")), None)
    if frame is None:
        return None
    source = frame.get("source")
    path = source.get("path") if isinstance(source, Mapping) else None
    return {
        "name": name_of(frame),
        "line": frame.get("line"),
        "path": call.debugger.sources.canonical(rank, path) if isinstance(path, str) else None,
    }


def overview(
    call: Call,
    silent: Collection[Rank],
    places: Mapping[Rank, dict[str, Any] | None] | None = None,
) -> dict[str, Any]:
    """Of all ranks, of which the ``silent`` do not answer; with ``places``, also where they stopped."""
    debugger = call.debugger
    focus = debugger.focus_of(call.session)
    ranks: list[dict[str, Any]] = []
    for rank in debugger.ranks.slots:
        stop = debugger.debuggees.stop_of(rank)
        entry = {
            "rank": rank,
            "state": _state(call, rank, silent),
            "threadId": debugger.threads.out(rank, stop.tid) if stop is not None else None,
            "reason": stop.reason if stop is not None else None,
        }
        if places is not None:
            entry["place"] = places.get(rank) if stop is not None else None
        ranks.append(entry)
    return {"focus": focus, "pinned": debugger.pinned, "ranks": ranks}


COMMANDS = (
    Command("spmdFocus", "the rank whose stops a client with one stopped thread hears of", _pin),
    Command("spmdRanks", "the state of each rank, and where it is stopped", _ranks),
)
