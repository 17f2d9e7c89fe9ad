"""Messages of the Debug Adapter Protocol in a stream of bytes, in whatever pieces it comes.

Specification: "Base Protocol".  A message is ``Content-Length: N``, an empty line, and N bytes of JSON.
Nothing else is read: no other header, so that what a browser can be made to send (an HTTP request) is
refused at its first byte, and no length above a limit, so that nobody is kept waiting for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..content import dumps
from ..errors import BadMessage

MOST = 4 << 20  # bytes of one message
NAME = b"content-length:"
HEADER = re.compile(rb"content-length:[ \t]*(\d{1,10})[ \t]*\r\n\r\n", re.IGNORECASE)
LONGEST_HEADER = 48  # bytes; what does not end by then is none


class BadFrame(BadMessage):
    """What came is not this protocol; there is no way to find the next message."""


class Frames:
    """One direction of one connection.  ``most`` may grow later."""

    def __init__(self, most: int = MOST):
        self.most = most
        self._buffer = bytearray()
        self._length: int | None = None  # of the body that is awaited

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are complete with ``data``. Raises `BadFrame`, after those that were good."""
        self._buffer += data
        while (body := self._next()) is not None:
            yield body

    def _next(self) -> bytes | None:
        if self._length is None:
            self._length = self._header()
        if self._length is None or len(self._buffer) < self._length:
            return None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        self._length = None
        return body

    def _header(self) -> int | None:
        start = bytes(self._buffer[:LONGEST_HEADER])
        found = HEADER.match(start)
        if found is None:
            known = min(len(start), len(NAME))
            if start[:known].lower() != NAME[:known] or len(start) == LONGEST_HEADER:
                raise BadFrame(f"no Content-Length header: {start[:24]!r}")
            return None
        length = int(found[1])
        if length > self.most:
            raise BadFrame(f"a message of {length} bytes, where {self.most} are the most")
        del self._buffer[: found.end()]
        return length


def framed(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent."""
    body = dumps(message)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
