"""``debugInfo``: all that a front end needs to show a session that it has not seen begin."""

from __future__ import annotations

from typing import Any

from ...conversation import Script
from ...model import Rank
from ..base import Call, Command, Reply
from ..lifecycle import both, learn_folders
from ..sources import HASH, SEED, SUFFIX

FLAGS = ("richRendering", "copyToGlobals")


def _debug_info(call: Call) -> Script:
    debugger = call.debugger
    replies: dict[Rank, Reply] = yield from learn_folders(debugger, debugger.ranks.alive)
    bodies = [reply.body for _, reply in sorted(replies.items()) if reply.success]
    base: dict[str, Any] = {}
    for body in bodies:
        base = both(base, body)
    focus = debugger.focus_of(call.session)
    stop = debugger.debuggees.stop_of(focus) if focus is not None else None
    shown: list[int] = []
    if focus is not None and stop is not None and call.session.attached:
        stopped = [focus, *(rank for rank in debugger.debuggees.stopped if rank != focus)]
        shown = call.session.policy.list(stopped)
    info = {
        "hashMethod": HASH,
        "hashSeed": SEED,
        "tmpFileSuffix": SUFFIX,
        **base,
        "isStarted": call.session.started,
        "tmpFilePrefix": debugger.sources.prefix or base.get("tmpFilePrefix", ""),
        "breakpoints": debugger.store.as_info(),
        "stoppedThreads": shown,
    }
    for flag in FLAGS:
        info.setdefault(flag, False)
    if debugger.size > 1:
        info["spmd"] = {
            "focus": focus if stop is not None else None,
            "pinned": debugger.pinned,
            "ranks": [_rank(call, rank, replies) for rank in debugger.ranks.slots],
        }
    return info


def _rank(call: Call, rank: Rank, replies: dict[Rank, Reply]) -> dict[str, Any]:
    debugger = call.debugger
    found, reply = debugger.debuggees.of(rank), replies.get(rank)
    stop = found.stop if found is not None else None
    state = "running" if found is not None and found.attached else "detached"
    if reply is None:
        state = "dead"
    elif reply.silent:
        state = "not answering"
    elif stop is not None:
        state = "stopped"
    return {
        "rank": rank,
        "state": state,
        "threadId": debugger.threads.out(rank, stop.tid) if stop is not None else None,
        "reason": stop.reason if stop is not None else None,
    }


COMMANDS = (Command("debugInfo", "the state of the session", _debug_info),)
