"""``threads``, ``stackTrace``, ``scopes``, ``variables``: what there is to see of stopped ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...conversation import Script
from ...errors import UsageError
from ...model import Rank
from ..all_ranks import SCOPE, children, everywhere
from ..base import Ask, Call, Command, Reply, Request
from ..ids import MAIN
from ..lifecycle import broadcast
from ..nodes import Everywhere
from ..routing import focus_or_first, one, references, require_started, routed

if TYPE_CHECKING:
    from ..debugger import Debugger

# Threads of ipykernel and of ours (see rank/setup.py), which no user has started.
HELPERS = (
    "IPythonHistorySavingThread",
    "Heartbeat",
    "IOPub",
    "Control",
    "Shell channel",
    "spmd-kernel",
)
NAMELESS = (
    "Thread-1",
    "Thread-2",
    "Thread-3",
    "Thread-4",
)  # as ipykernel has it; a function follows else
MAIN_NAME = "MainThread"
FRAMES = 6  # that a message shows


def _threads(call: Call) -> Script:
    require_started(call)
    debugger = call.debugger
    replies: dict[Rank, Reply] = yield broadcast(debugger.debuggees.ranks, "threads")
    threads: list[dict[str, Any]] = []
    for rank, reply in replies.items():
        state = _state(call, rank, reply)
        found = [t for t in reply.items("threads") if not _is_helper(t)]
        for thread in found or [{"id": MAIN, "name": MAIN_NAME}]:
            number = debugger.threads.out(rank, thread.get("id", MAIN))
            name = str(thread.get("name", ""))
            if debugger.size > 1:
                name = f"rank {rank} · {name}{state}"
            threads.append({"id": number, "name": name})
    return {"threads": threads}


def _state(call: Call, rank: Rank, reply: Reply) -> str:
    if not reply.success:
        return " (not answering)"
    return "" if call.debugger.debuggees.is_stopped(rank) else " (running)"


def _is_helper(thread: Mapping[str, Any]) -> bool:
    name = str(thread.get("name", ""))
    return name.startswith(HELPERS) or name in NAMELESS or "_watch_pipe_fd" in name


def _stack_trace(call: Call) -> Script:
    """The number 1, or none: the thread that the client looks at."""
    require_started(call)
    debugger, number = call.debugger, call.arguments.get("threadId")
    found = debugger.threads.back(number) if isinstance(number, int) else None
    if found is None:
        rank = focus_or_first(call)
        stop = debugger.debuggees.stop_of(rank)
        found = rank, stop.tid if stop is not None else MAIN
    rank, tid = found
    reply = yield from one(call, rank, {**call.arguments, "threadId": tid})
    body: dict[str, Any] = debugger.translator.out(rank, reply.body)
    if debugger.size > 1:
        frames = [f for f in body.get("stackFrames", []) if isinstance(f, dict)]
        body["stackFrames"] = [
            {**frame, "name": f"{frame.get('name', '')} [rank {rank}]"} for frame in frames
        ]
    return body


def _scopes(call: Call) -> Script:
    require_started(call)
    debugger, known = call.debugger, references(call)
    if "frameId" not in known:
        raise UsageError("scopes of no frame")
    rank, body = yield from routed(call)
    if debugger.size > 1:
        number = debugger.translator.variables.fresh()
        debugger.nodes[number] = Everywhere(rank, known["frameId"].own)
        scope = {"name": SCOPE, "variablesReference": number, "expensive": False}
        body = {**body, "scopes": [*body.get("scopes", []), scope]}
    return body


def _variables(call: Call) -> Script:
    debugger, number = call.debugger, call.arguments.get("variablesReference")
    if not isinstance(number, int):
        raise UsageError("variables of nothing")
    node = debugger.nodes.get(number)
    if isinstance(node, Everywhere):
        return {"variables": (yield from everywhere(debugger, node))}
    if node is not None:
        return {"variables": (yield from children(debugger, number, node))}
    reference = debugger.translator.reference("variablesReference", number)
    if reference is None:
        return {"variables": []}
    if reference.kind == "explored":
        return (yield from _explored(call, reference.rank, reference.own))
    _, body = yield from routed(call)
    return body


def _explored(call: Call, rank: Rank, own: int) -> Script:
    """ipykernel answers for its own explorer only while nothing is stopped; else not at all."""
    debugger = call.debugger
    if debugger.debuggees.is_stopped(rank):
        raise UsageError(f"rank {rank} is stopped: look at the variables of its frames")
    reply = yield from one(call, rank, {**call.arguments, "variablesReference": own})
    rows = [
        {
            **row,
            "variablesReference": debugger.translator.explored.out(
                rank, row.get("variablesReference", 0)
            ),
        }
        for row in reply.items("variables")
    ]
    return {"variables": rows}


def tell_where(debugger: Debugger, rank: Rank) -> Script:
    """A single rank has not come back from its step: where it is."""
    replies: dict[Rank, Reply] = yield Ask({rank: Request("stackTrace", {"threadId": MAIN})})
    found = debugger.debuggees.of(rank)
    if found is None or not found.armed:
        return
    lines = [
        f"    {frame.get('name', '')}, line {frame.get('line', '?')}"
        for frame in replies[rank].items("stackFrames")[:FRAMES]
    ]
    head = f"rank {rank} has not come back from its step"
    where = "; it is in\n" + "\n".join(lines) if lines else ""
    debugger.say(
        f"{head}{where}\nhint: if it waits for the other ranks, which are stopped, let them continue"
    )


COMMANDS = (
    Command("threads", "the threads of all ranks", _threads),
    Command("stackTrace", "the frames of a thread, also of one that runs", _stack_trace),
    Command("scopes", "the scopes of a frame, and All ranks", _scopes),
    Command("variables", "what is in a scope or a value", _variables),
)
