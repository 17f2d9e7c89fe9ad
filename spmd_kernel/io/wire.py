"""The Jupyter wire protocol: zmq frames <-> `Message`, signed.

https://jupyter-client.readthedocs.io/en/stable/messaging.html#the-wire-protocol

    idents…, <IDS|MSG>, signature, header, parent_header, metadata, content, buffers…

``content`` is signed and carried as the bytes it is; only the three small objects are parsed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import zmq

from ..core import content as json
from ..core.errors import BadMessage, UsageError
from ..core.model import Buffer, Header, Message

DELIMITER = b"<IDS|MSG>"
PROTOCOL_VERSION = "5.4"
_EMPTY = b"{}", b"null"
MAX_DEPTH = 64  # of header, parent and metadata: what was parsed must also be writable again

Frame = bytes | zmq.Frame


class Wire:
    """One key, one session: what unpacks, signs and composes messages.

    ``remember`` bounds the memory of signatures seen, which a replayed message is known by; 0 turns
    it off (private sockets towards ranks).  An empty key means unsigned, as in jupyter_client.
    Raises `UsageError` for a signature scheme that does not exist.
    """

    def __init__(
        self, key: bytes, scheme: str = "hmac-sha256", session: str = "", remember: int = 4096
    ) -> None:
        self.session = session or secrets.token_hex(16)
        self._pads = _pads(key, scheme) if key else None
        self._username = os.environ.get("USER", "username")
        self._id_prefix = f"{self.session}_{secrets.token_hex(4)}_"  # wires may share a session
        self._ids = count()
        self._replays = _Replays(remember)
        # What a request brings about names it as its parent, message after message.
        self._read_parent: tuple[bytes, Header] = b"{}", {}
        self._written_parent: tuple[Header, bytes] = {}, b"{}"

    def unpack(self, frames: Sequence[Frame]) -> tuple[tuple[bytes, ...], Message]:
        """Idents and message. Raises `BadMessage`, and nothing else, whatever the frames hold."""
        idents, body = _split(frames)
        signature, header, parent, metadata, content = map(_bytes, body[:5])
        self._authenticate(signature, header, parent, metadata, content)
        message = Message(
            _header(header),
            self._parent(parent),
            _object("metadata", metadata) if metadata not in _EMPTY else {},
            content,
            tuple(map(_buffer, body[5:])) if len(body) > 5 else (),
        )
        return idents, message

    def _parent(self, raw: bytes) -> Header:
        if raw in _EMPTY:
            return {}
        if raw != self._read_parent[0]:
            self._read_parent = raw, _object("parent_header", raw)
        return self._read_parent[1]

    def pack(self, message: Message) -> list[bytes | memoryview]:
        """The frames of a message, its header as it is, from the delimiter on; idents go before."""
        header = json.dumps(dict(message.header))
        if message.parent and message.parent is not self._written_parent[0]:
            self._written_parent = message.parent, json.dumps(dict(message.parent))
        parent = self._written_parent[1] if message.parent else b"{}"
        metadata = json.dumps(dict(message.metadata)) if message.metadata else b"{}"
        signature = self._sign(header, parent, metadata, message.content)
        frames = [DELIMITER, signature, header, parent, metadata, message.content]
        return [*frames, *message.buffers]

    def compose(
        self,
        msg_type: str,
        content: bytes,
        parent: Header,
        metadata: Mapping[str, Any],
        buffers: Sequence[Buffer] = (),
        msg_id: str = "",
    ) -> Message:
        """A message of our own, with a fresh header."""
        header = {
            "msg_id": msg_id or f"{self._id_prefix}{next(self._ids)}",
            "msg_type": msg_type,
            "session": self.session,
            "username": self._username,
            "date": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "version": PROTOCOL_VERSION,
        }
        return Message(header, parent, metadata, content, tuple(buffers))

    def _sign(self, header: bytes, parent: bytes, metadata: bytes, content: bytes) -> bytes:
        if self._pads is None:
            return b""
        inner, outer = self._pads[0].copy(), self._pads[1].copy()
        inner.update(b"".join((header, parent, metadata)))
        inner.update(content)  # apart: it may be 200 MB, and joining would copy it
        outer.update(inner.digest())
        return outer.hexdigest().encode()

    def _authenticate(self, signature: bytes, *parts: bytes) -> None:
        if self._pads is None:
            return
        if not signature:
            raise BadMessage("unsigned message")
        if not hmac.compare_digest(signature, self._sign(*parts)):
            raise BadMessage("wrong signature")
        # Only what is genuine is remembered, or a stranger could make us forget.
        if not self._replays.first_time(signature):
            raise BadMessage("replayed message")


class _Replays:
    """The last ``limit`` signatures, oldest out first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: set[bytes] = set()
        self._order: deque[bytes] = deque()

    def first_time(self, signature: bytes) -> bool:
        if not self._limit:
            return True
        if signature in self._seen:
            return False
        if len(self._order) == self._limit:
            self._seen.remove(self._order.popleft())
        self._seen.add(signature)
        self._order.append(signature)
        return True


def _pads(key: bytes, scheme: str) -> tuple[hashlib._Hash, hashlib._Hash]:
    """The inner and outer hash of RFC 2104, keyed: copying them is cheaper than `hmac.HMAC.copy`."""
    algorithm = scheme.removeprefix("hmac-")
    try:
        if algorithm == scheme:
            raise ValueError(scheme)
        hmac.new(key, digestmod=algorithm).digest()
        inner, outer = hashlib.new(algorithm), hashlib.new(algorithm)
    except (ValueError, TypeError):
        raise UsageError(
            f"signature scheme {scheme!r} of the connection file is not supported",
            "hmac-sha256 is what every Jupyter client writes",
        ) from None
    if len(key) > inner.block_size:
        key = hashlib.new(algorithm, key).digest()
    key = key.ljust(inner.block_size, b"\0")
    inner.update(bytes(byte ^ 0x36 for byte in key))
    outer.update(bytes(byte ^ 0x5C for byte in key))
    return inner, outer


def _split(frames: Sequence[Frame]) -> tuple[tuple[bytes, ...], Sequence[Frame]]:
    if len(frames) > 6 and frames[1] == DELIMITER:  # one ident, or a topic: nearly all messages
        return (_bytes(frames[0]),), frames[2:]
    for at, frame in enumerate(frames):
        if len(frame) == len(DELIMITER) and _bytes(frame) == DELIMITER:
            body = frames[at + 1 :]
            if len(body) < 5:
                raise BadMessage(f"truncated message: {len(body)} of 5 frames")
            return tuple(map(_bytes, frames[:at])), body
    raise BadMessage("no <IDS|MSG> delimiter")


def _bytes(frame: Frame) -> bytes:
    return frame if isinstance(frame, bytes) else frame.bytes


def _buffer(frame: Frame) -> Buffer:
    """A frame that libzmq holds is not copied."""
    return frame if isinstance(frame, bytes) else frame.buffer


def _object(name: str, raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except BadMessage:
        raise BadMessage(f"{name} is not JSON") from None
    if not isinstance(value, dict):
        raise BadMessage(f"{name} is a {type(value).__name__}, not an object")
    # Few brackets cannot be deep; counting them is all that an ordinary message pays.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise BadMessage(f"{name} is nested too deeply")
    return value


def _deeper(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return False
    return not depth or any(_deeper(child, depth - 1) for child in value)


def _header(raw: bytes) -> dict[str, Any]:
    header = _object("header", raw)
    for key in ("msg_id", "msg_type"):
        if not isinstance(header.get(key), str):
            raise BadMessage(f"header has no {key}")
    return header
