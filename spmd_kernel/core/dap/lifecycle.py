"""Scripts that bring ranks' debuggers up and give them what clients asked for: at first, and later to
ranks that were started while the debugger is on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..conversation import Script
from ..errors import RankLost
from ..magics import what_runs
from ..magics.wording import name_ranks
from ..model import Rank
from ..wants import silent
from .base import ANSWER_SECONDS, START_SECONDS, Ask, Reply, Request
from .breakpoints import Breakpoint, settle
from .repair import ANOTHER_PORT, RELEASE

if TYPE_CHECKING:
    from .debugger import Debugger

OF_ONE = "pydevd"  # what it says of its process, among its capabilities
ATTACHED = "already started"  # debugpy's answer to a second attach: the first one was slow


def failures(replies: Mapping[Rank, Reply], *, named: bool) -> str:
    """Why it did not do well on some ranks, equal reasons once; empty if it did on all."""
    why: dict[str, list[Rank]] = {}
    for rank, reply in sorted(replies.items()):
        if not reply.success:
            why.setdefault(reply.message or "it failed", []).append(rank)
    if not named:
        return "; ".join(why)
    return "; ".join(f"{name_ranks(ranks)}: {text}" for text, ranks in why.items())


def broadcast(
    ranks: Iterable[Rank], command: str, arguments: Mapping[str, Any] | None = None, **more: Any
) -> Ask:
    return Ask({rank: Request(command, arguments or {}) for rank in ranks}, **more)


# ---------------------------------------------------------------- initialize, attach


def bring_up(debugger: Debugger, ranks: Sequence[Rank]) -> Script:
    """Start the debuggers of idle ranks; returns their replies."""
    yield from learn_folders(debugger, ranks)
    if prepare := debugger.stage.settings.debugging:
        yield silent(tuple(ranks), prepare, ANSWER_SECONDS)
    arguments = debugger.initialize_arguments
    replies: dict[Rank, Reply] = yield broadcast(
        ranks, "initialize", arguments, seconds=START_SECONDS
    )
    again = tuple(r for r, reply in replies.items() if not (reply.success or reply.silent))
    if again:
        yield silent(again, ANOTHER_PORT, ANSWER_SECONDS)
        replies |= yield broadcast(again, "initialize", arguments, seconds=START_SECONDS)
    for rank, reply in replies.items():
        if reply.success and rank in debugger.ranks.slots:
            debugger.debuggees.add(rank, debugger.ranks.slots[rank].generation)
            told = {key: value for key, value in reply.body.items() if key != OF_ONE}
            debugger.capabilities = both(debugger.capabilities, told)
    return replies


def learn_folders(debugger: Debugger, ranks: Iterable[Rank]) -> Script:
    """Where each rank keeps the files of its cells; returns the replies to debugInfo."""
    replies: dict[Rank, Reply] = yield broadcast(ranks, "debugInfo")
    for rank, reply in replies.items():
        prefix = reply.body.get("tmpFilePrefix")
        if reply.success and isinstance(prefix, str):
            debugger.sources.learn(rank, prefix)
    return replies


def both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What both can do; what is no flag is as the first says."""
    if not one:
        return dict(other)
    return {
        key: (value and other.get(key) is True) if isinstance(value, bool) else value
        for key, value in one.items()
    }


def attach_ranks(debugger: Debugger, ranks: Iterable[Rank]) -> Script:
    """Returns the replies."""
    replies: dict[Rank, Reply] = yield broadcast(
        ranks, "attach", debugger.attach_arguments, seconds=START_SECONDS
    )
    for rank, reply in replies.items():
        found = debugger.debuggees.of(rank)
        if found is not None and (reply.success or ATTACHED in reply.message):
            found.attached = True
    left = [r for r, x in replies.items() if x.success and debugger.debuggees.of(r) is None]
    if left:  # the last client has left meanwhile
        yield broadcast(left, "disconnect", whenever=True)
    return replies


# ---------------------------------------------------------------- later


def join(debugger: Debugger) -> Script:
    """New ranks do what the others did; breakpoints are sent anew to all, as WORLD_SIZE may differ."""
    alive = debugger.ranks.alive
    fresh = [rank for rank in alive if debugger.debuggees.of(rank) is None]
    if fresh:
        replies = yield from bring_up(debugger, fresh)
        up = [rank for rank in fresh if debugger.debuggees.of(rank) is not None]
        if any(session.attached for session in debugger.sessions):
            replies |= yield from attach_ranks(debugger, up)
        if why := failures(replies, named=debugger.size > 1):
            debugger.say(f"the debugger does not reach all ranks: {why}")
        for code in list(debugger.sources.cells.values()):
            ran = what_runs(code, debugger.stage.settings.language)
            yield broadcast(up, "dumpCell", {"code": ran})
    for path in debugger.store.paths:
        yield from send_breakpoints(debugger, path, {})
    for command in kept_commands(debugger):
        yield broadcast(debugger.live, command, kept(debugger, command))


def kept_commands(debugger: Debugger) -> list[str]:
    return sorted({command for session in debugger.sessions for command in session.kept})


def kept(debugger: Debugger, command: str) -> dict[str, Any]:
    """What all clients together want of a command of which the last one counts: their lists joined."""
    merged: dict[str, Any] = {}
    for session in debugger.sessions:
        for key, value in session.kept.get(command, {}).items():
            if isinstance(value, list) and isinstance(merged.get(key), list):
                merged[key] = merged[key] + [item for item in value if item not in merged[key]]
            else:
                merged[key] = value
    return merged


def release(debugger: Debugger, rank: Rank) -> Script:
    """An interrupt ended a stop: the rank is not to be suspended again on its way out of the cell."""
    yield Ask({rank: Request("evaluate", {"expression": RELEASE, "context": "repl"})})


def pass_on(debugger: Debugger, rank: Rank) -> Script:
    """A step that was armed when its cell ended stops what comes next: our repair of just that."""
    for stop in debugger.debuggees.resume([rank], steps=False).values():
        yield Ask({rank: Request("continue", {"threadId": stop.tid})})


# ---------------------------------------------------------------- breakpoints


def send_breakpoints(debugger: Debugger, path: str, arguments: Mapping[str, Any]) -> Script:
    """All that clients want in a file, to each rank what can stop it there; returns why some failed."""
    sources, store = debugger.sources, debugger.store
    same = [known for known in store.paths if sources.real(known) == sources.real(path)]
    points = [point for known in same for point in store.at(known)]
    sent: dict[Rank, list[Breakpoint]] = {}
    requests: dict[Rank, Request] = {}
    for rank in debugger.live:
        mine = [(point, point.for_rank(rank, debugger.size)) for point in points]
        sent[rank] = [point for point, told in mine if told is not None]
        told = [told for _, told in mine if told is not None]
        source = {**arguments.get("source", {}), "path": sources.own(rank, path)}
        lines = [item.get("line") for item in told]
        body = {**arguments, "source": source, "breakpoints": told, "lines": lines}
        requests[rank] = Request("setBreakpoints", body)
    replies: dict[Rank, Reply] = yield Ask(requests)
    answers = {
        rank: reply.items("breakpoints") if reply.success else None
        for rank, reply in replies.items()
    }
    settle(points, sent, answers)
    if replies and not any(reply.success for reply in replies.values()):
        raise RankLost(failures(replies, named=debugger.size > 1))
    return None
