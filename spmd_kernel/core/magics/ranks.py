"""``%ranks``: what each rank is doing, or died of."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..model import Facts
from .arguments import words
from .base import Call, Context, Look, Magic, RankView, Say, Steps
from .wording import megabytes

_HELP = """\
%ranks

A table of the ranks:
  rank        its number
  pid         its process
  state       idle, busy, starting or dead
  last cell   how many seconds its last cell took
  RSS         its resident memory (pages shared with other ranks count in each)
  exit cause  what a dead rank died of

`%restart dead` brings back dead ranks.
"""

_HEAD = ("rank", "pid", "state", "last cell", "RSS", "exit cause")
_LEFT = frozenset({"state", "exit cause"})  # texts; numbers are aligned to the right


def _ranks(call: Call, context: Context) -> Steps:
    if words(call.args):
        raise UsageError("%ranks takes no arguments", "`%rank SPEC EXPR` runs code on some ranks")
    facts: Facts = yield Look()
    yield Say(table(context.world, facts))


def table(world: Sequence[RankView], facts: Facts) -> str:
    """One line per rank under a head, columns aligned."""
    rows = [_HEAD, *(_row(view, facts) for view in world)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(_aligned(row, widths) for row in rows)


def _row(view: RankView, facts: Facts) -> tuple[str, ...]:
    dead = view.state == "dead"
    rss = None if dead else facts.rss.get(view.rank)
    return (
        str(view.rank),
        "-" if view.pid is None else str(view.pid),
        view.state,
        "-" if view.seconds is None else f"{view.seconds:.2f} s",
        "-" if rss is None else megabytes(rss),
        view.cause if dead else "",
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (
        cell.ljust(width) if name in _LEFT else cell.rjust(width)
        for name, cell, width in zip(_HEAD, row, widths, strict=True)
    )
    return "  ".join(cells).rstrip() + "\n"


MAGICS = (Magic("ranks", "line", "a table of the ranks", _HELP, _ranks),)
