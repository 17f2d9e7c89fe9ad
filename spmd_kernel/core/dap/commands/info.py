"""``debugInfo``: all that a front end needs to show a session that it has not seen begin."""

from __future__ import annotations

from typing import Any

from ...conversation import Script
from ...model import Rank
from ..base import Call, Command, Reply
from ..lifecycle import both, learn_folders
from ..sources import HASH, SEED, SUFFIX
from .ranks import overview

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
        info["spmd"] = overview(call, {r: _state(call, r, replies) for r in debugger.ranks.slots})
    return info


def _state(call: Call, rank: Rank, replies: dict[Rank, Reply]) -> str:
    found, reply = call.debugger.debuggees.of(rank), replies.get(rank)
    if reply is None:
        return "dead"
    if reply.silent:
        return "not answering"
    if found is not None and found.stop is not None:
        return "stopped"
    return "running" if found is not None and found.attached else "detached"


COMMANDS = (Command("debugInfo", "the state of the session", _debug_info),)
