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
    threads: dict[Rank, int] = {}
    if call.session.attached:
        ranks = sorted(debugger.debuggees.stopped, key=lambda rank: rank != focus)  # it comes first
        threads = {r: stop.tid for r in ranks if (stop := debugger.debuggees.stop_of(r))}
        call.session.policy.listed(threads)
    info = {
        "hashMethod": HASH,
        "hashSeed": SEED,
        "tmpFileSuffix": SUFFIX,
        **base,
        "isStarted": call.session.started,
        "tmpFilePrefix": debugger.sources.prefix or base.get("tmpFilePrefix", ""),
        "breakpoints": debugger.store.as_info(),
        "stoppedThreads": [debugger.threads.out(rank, tid) for rank, tid in threads.items()],
    }
    for flag in FLAGS:
        info.setdefault(flag, False)
    if debugger.size > 1:
        silent = {rank for rank, reply in replies.items() if reply.silent}
        info["spmd"] = overview(call, silent)
    return info


COMMANDS = (Command("debugInfo", "the state of the session", _debug_info),)
