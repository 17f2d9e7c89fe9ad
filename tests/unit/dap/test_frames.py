"""Frames of DAP in any pieces, and all that is none."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.dap.frames import LONGEST_HEADER, MOST, BadFrame, Frames, framed

BODIES = st.lists(st.binary(max_size=60) | st.binary(min_size=300, max_size=2000), max_size=6)


def packed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


def read(parts: list[bytes], frames: Frames | None = None) -> tuple[list[bytes], str]:
    """The bodies, and why there were no more."""
    frames, found = frames or Frames(), []
    try:
        for part in parts:
            for body in frames.feed(part):
                found.append(body)
    except BadFrame as error:
        return found, str(error)
    return found, ""


@given(BODIES, st.lists(st.integers(0, 10_000), max_size=30))
def test_any_pieces_give_the_same_bodies(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(packed, bodies))
    assert read(pieces(data, cuts)) == (bodies, "")


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_what_is_sent_can_be_read(message: dict[str, object]) -> None:
    ((body,), why) = read([framed(message)])
    assert json.loads(body) == message and not why


@given(BODIES, st.binary(min_size=1, max_size=100), st.lists(st.integers(0, 10_000), max_size=30))
def test_after_nonsense_nothing_is_read(
    bodies: list[bytes], nonsense: bytes, cuts: list[int]
) -> None:
    """The same good ones first, however it is cut, and the same reason."""
    data = b"".join(map(packed, bodies)) + nonsense + b"\x00" * LONGEST_HEADER
    if nonsense[:1].lower() == b"c":
        return
    whole = read([data])
    found, why = read(pieces(data, cuts))
    assert found == whole[0] == bodies
    assert why.startswith("no Content-Length header") and whole[1].startswith("no Content-Length")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"P",
        b"\n",
        b"\x16\x03\x01",
        b"Content-Type: application/json\r\n\r\n",
        b"Content-Length: 2\r\nContent-Type: x\r\n\r\n{}" + b" " * 40,
        b"Content-Length: -1\r\n\r\n" + b" " * 40,
        b"Content-Length: 0x10\r\n\r\n" + b" " * 40,
        b"Content-Length:\r\n\r\n" + b" " * 40,
        b"Content-Length: 1\n\n{}" + b" " * 40,
        b"Content-Length: 99999999999\r\n\r\n" + b" " * 40,
        b"Content-Length: " + b" " * 40,
    ],
)
def test_what_is_refused(data: bytes) -> None:
    found, why = read([data])
    assert found == [] and "no Content-Length header" in why


def test_http_is_refused_at_its_first_byte() -> None:
    for method in (b"GET", b"POST", b"OPTIONS", b"HEAD"):
        assert read([method[:1]])[1]


def test_a_header_may_come_byte_by_byte() -> None:
    data = packed(b"{}")
    frames = Frames()
    for place in range(len(data) - 1):
        assert list(frames.feed(data[place : place + 1])) == []
    assert list(frames.feed(data[-1:])) == [b"{}"]


def test_the_length_is_limited_before_anything_is_kept() -> None:
    assert read([b"Content-Length: %d\r\n\r\n" % MOST])[1] == ""
    assert "are the most" in read([b"Content-Length: %d\r\n\r\n" % (MOST + 1)])[1]
    frames = Frames(10)
    assert read([packed(b"x" * 10)], frames) == ([b"x" * 10], "")
    frames.most = 20
    assert read([packed(b"x" * 20)], frames) == ([b"x" * 20], "")
    assert "are the most" in read([packed(b"x" * 21)], frames)[1]


def test_a_long_message_in_many_pieces_takes_no_longer() -> None:
    body = b"x" * MOST
    data = packed(body)
    frames, found = Frames(), []
    for place in range(0, len(data), 64):
        found += frames.feed(data[place : place + 64])
    assert found == [body]
