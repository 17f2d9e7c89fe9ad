"""``%%rank SPEC`` (a cell) and ``%rank SPEC EXPR`` (a line): code on some ranks only."""

from __future__ import annotations

import ast
from collections.abc import Generator
from typing import Any

from ..errors import RankLost, UsageError
from ..model import Rank
from . import spec
from .arguments import Word, expand, first_word, words
from .base import Ask, Call, Context, Magic, Run, Steps
from .wording import name_ranks

SPEC_HELP = """\
SPEC names ranks:
  0        rank 0
  0,2-3    ranks 0, 2 and 3
  -1       the last rank; -2--1 the last two
  all      every rank
  {expr}   the value of a Python expression on rank 0: a number, a text such as the above,
           or a list of numbers"""

_CELL_HELP = f"""\
%%rank SPEC
code

Run a cell on some ranks only. It is the first line of the cell. The other ranks do not run it.
The body may begin with other cell magics (%%time, %%capture …), which those ranks run as usual.

{SPEC_HELP}

Examples:
  %%rank 0
  model.save("model.pt")

  %%rank 1-3
  %%time
  work()

A line for some ranks: %rank SPEC EXPR. Which ranks there are: %ranks.
"""

_LINE_HELP = f"""\
%rank SPEC EXPR

Run one line on some ranks only and show its value. It counts before the first other statement of
a cell; what follows it in the cell runs on every rank.

{SPEC_HELP}

Examples:
  %rank 0 len(dataset)
  %rank -1 !nvidia-smi

A whole cell for some ranks: %%rank SPEC. Which ranks there are: %ranks.
"""


def _cell(call: Call, context: Context) -> Steps:
    ranks = yield from chosen(_joined(words(call.args)), context)
    yield Run(ranks, call.body)


def _line(call: Call, context: Context) -> Steps:
    word, code = first_word(call.args)
    if not code and word:
        raise UsageError("%rank needs code after the ranks", "write `%rank 0 EXPR`")
    ranks = yield from chosen(word or (), context)
    yield Run(ranks, code)


def _joined(parts: list[Word]) -> Word:
    """``0, 2-3`` is one SPEC; spaces matter only where a comma is missing."""
    joined: list[Any] = []
    for part in parts:
        joined += [" ", *part]
    return tuple(joined[1:])


def chosen(word: Word, context: Context) -> Generator[Ask, Any, tuple[Rank, ...]]:
    """The ranks that a SPEC names, all of them alive. Raises `UsageError` and `RankLost`."""
    (text,) = yield from expand([word], context)
    if not context.world:
        raise RankLost("no rank runs", "`%processes N` starts N ranks")
    ranks = spec.parse(flat(text), len(context.world))
    dead = {view.rank: view.cause for view in context.world if view.state == "dead"}
    if lost := [rank for rank in ranks if rank in dead]:
        causes = "; ".join(dict.fromkeys(dead[rank] for rank in lost if dead[rank]))
        verb = "is" if len(lost) == 1 else "are"
        raise RankLost(
            f"{name_ranks(lost)} {verb} dead{causes and f': {causes}'}",
            "`%restart dead` brings back the dead, the others keep their variables",
        )
    return ranks


def flat(text: str) -> str:
    """``[0, 2]`` (what an expression may give) as ``0,2``."""
    if not text.startswith(("[", "(", "{")):
        return text
    try:
        return ",".join(map(str, ast.literal_eval(text)))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return text


MAGICS = (
    Magic("rank", "cell", "run a cell on some ranks only", _CELL_HELP, _cell, words=("all",)),
    Magic("rank", "line", "run a line on some ranks only", _LINE_HELP, _line, words=("all",)),
)
