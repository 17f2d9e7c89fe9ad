"""What a dead rank had printed and perhaps not sent (`rank.words`)."""

from __future__ import annotations

from collections.abc import Iterator

from ..rank.words import CODEC, HEADER, ROOM, SIZE, START
from .base import LastWords

STREAMS = "stdout", "stderr"


def last_words(prefix: str) -> tuple[LastWords, ...]:
    """Those of the rank whose connection file is ``prefix`` + ``.json``; none, if it kept none."""
    return tuple(_read(prefix))


def _read(prefix: str) -> Iterator[LastWords]:
    for stream in STREAMS:
        try:
            with open(f"{prefix}.{stream}", "rb") as file:
                data = file.read(SIZE)
        except OSError:
            continue
        if len(data) == SIZE:
            half, used, before, msg_id = HEADER.unpack_from(data)
            now, then = (data[START + h % 2 * ROOM :][:ROOM] for h in (half, half + 1))
            yield LastWords(
                stream, _text(then[:before]), msg_id.rstrip(b"\0").decode("ascii", "replace"),
                _text(now[:used]),
            )  # fmt: skip


def _text(data: bytes) -> str:
    """A rank is no friend: it may have written anything there."""
    try:
        return data.decode(*CODEC)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
