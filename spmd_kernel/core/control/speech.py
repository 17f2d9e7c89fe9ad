"""A magic as a command: the same steps; what it would say in the cell is returned as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..conversation import Script
from ..errors import InternalError, SpmdError
from ..magics import MAGICS
from ..magics.base import Call, Page, Run, Say
from .base import Desk


def spoken(token: str, words: Iterable[str], desk: Desk) -> Script:
    """Play the magic ``token`` with these words for arguments."""
    call = Call(token, " ".join(map(quoted, words)))
    steps = MAGICS[token].run(call, desk.context)
    parts: list[str] = []
    result: Any = None
    error: SpmdError | None = None
    while True:
        try:
            want = steps.throw(error) if error is not None else steps.send(result)
        except StopIteration:
            return "".join(parts)
        result = error = None
        if isinstance(want, Say | Page):
            parts.append(want.text)
        elif isinstance(want, Run):
            raise InternalError(f"{token} runs code, which only a cell can")
        else:
            try:
                result = yield want
            except SpmdError as caught:
                error = caught


def quoted(word: str) -> str:
    """As `magics.arguments` reads it: nothing in it means anything."""
    return "'" + word.replace("'", "'\\''") + "'"
