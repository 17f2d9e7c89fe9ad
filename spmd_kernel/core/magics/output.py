"""``%output``: what one rank said in the last cell, also where the notebook does not show it."""

from __future__ import annotations

from ..errors import UsageError
from . import spec
from .arguments import expand, words
from .base import Call, Context, Magic, Say, Steps
from .wording import name_ranks

_HELP = """\
%output R

What rank R said in the last cell that ran on ranks, as it said it: unlabelled, not folded, also
where `%processes --show` hides it. The end of it (256 kB) is kept. Figures and tables are shown as
their plain text. -1 is the last rank; several ranks (0,2-3; all) come one after the other.

Examples:
  %output 3
  %output all

To keep all of it in files: %processes --log-dir DIR.
"""


def _output(call: Call, context: Context) -> Steps:
    given = yield from expand(words(call.args), context)
    if len(given) != 1:
        raise UsageError("%output needs one rank", "write `%output 0`")
    ranks = spec.parse(given[0], len(context.world))
    for rank in ranks:
        head = f"── rank {rank} ──\n" if len(ranks) > 1 else ""
        yield Say(head + (context.said(rank) or f"{name_ranks([rank])} said nothing\n"))


MAGICS = (Magic("output", "line", "what a rank said in the last cell", _HELP, _output),)
