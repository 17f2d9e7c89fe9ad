"""Where every rank is: ``%where``, and the same for clients that ask while a cell runs.

`where` is a script: it yields the want `magics.base.Stacks` and returns a `Where`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from .collectives import waits
from .magics.base import RankView, Stacks
from .magics.wording import name_ranks
from .model import Dumped, Rank
from .sight import Sight
from .stacks import RunningCode, Stack, folded, in_cell

INDENT = "    "


@dataclass(frozen=True, slots=True)
class Where:
    """``text`` for people; ``data`` is JSON: ``{"ranks": [{"rank", "state", "seconds", "waits_in",
    "frames": [{"place", "file", "line", "function"}, …]}, …]}``, frames outermost first.
    """

    text: str
    data: dict[str, Any]


def where(
    world: Sequence[RankView], code: RunningCode, running: Sequence[Rank]
) -> Generator[Stacks, Dumped, Where]:
    """``running``: the ranks that have not finished the cell at hand, whose code is ``code``."""
    asked = tuple(view.rank for view in world if view.state in ("idle", "busy"))
    dumped = yield Stacks(asked)
    sight = Sight.of(dumped, code)
    busy = {r: s for r, s in sight.stacks.items() if s and (r in running or in_cell(s))}
    since = {view.rank: dumped.at - view.since for view in world if view.since is not None}
    blocks = [_block(ranks, stack, sight, since) for ranks, stack in folded(busy)]
    for state in ("idle", "no answer", "starting", "dead"):
        ranks = [v.rank for v in world if _state(v, busy, running) == state]
        if ranks:
            blocks.append((ranks[0], f"{name_ranks(ranks)}: {state}\n"))
    text = "".join(block for _, block in sorted(blocks))
    data = [_entry(view, _state(view, busy, running), sight, busy, since) for view in world]
    return Where(text, {"ranks": data})


def _state(view: RankView, busy: dict[Rank, Stack], running: Sequence[Rank]) -> str:
    if view.rank in busy:
        return "busy"
    if view.state in ("starting", "dead"):
        return view.state
    return "no answer" if view.rank in running else "idle"


def _block(
    ranks: tuple[Rank, ...], stack: Stack, sight: Sight, since: dict[Rank, float]
) -> tuple[Rank, str]:
    head = f"{name_ranks(ranks)}: {sight.place(ranks[0])}"
    seconds = [since[rank] for rank in ranks if rank in since]
    if seconds:
        head += f" (busy for {max(seconds):.0f} s)"
    return ranks[0], head + "\n" + "".join(frame_lines(stack, sight.code))


def frame_lines(stack: Stack, code: RunningCode) -> list[str]:
    """A line per frame, outermost first, as in a traceback."""
    return [f"{INDENT}{code.place(frame)} in {frame.function}\n" for frame in reversed(stack)]


def _entry(
    view: RankView, state: str, sight: Sight, busy: dict[Rank, Stack], since: dict[Rank, float]
) -> dict[str, Any]:
    entry: dict[str, Any] = {"rank": view.rank, "state": state}
    if view.rank in busy:
        stack, code = busy[view.rank], sight.code
        wait = waits(stack, code)
        entry["frames"] = [
            {"place": code.place(f), "file": f.file, "line": f.line, "function": f.function}
            for f in reversed(stack)
        ]
        entry["waits_in"] = wait.name if wait else None
        entry["seconds"] = round(since[view.rank], 3) if view.rank in since else None
    return entry
