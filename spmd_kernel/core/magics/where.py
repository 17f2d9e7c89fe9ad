"""``%where``: the Python stack of every rank."""

from __future__ import annotations

from ..errors import UsageError
from ..where import where
from .arguments import words
from .base import Call, Context, Magic, Say, Steps

_HELP = """\
%where

Where every rank is right now: its Python stack from the cell's line inwards, ranks at the same
place together. It asks the interpreter itself, so a rank answers while it is in C code, too.

A cell runs only when the one before it has ended, so this shows what ranks do beside cells (a
callback of a widget). While a cell runs, front ends that know this kernel ask for the same.

A cell whose ranks wait for each other in vain says so itself (%processes --watch).
"""


def _where(call: Call, context: Context) -> Steps:
    if words(call.args):
        raise UsageError("%where takes no arguments", "`%ranks` is a table of the ranks")
    found = yield from where(context.world, context.running_code, ())
    yield Say(found.text)


MAGICS = (Magic("where", "line", "the Python stack of every rank", _HELP, _where),)
