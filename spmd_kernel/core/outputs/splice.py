"""Change one member of a JSON object and leave the others as the bytes that came.

An image of a megabyte is parsed once to be looked at, and never encoded again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..content import Content, dumps
from ..errors import BadMessage

_decode = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\n\r]*")
ERRORS = "surrogateescape"


class Parsed:
    """An object's members, and where each stands in the text."""

    __slots__ = ("_ascii", "_spans", "_text", "content")

    def __init__(self, raw: bytes):
        self.content = Content()
        self._spans: dict[str, tuple[int, int]] = {}
        try:
            # Of ASCII, which images are, the places in the text are those in the bytes.
            self._ascii = raw if raw.isascii() else None
            self._text = raw.decode("ascii" if self._ascii else "utf-8", ERRORS)
            self._scan()
        except (ValueError, IndexError, RecursionError) as error:
            raise BadMessage(f"content is not a JSON object: {error}") from None

    def _scan(self) -> None:
        end = self._expect("{", 0)
        if self._text[end] == "}":
            return
        while True:
            name, end = _decode(self._text, end)
            if not isinstance(name, str):
                raise ValueError("a name is not a string")
            start = self._expect(":", end)
            self.content[name], end = _decode(self._text, start)
            self._spans[name] = (start, end)
            end = self._skip(end)
            if self._text[end] != ",":
                return
            end = self._expect(",", end)

    def _bytes(self, start: int, end: int) -> bytes:
        if self._ascii is not None:
            return self._ascii[start:end]
        return self._text[start:end].encode("utf-8", ERRORS)

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at

    def _expect(self, sign: str, at: int) -> int:
        at = self._skip(at)
        if self._text[at] != sign:
            raise ValueError(f"no {sign!r} at {at}")
        return self._skip(at + 1)

    def replaced(self, changes: Mapping[str, Any]) -> bytes:
        """The object with these members replaced or added."""
        members = {
            name: b"" if name in changes else self._bytes(*span)
            for name, span in self._spans.items()
        }
        members.update((name, dumps(value)) for name, value in changes.items())
        return b"{" + b",".join(dumps(name) + b":" + raw for name, raw in members.items()) + b"}"
