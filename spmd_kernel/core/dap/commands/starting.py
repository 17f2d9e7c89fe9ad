"""``initialize``, ``attach``, ``configurationDone``, ``disconnect``, and what must not happen to ranks."""

from __future__ import annotations

from ...control.base import Alone
from ...conversation import Script
from ...errors import RankLost, UsageError
from ..base import Call, Command, Reply
from ..lifecycle import attach_ranks, bring_up, broadcast, failures, kept, send_breakpoints


def _initialize(call: Call) -> Script:
    """Refused while a cell runs: a busy rank would answer nothing on control until that ends.

    But right after the client has disconnected it waits: JupyterLab's Terminate is both at once, and
    the ranks that were stopped have hardly gone on.
    """
    debugger, returns = call.debugger, call.session.returns
    missing = [r for r in debugger.ranks.alive if debugger.debuggees.of(r) is None]
    if missing:
        debugger.initialize_arguments = dict(call.arguments)
        try:
            replies = yield Alone(bring_up(debugger, missing), wait=returns, first=returns)
        except UsageError as error:
            raise UsageError(f"the debugger cannot start now: {error}", error.hint) from None
        if not debugger.is_on:
            raise RankLost(failures(replies, named=debugger.size > 1))
    if not debugger.is_on:
        raise RankLost("there is no rank to debug")
    call.session.started = True
    return {
        **debugger.capabilities,
        "supportsSingleThreadExecutionRequests": True,
        "supportsTerminateRequest": False,
    }


def _attach(call: Call) -> Script:
    debugger, session = call.debugger, call.session
    if not session.started:
        raise UsageError("the debugger is not started", "send initialize first")
    new = [r for r in debugger.debuggees.ranks if r not in debugger.debuggees.attached]
    if new:
        debugger.attach_arguments = dict(call.arguments)
        replies: dict[int, Reply] = yield from attach_ranks(debugger, new)
        if not debugger.live:
            raise RankLost(failures(replies, named=debugger.size > 1))
    else:
        replies = {}
    if not session.attached:
        session.attached = True
        session.post("initialized")
        for rank in debugger.debuggees.stopped:
            session.policy.stopped(rank)
    missing = set(debugger.ranks.alive) - set(debugger.live)
    if why := failures(replies, named=True) or (missing and "they could not be started"):
        debugger.say(f"the debugger does not reach all ranks: {why}")
    return None


def _configuration_done(call: Call) -> Script:
    yield from ()
    return None


def _disconnect(call: Call) -> Script:
    """The last client to leave ends it for the ranks; none of them is ever terminated."""
    debugger, session = call.debugger, call.session
    session.returns = session.started
    paths, commands = debugger.store.drop(session.name), list(session.kept)
    session.kept.clear()
    if any(other.started for other in debugger.sessions if other is not session):
        if session.attached:
            session.post("terminated")
        session.started = session.attached = False
        session.policy.reset()
        for path in paths:
            yield from send_breakpoints(debugger, path, {})
        for command in commands:
            yield broadcast(debugger.live, command, kept(debugger, command))
        return None
    arguments = {"restart": False, "terminateDebuggee": False}
    ranks = debugger.debuggees.ranks
    replies = yield broadcast(ranks, "disconnect", arguments, whenever=True)
    debugger.reset()
    if why := failures({r: x for r, x in replies.items() if x.silent}, named=True):
        raise RankLost(f"not all ranks were disconnected: {why}")
    return None


def _terminate(call: Call) -> Script:
    yield from ()
    raise UsageError("a debugger does not end ranks", "disconnect it; `%restart` starts ranks anew")


COMMANDS = (
    Command("initialize", "start the debuggers of all ranks, when none is busy", _initialize),
    Command("attach", "connect to the ranks that were started", _attach),
    Command("configurationDone", "nothing is left to do", _configuration_done),
    Command("disconnect", "end it on all ranks; breakpoints are forgotten", _disconnect),
    Command("terminate", "refused: ranks go on", _terminate),
    Command("restart", "refused: ranks go on", _terminate),
    Command("launch", "refused: ranks run already", _terminate),
)
