"""``%%timeout SECONDS``: a cell that is interrupted when it takes too long."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import UsageError
from . import rank
from .arguments import expand, parse, words
from .base import Call, Context, Magic, Option, Run, Steps

_HELP = f"""\
%%timeout SECONDS [--on SPEC]
code

Run a cell; when SECONDS are over and ranks are still at work, interrupt it as Stop does. The cell
then fails with a TimeLimit that names these ranks, also where the code itself has caught its
KeyboardInterrupt: a notebook that runs by itself stops there. It is the first line of the cell.
The body may begin with other cell magics (%%time, %%capture …), which the ranks run as usual.

  --on SPEC   run it on these ranks only, as %%rank SPEC does

{rank.SPEC_HELP}

Examples:
  %%timeout 60
  loss = train()

  %%timeout 0.5 --on 0
  probe()
"""

_HINT = "write `%%timeout 60`, a number of seconds"
_MOST = 10**9  # seconds


def _timeout(call: Call, context: Context) -> Steps:
    given = yield from expand(words(call.args), context)
    arguments = parse(given, TIMEOUT)
    seconds = _seconds(arguments.positional)
    ranks = yield from rank.chosen((arguments.last("--on") or "all",), context)
    yield Run(ranks, call.body, seconds)


def _seconds(given: Sequence[str]) -> float:
    if len(given) != 1:
        raise UsageError("%%timeout needs one number of seconds", _HINT)
    try:
        seconds = float(given[0])
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MOST:
        raise UsageError(f"%%timeout {given[0]}: not a number of seconds above 0", _HINT)
    return seconds


TIMEOUT = Magic(
    "timeout",
    "cell",
    "end a cell that takes too long",
    _HELP,
    _timeout,
    (Option("--on", "SPEC"),),
)
MAGICS = (TIMEOUT,)
