"""``continue``, ``next``, ``stepIn``, ``stepOut`` and ``pause``: all stopped ranks together, or one."""

from __future__ import annotations

from ...conversation import Script
from ...errors import RankLost, UsageError
from ...model import Rank
from ..base import Ask, Call, Command, Outcome, Reply, Request
from ..lifecycle import broadcast, failures
from ..routing import require_started

TRIES = 5  # they may be interrupted again meanwhile (`ladder`)
AFTER = 0.01  # seconds: then the time of doubt is over
ALL_THREADS = "*"  # of a rank: they stop and go on together, as debugpy's adapter has it


def _resume(call: Call) -> Script:
    """Only ranks that are stopped hear of it: one that is not would never answer anything again.

    It waits for ranks of which it does not show yet whether an interrupt ends their stop.
    """
    require_started(call)
    debugger = call.debugger
    for _ in range(TRIES):
        if doubts := debugger.debuggees.in_doubt(debugger.stage.at):
            seconds = max(doubts.values()) + AFTER
            yield Outcome(tuple(doubts), seconds, debugger.next_key())
    named = _named(call)
    targets = debugger.debuggees.resumable(debugger.stage.at)
    if call.arguments.get("singleThread") is True:
        chosen = named[0] if named is not None else debugger.focus_of(call.session)
        targets = tuple(rank for rank in targets if rank == chosen)
    steps = call.command != "continue"
    if steps and named is not None and named[0] in targets:
        call.session.policy.look_at(named[0])
    left = debugger.debuggees.resume(targets, steps=steps)
    rest = {k: v for k, v in call.arguments.items() if k != "singleThread"}
    requests: dict[Rank, Request] = {}
    for rank, stop in left.items():
        debugger.drop(rank)
        tid = named[1] if named is not None and named[0] == rank else stop.tid
        told = tid if steps else ALL_THREADS
        requests[rank] = Request(call.command, {**rest, "threadId": told})
    for session in debugger.sessions:
        session.policy.resumed(targets)
    if steps and len(targets) == 1 and debugger.debuggees.stopped:
        debugger.watch_step(targets[0])
    replies: dict[Rank, Reply] = yield Ask(requests)
    for rank, reply in replies.items():
        if not reply.success and not reply.silent:
            debugger.debuggees.restore(rank, left[rank])
    if why := failures(replies, named=debugger.size > 1):
        raise RankLost(why)
    return None if steps else {"allThreadsContinued": not debugger.debuggees.stopped}


def _named(call: Call) -> tuple[Rank, int] | None:
    """The rank and thread that the client means; 1, or another unknown number: the one it looks at."""
    number = call.arguments.get("threadId")
    found = call.debugger.threads.back(number) if isinstance(number, int) else None
    return found if found is not None and found[0] in call.debugger.live else None


def _pause(call: Call) -> Script:
    """Ranks that run a cell: in an idle one it would wait for the next."""
    require_started(call)
    debugger, named = call.debugger, _named(call)
    running = [
        r for r in debugger.live if debugger.in_cell(r) and not debugger.debuggees.is_stopped(r)
    ]
    if call.arguments.get("singleThread") is True and named is not None:
        running = [rank for rank in running if rank == named[0]]
    if not running:
        raise UsageError("no rank runs a cell that could be paused")
    replies: dict[Rank, Reply] = yield broadcast(running, "pause", {"threadId": ALL_THREADS})
    if not any(reply.success for reply in replies.values()):
        raise RankLost(failures(replies, named=debugger.size > 1))
    return None


COMMANDS = (
    Command("continue", "all stopped ranks go on; with singleThread one", _resume),
    Command("next", "all stopped ranks step over; with singleThread one", _resume),
    Command("stepIn", "all stopped ranks step in; with singleThread one", _resume),
    Command("stepOut", "all stopped ranks step out; with singleThread one", _resume),
    Command("pause", "stop the ranks that run a cell", _pause),
)
