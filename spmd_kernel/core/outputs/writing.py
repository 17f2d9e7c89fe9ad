"""Stream text as it stands in JSON: what thousands of lines are neither decoded from nor encoded to.

Almost all text needs no escape but for its newlines.  That is seen by counting, and such text is
labelled and joined as the bytes that came.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..content import dumps, read

MESSAGE = 1_000_000  # bytes of one stream message; jupyter_server drops streams beyond 1 MB/s
WORTH = 1000  # bytes of a message from which on it pays
NEWLINE = b"\\n"  # as JSON escapes it
_HEAD = re.compile(rb'\{"name": ?"(stdout|stderr)", ?"text": ?"')
_FRAME = 100  # bytes of a message around its text


class Escaped:
    """Text of which nothing but the newlines is escaped: ``json``, as it stands there.

    ``lines`` are what newlines part; the last is not finished.
    """

    __slots__ = ("json", "lines")

    def __init__(self, json: str, lines: list[str]):
        self.json = json
        self.lines = lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def size(self) -> int:
        """Characters."""
        return len(self.json) - len(self.lines) + 1

    def without_first_line(self) -> Escaped:
        return Escaped(self.json.partition("\\n")[2], self.lines[1:])


def read_stream(content: bytes) -> tuple[str, Escaped] | None:
    """The name and the text of a stream message, if it is worth it and that simple."""
    if len(content) < WORTH or not content.endswith(b'"}'):
        return None
    head = _HEAD.match(content)
    if head is None or content.find(b'"', head.end()) < len(content) - 2:
        return None
    json = content[head.end() : -2].decode("utf-8", "surrogateescape")
    lines = json.split("\\n")
    if json.count("\\") != len(lines) - 1:  # some backslash is no newline's
        return None
    return head[1].decode(), Escaped(json, lines)


def text_of(content: bytes) -> bytes:
    """The text of a stream message, in UTF-8.  Raises `BadMessage`."""
    head = _HEAD.match(content)
    if head is not None and content.endswith(b'"}'):
        json = content[head.end() : -2]
        if json.count(b"\\") == json.count(NEWLINE):
            return json.replace(NEWLINE, b"\n")
    return read(content).text("text").encode("utf-8", "backslashreplace")


def escaped_lines(label: str, lines: Sequence[str]) -> bytes:
    """Complete lines, of which nothing needs an escape, with a label before each."""
    mark = label.encode()
    # To join one-byte characters is many times faster: so that is what the label's are, meanwhile.
    text = ("\\n" + mark.decode("latin-1")).join(lines)
    if text.isascii() or all(map(str.isascii, lines)):
        return b"".join((mark, text.encode("latin-1"), NEWLINE))
    text = ("\\n" + label).join(lines)
    return b"".join((mark, text.encode("utf-8", "surrogateescape"), NEWLINE))


class Writing:
    """The stream message that is being made: text in, contents out."""

    def __init__(self) -> None:
        self.stream = ""
        self._texts: list[str] = []  # not escaped yet
        self._parts: list[bytes] = []

    def add(self, text: str) -> None:
        self._texts.append(text)

    def add_escaped(self, raw: bytes) -> None:
        self._escape()
        self._parts.append(raw)

    def take(self) -> list[bytes]:
        """The contents of one message, or of several where it is too long."""
        self._escape()
        body = b"".join(self._parts)
        self._parts.clear()
        head, tail = b'{"name":' + dumps(self.stream) + b',"text":"', b'"}'
        self.stream = ""
        return [b"".join((head, piece, tail)) for piece in pieces(body, MESSAGE - _FRAME)]

    def _escape(self) -> None:
        if self._texts:
            self._parts.append(dumps("".join(self._texts))[1:-1])
            self._texts.clear()


def pieces(body: bytes, most: int) -> list[bytes]:
    """Parted at a line's end if there is one, else between two characters."""
    if len(body) <= most:
        return [body] if body else []
    found: list[bytes] = []
    start = 0
    while start < len(body):
        end = start + most
        if end < len(body):
            at = body.rfind(NEWLINE, start + most // 2, end)
            end = at + len(NEWLINE) if at >= 0 else _between_characters(body, start, end)
        found.append(body[start:end])
        start = end
    return found


def _between_characters(body: bytes, start: int, end: int) -> int:
    """The last place up to ``end`` that is inside no character of UTF-8 and no escape of JSON."""
    while body[end] & 0xC0 == 0x80:
        end -= 1
    last = body.rfind(b"\\", end - 6, end)
    if last >= 0:
        run = body[start : last + 1]
        begins = (len(run) - len(run.rstrip(b"\\"))) % 2  # an even number: escaped backslashes
        length = 6 if body[last + 1 : last + 2] == b"u" else 2
        if begins and last + length > end:
            return last
    return end
