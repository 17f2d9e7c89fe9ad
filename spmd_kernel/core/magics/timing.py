"""``%timing``: how long the last cells took on each rank."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..timings import CELLS, RANKS, Timing
from .arguments import expand, words
from .base import Call, Context, Magic, Say, Steps
from .wording import aligned, name_ranks, shortened

LAST = 10  # cells that are shown
EACH = 8  # ranks that get a column of their own
CODE = 28  # characters of a cell's first line

_HELP = f"""\
%timing [LAST]

How many seconds the last cells took (LAST of them, else {LAST}; {CELLS} are remembered):
  0, 1, …          on each rank, in worlds of up to {EACH}
  min median max   over the ranks that ran the cell
  slowest          the rank that took longest

A rank's time is from sending it the cell to its reply, taken by the kernel from messages that come
anyway: no rank waits for another one for it. Cells that some ranks only ran, that failed or were
interrupted are marked. What ranks hold and use: %ranks.

Examples:
  %timing
  %timing 3
"""

_TEXTS = frozenset({"code", ""})


def _timing(call: Call, context: Context) -> Steps:
    given = yield from expand(words(call.args), context)
    last = _last(given)
    timings = context.timings[-last:]
    yield Say(table(timings) if timings else "no cell has run on ranks yet\n")


def _last(given: Sequence[str]) -> int:
    if not given:
        return LAST
    text = given[0]
    if len(given) > 1 or not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise UsageError(f"%timing {' '.join(given)}: not a number of cells", "write `%timing 5`")
    return int(text[:9])


def table(timings: Sequence[Timing]) -> str:
    """One line per cell under a head, the oldest first."""
    size = max(timing.world_size for timing in timings)
    ranks = range(size) if size <= EACH else ()
    summary = ("min", "median", "max", "slowest") if size > 1 else ()
    head = ("cell", "code", *map(str, ranks), *summary, "")
    return aligned([head, *(_row(timing, ranks) for timing in timings)], _TEXTS)


def _row(timing: Timing, ranks: Sequence[int]) -> tuple[str, ...]:
    return (
        "[ ]" if timing.count is None else f"[{timing.count}]",
        shortened(timing.code, CODE),
        *(_seconds(timing.seconds.get(rank)) for rank in ranks),
        *_summary(timing, len(ranks) == 1),
        _marks(timing),
    )


def _summary(timing: Timing, alone: bool) -> tuple[str, ...]:
    if alone:
        return ()
    spread = (timing.least, timing.median, timing.most)
    return (*map(_seconds, spread), f"rank {timing.slowest}")


def _seconds(value: float | None) -> str:
    """Three digits at least of what is long enough to care."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _marks(timing: Timing) -> str:
    marks = []
    if len(timing.ranks) < timing.world_size:
        marks.append(f"only {name_ranks(timing.ranks)}")
    if timing.interrupted:
        marks.append("interrupted")
    elif timing.failed:
        everybody = len(timing.ranks) > 1 and timing.failed == timing.ranks
        marks.append("failed" if everybody else f"failed: {name_ranks(timing.failed)}")
    return ", ".join(marks)


assert EACH <= RANKS

MAGICS = (Magic("timing", "line", "how long the last cells took on each rank", _HELP, _timing),)
