"""Change one member of a JSON object and leave the others as the bytes that came.

An image of a megabyte is parsed once to be looked at, and never encoded again.  Its text is found by
looking for the closing quote, as `json` would take a millisecond to look at every character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed lacks it
from typing import Any

from ..content import Content, dumps
from ..errors import BadMessage
from .closed import LARGE, scan

_decode = json.JSONDecoder().raw_decode
_LONG = 10_000  # characters of a string from which on it pays to look for its end
_SPACE = re.compile(r"[ \t\n\r]*")
ERRORS = "surrogateescape"


class Parsed:
    """An object's members, and where each stands in the text."""

    __slots__ = ("_ascii", "_spans", "_text", "content")

    def __init__(self, raw: bytes):
        try:
            # Of ASCII, which images are, the places in the text are those in the bytes.
            is_large = len(raw) > LARGE
            self._ascii = memoryview(raw) if is_large or raw.isascii() else None
            if is_large:
                self._text = ""
                self.content, self._spans = scan(raw)
                return
            self._text = raw.decode("ascii" if self._ascii else "utf-8", ERRORS)
            members, end = _object(self._text, _skip(self._text, 0), deep=True)
            if _skip(self._text, end) < len(self._text):
                raise ValueError(f"something follows at {end}")
        except (ValueError, IndexError, RecursionError) as error:
            raise BadMessage(f"content is not a JSON object: {error}") from None
        self._spans = {name: (start, end) for name, (_, start, end) in members.items()}
        self.content = Content({name: value for name, (value, _, _) in members.items()})

    def _bytes(self, start: int, end: int) -> bytes | memoryview:
        if self._ascii is not None:
            return self._ascii[start:end]
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


def _object(text: str, at: int, *, deep: bool) -> tuple[dict[str, tuple[Any, int, int]], int]:
    """Value and place of each member of the object at ``at``, and where the object ends.

    ``deep``: long texts are found fast also one object further in, as in the data of a display.
    """
    members: dict[str, tuple[Any, int, int]] = {}
    end = _expect(text, "{", at)
    if text[end] == "}":
        return members, end + 1
    while True:
        name, end = _decode(text, end)
        if not isinstance(name, str):
            raise ValueError("a name is not a string")
        start = _expect(text, ":", _skip(text, end))
        value, end = _value(text, start, deep)
        members[name] = (value, start, end)
        end = _skip(text, end)
        if text[end] == "}":
            return members, end + 1
        end = _expect(text, ",", end)


def _value(text: str, start: int, deep: bool) -> tuple[Any, int]:
    if text[start] == '"':
        return _string(text, start)
    if deep and text[start] == "{" and len(text) > _LONG:
        members, end = _object(text, start, deep=False)
        return {name: value for name, (value, _, _) in members.items()}, end
    return _decode(text, start)


def _string(text: str, start: int) -> tuple[str, int]:
    end = text.find('"', start + 1)
    if end - start < _LONG:
        value, end = _decode(text, start)
        return str(value), end
    escape = text.find("\\", start + 1, end)
    if escape < 0:
        return text[start + 1 : end], end + 1
    tail, end = scanstring(text, escape)  # the newline that ends base64 comes late
    return text[start + 1 : escape] + tail, end


def _expect(text: str, sign: str, at: int) -> int:
    """Where what follows ``sign`` begins."""
    if text[at] != sign:
        raise ValueError(f"no {sign!r} at {at}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
