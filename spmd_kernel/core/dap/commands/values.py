"""``inspectVariables``, ``evaluate``, and others that look at one value."""

from __future__ import annotations

import re
from typing import Any

from ...conversation import Script
from ...errors import RankLost, UsageError
from ...model import Rank
from ..all_ranks import evaluate_on_all, own_name, rows_for_clients
from ..base import EVALUATE_SECONDS, Call, Command, Reply
from ..lifecycle import broadcast, failures
from ..nodes import fold
from ..routing import focus_or_first, one, references, require_started, routed

ALL = re.compile(r"\s*%all\b[ \t]*(.*)", re.DOTALL)
UNANSWERED = "(no answer)"


def _inspect_variables(call: Call) -> Script:
    """The globals, stopped or not."""
    debugger = call.debugger
    replies: dict[Rank, Reply] = yield broadcast(debugger.ranks.alive, "inspectVariables")
    good = {rank: reply for rank, reply in replies.items() if reply.success}
    if not good:
        raise RankLost(failures(replies, named=debugger.size > 1) or "no rank is alive")
    explored = debugger.translator.explored
    explored.drop(good)  # each rank has begun anew with its explorer
    for number in [n for n, table in debugger.tables.items() if table is explored]:
        debugger.forget(number)
    found = {rank: reply.items("variables") for rank, reply in good.items()}
    if debugger.size == 1:
        (rank,) = good
        rows = [
            {**row, "variablesReference": explored.out(rank, row.get("variablesReference", 0))}
            for row in found[rank]
        ]
        return {"variables": rows}
    rows = rows_for_clients(debugger, fold(found), explored)
    if why := failures(replies, named=True):
        rows.insert(0, {"name": UNANSWERED, "value": why, "variablesReference": 0})
    return {"variables": rows}


def _evaluate(call: Call) -> Script:
    require_started(call)
    debugger, expression = call.debugger, call.arguments.text("expression")
    if found := ALL.fullmatch(expression):
        if not found[1].strip():
            raise UsageError("%all without an expression", "for example `%all loss.item()`")
        frame = debugger.translator.reference("frameId", call.arguments.get("frameId"))
        text = yield from evaluate_on_all(debugger, frame, found[1].strip(), call.arguments)
        return {"result": text, "type": "", "variablesReference": 0}
    rank, body = yield from routed(call, EVALUATE_SECONDS)
    if not debugger.debuggees.is_stopped(rank):
        body["variablesReference"] = 0  # ipykernel would look for it among its own
    return body


def _rich(call: Call) -> Script:
    """While the rank is stopped it must have a frame, or ipykernel's handler fails: the top one."""
    debugger = call.debugger
    known = references(call)
    rank = known["frameId"].rank if "frameId" in known else _any_rank(call)
    arguments = debugger.translator.back(rank, call.arguments, known)
    arguments["variableName"] = own_name(call.arguments.text("variableName"))
    stop = debugger.debuggees.stop_of(rank)
    if stop is not None and "frameId" not in known:
        reply = yield from one(call, rank, {"threadId": stop.tid, "levels": 1}, "stackTrace")
        frames = reply.items("stackFrames")
        if not frames:
            raise UsageError(f"rank {rank} has no frame to look at")
        arguments["frameId"] = frames[0].get("id")
    reply = yield from one(call, rank, arguments, seconds=EVALUATE_SECONDS)
    return dict(reply.body)


def _any_rank(call: Call) -> Rank:
    rank = call.debugger.focus_of(call.session)
    if rank is None:
        rank = min(call.debugger.ranks.alive, default=None)
    if rank is None:
        raise RankLost("no rank is alive")
    return rank


def _copy_to_globals(call: Call) -> Script:
    _, body = yield from routed(call)
    return body


def _exception_info(call: Call) -> Script:
    require_started(call)
    debugger, number = call.debugger, call.arguments.get("threadId")
    found = debugger.threads.back(number) if isinstance(number, int) else None
    rank = found[0] if found is not None else focus_or_first(call)
    stop = debugger.debuggees.stop_of(rank)
    if stop is None:
        raise UsageError(f"rank {rank} is not stopped")
    reply = yield from one(call, rank, {**call.arguments, "threadId": stop.tid})
    body: dict[str, Any] = debugger.translator.out(rank, reply.body)
    return body


def _modules(call: Call) -> Script:
    rank = _any_rank(call)
    reply = yield from one(call, rank, call.arguments)
    return dict(reply.body)


COMMANDS = (
    Command("inspectVariables", "the globals of all ranks, folded", _inspect_variables),
    Command("evaluate", "an expression in a frame; `%all EXPR` on all ranks", _evaluate),
    Command("richInspectVariables", "a value as a notebook shows it", _rich),
    Command("copyToGlobals", "a local variable as a global one, on its rank", _copy_to_globals),
    Command("exceptionInfo", "the exception that a rank is stopped at", _exception_info),
    Command("modules", "the modules of one rank", _modules),
)
