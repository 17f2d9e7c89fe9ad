"""JSON content: raw bytes in, typed reads out.

ipykernel encodes text with ``surrogateescape`` (``print('\\udcff')`` really sends the byte ff),
so that is how we read and write it too: what a rank sent leaves as it came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import BadMessage


def dumps(value: Any) -> bytes:
    """Compact JSON as ipykernel writes it; lone surrogates that no encoding takes are escaped."""
    try:
        return _ENCODE(value).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_DECODE = json.JSONDecoder().decode


def loads(raw: bytes) -> Any:
    """Parse JSON bytes. Raises `BadMessage` on anything that is not JSON."""
    try:
        return _DECODE(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"content is not JSON: {error}") from None


def execute_content(
    code: str, *, silent: bool, user_expressions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """An execute_request of ours; silent, neither count nor history nor ``_`` change."""
    return {
        "code": code,
        "silent": silent,
        "store_history": not silent,
        "user_expressions": dict(user_expressions or {}),
        "allow_stdin": False,
        "stop_on_error": False,
    }


class Content(dict[str, Any]):
    """The content of one message.  A field of the wrong type is the sender's fault: `BadMessage`."""

    def _typed(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        value = self.get(key, default)
        if value is None and default is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise BadMessage(f"{key!r} has type {type(value).__name__}")
        return value

    def text(self, key: str, default: str | None = "") -> str:
        value: str = self._typed(key, str, default)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.get(key, default))

    def integer(self, key: str, default: int = 0) -> int:
        value: int = self._typed(key, int, default)
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value: dict[str, Any] = self._typed(key, dict, {})
        return value

    def items_of(self, key: str) -> list[Any]:
        value: list[Any] = self._typed(key, list, [])
        return value

    def expression(self, name: str) -> Content:
        """Of an execute_reply: the result of one user expression; empty if there is none."""
        return Content(Content(self.mapping("user_expressions")).mapping(name))

    def plain(self) -> str:
        """Of a result: its text/plain."""
        return Content(self.mapping("data")).text("text/plain")


def read(raw: bytes) -> Content:
    """The content as a mapping with typed reads. Raises `BadMessage`."""
    value = loads(raw)
    if not isinstance(value, Mapping):
        raise BadMessage(f"content is a {type(value).__name__}, not an object")
    return Content(value)


def is_true(reply: Content | None, name: str) -> bool:
    """Whether a rank replied, and this user expression of the request was True."""
    try:
        return reply is not None and reply.expression(name).plain() == "True"
    except BadMessage:
        return False
