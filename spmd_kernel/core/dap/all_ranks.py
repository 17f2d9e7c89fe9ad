"""One frame on all ranks: its locals folded, and an expression evaluated there.

The frame of another rank that matches is the one of the same function in the same file at the same depth;
else one of the same function; else the rank's top frame.  Where each rank really is, a row says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..conversation import Script
from ..model import Rank
from .base import EVALUATE_SECONDS, Ask, Reply, Request, Stops
from .ids import Table
from .nodes import Everywhere, Folded, Group, Node, Row, Split, fold, group_name, group_texts
from .translate import Reference

if TYPE_CHECKING:
    from .debugger import Debugger

SCOPE = "All ranks"
WHERE = "(where)"
TOGETHER = (
    0.5  # seconds after a stop that others have to stop as well, before they count as running
)
DIFFERS = " ≠"  # behind the name of what ranks do not have in common
RUNNING = "running"
IDLE = "not in a cell"

Frame = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A frame as another rank would have it."""

    path: str
    name: str
    depth: int  # from the bottom


def name_of(frame: Frame) -> str:
    """The function's; debugpy adds a remark where an exception stopped it."""
    return str(frame.get("name", "")).removesuffix(" (Current frame)")


def matching(frames: Sequence[Frame], place: Place, path_of: Mapping[int, str]) -> Frame | None:
    """The frame of a rank that matches; ``path_of``: paths for clients, by index."""
    alike = [
        (len(frames) - index, frame)
        for index, frame in enumerate(frames)
        if path_of.get(index) == place.path and name_of(frame) == place.name
    ]
    same = [frame for depth, frame in alike if depth == place.depth]
    found = same or [frame for _, frame in alike] or list(frames)
    return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Matched:
    frames: Mapping[Rank, Frame]  # of stopped ranks
    others: Mapping[Rank, str]  # what those do that have none


def match(debugger: Debugger, rank: Rank, frame: int) -> Script:
    """The frames of all ranks that match one; returns `Matched`."""
    yield from gathered(debugger, rank)
    stops = {r: s for r in debugger.debuggees.stopped if (s := debugger.debuggees.stop_of(r))}
    replies: dict[Rank, Reply] = yield Ask(
        {r: Request("stackTrace", {"threadId": stop.tid}) for r, stop in stops.items()}
    )
    stacks = {r: reply.items("stackFrames") for r, reply in replies.items() if reply.success}
    place = _place(debugger, rank, stacks.get(rank, []), frame)
    found: dict[Rank, Frame] = {}
    others: dict[Rank, str] = {}
    for other in debugger.ranks.slots:
        if other not in stacks:
            others[other] = _absence(debugger, other, replies.get(other))
            continue
        frames = stacks[other]
        paths = {i: _path(debugger, other, f) for i, f in enumerate(frames)}
        mine = matching(frames, place, paths) if place is not None else next(iter(frames), None)
        if other == rank:
            mine = next((f for f in frames if f.get("id") == frame), mine)
        if mine is not None:
            found[other] = mine
    return Matched(found, others)


def gathered(debugger: Debugger, rank: Rank) -> Script:
    """Ranks that hit the same line stop within moments of each other: the last of them, too."""
    stop = debugger.debuggees.stop_of(rank)
    if stop is None:
        return
    left = stop.at + TOGETHER - debugger.stage.at
    if left > 0:
        yield Stops(debugger.live, left, debugger.next_key())


def _absence(debugger: Debugger, rank: Rank, reply: Reply | None) -> str:
    if reply is not None:
        return reply.message or "not answering"
    if rank not in debugger.live:
        return "dead" if rank not in debugger.ranks.alive else "not debugged"
    return RUNNING if debugger.in_cell(rank) else IDLE


def _place(debugger: Debugger, rank: Rank, frames: Sequence[Frame], own: int) -> Place | None:
    for index, frame in enumerate(frames):
        if frame.get("id") == own:
            return Place(_path(debugger, rank, frame), name_of(frame), len(frames) - index)
    return None


def _path(debugger: Debugger, rank: Rank, frame: Frame) -> str:
    source = frame.get("source")
    path = source.get("path") if isinstance(source, Mapping) else None
    return debugger.sources.canonical(rank, path) if isinstance(path, str) else ""


# ---------------------------------------------------------------- the scope


def everywhere(debugger: Debugger, node: Everywhere) -> Script:
    """The rows of the scope."""
    matched: Matched = yield from match(debugger, node.rank, node.frame)
    scopes: dict[Rank, Reply] = yield Ask(
        {r: Request("scopes", {"frameId": f.get("id")}) for r, f in matched.frames.items()}
    )
    refs = {r: ref for r, reply in scopes.items() if (ref := _locals(reply))}
    replies: dict[Rank, Reply] = yield Ask(
        {r: Request("variables", {"variablesReference": ref}) for r, ref in refs.items()}
    )
    found = {r: reply.items("variables") for r, reply in replies.items() if reply.success}
    unheard = {r: "not answering" for r in matched.frames if r not in found}
    where = {
        **{r: f"{name_of(f)}:{f.get('line', '?')}" for r, f in matched.frames.items()},
        **matched.others,
        **unheard,
    }
    row = {"name": WHERE, "value": group_texts(where), "variablesReference": 0}
    folded = fold(found)
    rows = rows_for_clients(debugger, folded, debugger.translator.variables)
    for each, told in zip(folded, rows, strict=True):
        if len(each.groups) > 1:  # no rank's own variable, as is what all have in common
            told["name"] += DIFFERS
    return [row, *rows]


def _locals(reply: Reply) -> int:
    if not reply.success:
        return 0
    scopes = reply.items("scopes")
    named = [s for s in scopes if s.get("name") == "Locals"] or scopes
    ref = named[0].get("variablesReference") if named else 0
    return ref if isinstance(ref, int) else 0


def own_name(name: str) -> str:
    """A variable's, of what a row of the scope is called."""
    return name.removesuffix(DIFFERS)


def rows_for_clients(debugger: Debugger, rows: Iterable[Row], table: Table) -> list[dict[str, Any]]:
    """DAP's Variables; what can be expanded gets a number of ``table``."""
    return [
        {
            "name": row.name,
            "value": row.value,
            **_type(row),
            "evaluateName": row.name,
            "variablesReference": _number(debugger, row.node, table),
        }
        for row in rows
    ]


def _type(row: Row) -> dict[str, str]:
    """None where values differ: JupyterLab shows the type instead of the value, and of an int or a
    float the first number that is in the value.
    """
    return {"type": row.type} if len(row.groups) == 1 else {}


def _number(debugger: Debugger, node: Node | None, table: Table) -> int:
    if node is None:
        return 0
    if isinstance(node, Folded) and len(node.refs) == 1:
        ((rank, own),) = node.refs.items()
        return table.out(rank, own)
    number = table.fresh()
    debugger.nodes[number] = node
    debugger.tables[number] = table
    return number


def children(debugger: Debugger, number: int, node: Folded | Split) -> Script:
    """What is below a folded value."""
    table = debugger.tables.get(number, debugger.translator.variables)
    if isinstance(node, Split):
        return [_split_row(debugger, group, table) for group in node.groups]
    stopped = table is debugger.translator.variables
    asked = {
        rank: Request("variables", {"variablesReference": own})
        for rank, own in node.refs.items()
        if debugger.debuggees.is_stopped(rank) is stopped
    }
    replies: dict[Rank, Reply] = yield Ask(asked)
    found = {rank: reply.items("variables") for rank, reply in replies.items() if reply.success}
    return rows_for_clients(debugger, fold(found), table)


def _split_row(debugger: Debugger, group: Group, table: Table) -> dict[str, Any]:
    return {
        "name": group_name(group.ranks),
        "value": group.value,
        "variablesReference": _number(debugger, Folded(group.refs) if group.refs else None, table),
    }


# ---------------------------------------------------------------- %all


def evaluate_on_all(
    debugger: Debugger, frame: Reference | None, expression: str, arguments: Mapping[str, Any]
) -> Script:
    """``0-2: 20 | 3: 22``.  Without a frame: where the focus rank is stopped, else in the globals."""
    requests: dict[Rank, Request] = {}
    texts: dict[Rank, str] = {}
    rank = frame.rank if frame is not None else debugger.focus
    stop = debugger.debuggees.stop_of(rank) if rank is not None else None
    if rank is None or stop is None:
        code = f"eval({expression!r}, __import__('IPython').get_ipython().user_ns)"
        for each in debugger.live:
            requests[each] = Request("evaluate", {"expression": code, "context": "repl"})
    else:
        own = frame.own if frame is not None else (yield from _top_frame(rank, stop.tid))
        matched: Matched = yield from match(debugger, rank, own)
        texts.update(matched.others)
        for each, found in matched.frames.items():
            told = {"context": "repl", **arguments, "expression": expression}
            requests[each] = Request("evaluate", {**told, "frameId": found.get("id")})
    replies: dict[Rank, Reply] = yield Ask(requests, EVALUATE_SECONDS)
    for each, reply in replies.items():
        texts[each] = _result(reply)
    return group_texts(texts)


def _top_frame(rank: Rank, tid: int) -> Script:
    replies: dict[Rank, Reply] = yield Ask(
        {rank: Request("stackTrace", {"threadId": tid, "levels": 1})}
    )
    frames = replies[rank].items("stackFrames")
    return frames[0].get("id", 0) if frames else 0


def _result(reply: Reply) -> str:
    """The value, or the last line of what went wrong."""
    if reply.success:
        result = reply.body.get("result")
        return result if isinstance(result, str) else ""
    return next((line for line in reversed(reply.message.splitlines()) if line.strip()), "failed")
