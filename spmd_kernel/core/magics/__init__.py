"""Our magics.  One file each: a module of this package with ``MAGICS`` in it is found by itself."""

from __future__ import annotations

import re
import sys

from ..found import offered
from .base import HELP_WORDS, Magic
from .split import Plan, split
from .split import what_runs as _what_runs

__all__ = ["MAGICS", "Plan", "completions", "help_for", "split", "what_runs"]


MAGICS: dict[str, Magic] = {
    magic.token: magic for magic in offered(sys.modules[__name__], "MAGICS")
}
"""By token: ``%processes``, ``%rank``, ``%%rank``, …"""


def what_runs(code: str, language: str) -> str:
    """The text that ranks get of a cell."""
    return _what_runs(code, MAGICS, language) if "%" in code else code


def help_for(name: str) -> str | None:
    """The help of a magic as written (``%rank``, ``%%rank``); ``None`` if it is none of ours."""
    magic = MAGICS.get(name) or MAGICS.get("%" + name if name.startswith("%") else "")
    return magic.help if magic else None


def completions(line_prefix: str) -> list[str]:
    """What the last word of ``line_prefix`` (a line up to the cursor) may become.

    Each replaces that whole word, from after the last blank up to the cursor.
    """
    *before, word = re.split(r"\s+", line_prefix.lstrip())
    if not before:
        return [token for token in MAGICS if _continues(token, word)]
    magic = MAGICS.get(before[0])
    if magic is None or (len(before) > 1 and not magic.options):
        return []
    return [item for item in _arguments(magic, before[1:]) if item.startswith(word)]


def _continues(token: str, word: str) -> bool:
    """``%ra`` may become ``%%rank`` too, as with IPython's own cell magics."""
    return word.startswith("%") and (token.startswith(word) or token.startswith("%" + word))


def _arguments(magic: Magic, given: list[str]) -> list[str]:
    """What may follow the words given: the values of the last option, else all that is left."""
    for option in magic.options:
        if given and given[-1] == option.name and option.metavar:
            return list(option.values)
    names = [option.name for option in magic.options]
    valued = [f"{option.name}={value}" for option in magic.options for value in option.values]
    words = [] if any(word in magic.words or word.isdigit() for word in given) else magic.words
    return [*words, *names, HELP_WORDS[0], *valued]
