"""Large values of a display: found in the bytes, compared as bytes, passed on, never decoded.

To decode 200 MB takes two more copies of it, and to write it again three.  So in a large content the
places of its members are looked for, and a long value in ``data`` stays `Closed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..content import Content, loads

LARGE = 100_000  # bytes of a content in which values may stay closed
LONG = 50_000  # bytes of such a value
_QUOTE, _BACKSLASH = b'"\\'
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_WHOLE_STRING = re.compile(_STRING, re.DOTALL)
_INSIDE = rb'[^"{}\[\]]++|' + _STRING
for _ in range(2):  # brackets in brackets that the interpreter need not count
    _INSIDE += rb"|[{\[](?:" + _INSIDE + rb")*+[}\]]"
_TO_BRACKET = re.compile(rb"(?:" + _INSIDE + rb")*+([{}\[\]])", re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]+")
_SPACE = re.compile(rb"\s*")

Spans = dict[str, tuple[int, int]]


class Closed:
    """The JSON of one value, as it stands in the bytes of a content; equal to what has the same bytes."""

    __slots__ = ("_raw", "_span")

    def __init__(self, raw: bytes, start: int, end: int):
        self._raw = raw
        self._span = start, end

    @property
    def json(self) -> memoryview:
        return memoryview(self._raw)[slice(*self._span)]

    def value(self) -> Any:
        return loads(self._raw[slice(*self._span)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Closed):
            return NotImplemented
        json = other.json
        # `memcmp`; two memoryviews would be compared item by item.
        return len(json) == len(self.json) and self._raw.startswith(json, self._span[0])

    def __hash__(self) -> int:
        return hash((len(self.json), bytes(self.json[-1000:])))


def opened(data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` with every value decoded."""
    return {
        mime: value.value() if isinstance(value, Closed) else value for mime, value in data.items()
    }


def scan(raw: bytes) -> tuple[Content, Spans]:
    """The members of a JSON object and where they stand.  Raises `ValueError` and `IndexError`.

    Long values in ``data`` are `Closed`, but text/plain, to which labels may be added.
    """
    content, spans, data = Content(), Spans(), dict[str, Any]()

    def member(name: str, start: int) -> int:
        if name == "data" and raw[start] == b"{"[0]:
            data.clear()
            end, content[name] = _walk(raw, start, mime), data
        else:
            end = _end_of_value(raw, start)
            content[name] = loads(raw[start:end])
        spans[name] = start, end
        return end

    def mime(name: str, start: int) -> int:
        end = _end_of_value(raw, start)
        is_closed = end - start > LONG and name != "text/plain"
        data[name] = Closed(raw, start, end) if is_closed else loads(raw[start:end])
        return end

    end = _walk(raw, _skip(raw, 0), member)
    if _skip(raw, end) < len(raw):
        raise ValueError(f"something follows at {end}")
    return content, spans


def _walk(raw: bytes, at: int, visit: Callable[[str, int], int]) -> int:
    """``visit(name, start)`` for each member of the object at ``at``; the end of it, as `visit`'s."""
    at = _after(raw, b"{", at)
    if raw[at] == b"}"[0]:
        return at + 1
    while True:
        end = _end_of_string(raw, at)
        start = _after(raw, b":", _skip(raw, end))
        at = _skip(raw, visit(loads(raw[at:end]), start))
        if raw[at] == b"}"[0]:
            return at + 1
        at = _after(raw, b",", at)


def _end_of_value(raw: bytes, at: int) -> int:
    if raw[at] == _QUOTE:
        return _end_of_string(raw, at)
    if raw[at] not in b"{[":
        return _found(_SCALAR.match(raw, at)).end()
    depth, at = 1, at + 1
    while depth:
        bracket = _found(_TO_BRACKET.match(raw, at))
        depth += 1 if bracket[1] in b"{[" else -1
        at = bracket.end()
    return at


def _end_of_string(raw: bytes, at: int) -> int:
    if raw[at] == _QUOTE:
        end = raw.find(b'"', at + 1)
        if end > 0 and raw[end - 1] != _BACKSLASH:
            return end + 1  # no escape before the first quote, and so none of a quote
    return _found(_WHOLE_STRING.match(raw, at)).end()


def _found(match: re.Match[bytes] | None) -> re.Match[bytes]:
    if match is None:
        raise ValueError("not JSON")
    return match


def _skip(raw: bytes, at: int) -> int:
    return _found(_SPACE.match(raw, at)).end()


def _after(raw: bytes, sign: bytes, at: int) -> int:
    if raw[at] != sign[0]:
        raise ValueError(f"no {sign.decode()!r} at {at}")
    return _skip(raw, at + 1)
