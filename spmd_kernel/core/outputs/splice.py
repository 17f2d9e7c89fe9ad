"""Change one member of a JSON object and leave the others as the bytes that came.

A small one is parsed; of a large one the places are looked for in the bytes (`closed`), so that an
image of a megabyte is neither decoded nor encoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..content import Content, dumps
from ..errors import BadMessage
from .closed import LARGE, Spans, scan

_decode = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\n\r]*")
ERRORS = "surrogateescape"


class Parsed:
    """An object's members, and where each stands."""

    __slots__ = ("_raw", "_spans", "_text", "content")

    def __init__(self, raw: bytes):
        self._raw = memoryview(raw)
        try:
            if len(raw) > LARGE:
                self._text: str | None = None
                self.content, self._spans = scan(raw)
            else:
                self._text = raw.decode("utf-8", ERRORS)
                self.content, self._spans = _members(self._text)
        except (ValueError, IndexError, RecursionError) as error:
            raise BadMessage(f"content is not a JSON object: {error}") from None

    def _bytes(self, start: int, end: int) -> bytes | memoryview:
        if self._text is None:
            return self._raw[start:end]
        return self._text[start:end].encode("utf-8", ERRORS)

    def replaced(self, changes: Mapping[str, Any]) -> bytes:
        """The object with these members replaced or added."""
        members = {
            name: b"" if name in changes else self._bytes(*span)
            for name, span in self._spans.items()
        }
        members.update((name, dumps(value)) for name, value in changes.items())
        parts: list[bytes | memoryview] = []
        for name, raw in members.items():
            parts += (b",", dumps(name), b":", raw)
        return b"".join([b"{", *parts[1:], b"}"])  # the only copy


def _members(text: str) -> tuple[Content, Spans]:
    """The members of the object that ``text`` is, and where each stands in it."""
    content, spans = Content(), Spans()
    end = _expect(text, "{", _skip(text, 0))
    if text[end] != "}":
        while True:
            name, end = _decode(text, end)
            if not isinstance(name, str):
                raise ValueError("a name is not a string")
            start = _expect(text, ":", _skip(text, end))
            content[name], end = _decode(text, start)
            spans[name] = start, end
            end = _skip(text, end)
            if text[end] == "}":
                break
            end = _expect(text, ",", end)
    if _skip(text, end + 1) < len(text):
        raise ValueError(f"something follows at {end + 1}")
    return content, spans


def _expect(text: str, sign: str, at: int) -> int:
    """Where what follows ``sign`` begins."""
    if text[at] != sign:
        raise ValueError(f"no {sign!r} at {at}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
