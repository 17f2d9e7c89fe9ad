"""The wire against jupyter_client's session, both ways, and everything that is no message."""

from __future__ import annotations

import json
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.session import Session

from spmd_kernel.core import content
from spmd_kernel.core.errors import BadMessage, UsageError
from spmd_kernel.core.model import Message
from spmd_kernel.io.wire import DELIMITER, Wire

KEY = b"key"
HEADER = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "version": "5.3"}


def oracle() -> Session:
    return Session(key=KEY, packer="json", unpacker="json", digest_history_size=0)


scalars = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
# Surrogates U+DC80..DCFF are how both sides carry bytes that are no UTF-8.
raw_bytes = st.text(st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
numbers = st.integers(-(2**70), 2**70)
values = st.recursive(
    scalars | numbers, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=8
)
objects = st.dictionaries(st.text(), values, max_size=4)
buffers = st.lists(st.binary(max_size=100), max_size=3)
idents = st.lists(st.binary(min_size=1, max_size=8), max_size=2)


@given(objects, objects, buffers, idents)
def test_reads_what_jupyter_client_writes(
    body: dict[str, Any], metadata: dict[str, Any], buffers: list[bytes], idents: list[bytes]
) -> None:
    session = oracle()
    parent = session.msg_header("execute_request")
    sent = session.msg("display_data", body, parent, metadata=metadata)
    frames = [*session.serialize(sent, idents), *buffers]
    got_idents, message = Wire(KEY).unpack(frames)
    assert got_idents == tuple(idents)
    assert (message.msg_type, message.msg_id) == ("display_data", sent["header"]["msg_id"])
    assert message.parent_id == parent["msg_id"]
    assert message.metadata == metadata
    assert content.read(message.content) == body
    assert message.buffers == tuple(buffers)


@given(objects, objects, buffers)
def test_jupyter_client_reads_what_we_write(
    body: dict[str, Any], metadata: dict[str, Any], buffers: list[bytes]
) -> None:
    session, wire = oracle(), Wire(KEY, session="ours")
    parent = {**HEADER, "msg_id": "naïve"}
    message = wire.compose("display_data", content.dumps(body), parent, metadata, buffers)
    frames = wire.pack(message)
    _, body_frames = session.feed_identities(frames)
    got = session.deserialize(body_frames)
    assert (got["msg_type"], got["msg_id"]) == ("display_data", message.msg_id)
    assert got["header"]["session"] == "ours"
    assert got["header"]["date"].utcoffset().total_seconds() == 0
    assert got["parent_header"]["msg_id"] == "naïve"
    assert (got["metadata"], got["content"]) == (metadata, body)
    assert [bytes(b) for b in got["buffers"]] == buffers


@given(st.lists(objects, min_size=1, max_size=5))
def test_messages_of_several_parents_in_turn_name_their_own(parents: list[dict[str, Any]]) -> None:
    wire, reader = Wire(KEY), Wire(KEY)
    for parent in (*parents, parents[0], {}):
        for _ in range(2):  # what one request brings about
            frames = wire.pack(wire.compose("status", b"{}", parent, {}))
            assert reader.unpack([b"topic", *frames])[1].parent == parent


@given(raw_bytes)
def test_bytes_that_are_no_text_arrive_as_they_left(text: str) -> None:
    session = oracle()
    frames = session.serialize(session.msg("stream", {"text": text}, metadata={"m": text}))
    _, message = Wire(KEY).unpack(frames)
    again = Wire(KEY).pack(message)
    assert again[5] == frames[5]
    assert again[4] == frames[4].replace(b": ", b":")


@given(st.lists(st.binary(max_size=20) | st.just(DELIMITER) | st.just(b"{}"), max_size=9))
def test_any_frames_are_a_message_or_a_bad_message(frames: list[bytes]) -> None:
    for key in (b"", KEY):
        with pytest.raises(BadMessage):
            Wire(key).unpack(frames)


def test_special_numbers_and_lone_surrogates_survive_a_round_trip() -> None:
    wire = Wire(KEY)
    metadata = {"big": 2**70, "lone": "\ud800", "inf": float("inf"), "byte": "\udcff"}
    _, got = Wire(KEY).unpack(wire.pack(Message(HEADER, HEADER, metadata, b'{"x":NaN}')))
    assert (got.header, got.parent, got.metadata) == (HEADER, HEADER, metadata)
    assert got.content == b'{"x":NaN}'


def signed(*parts: bytes) -> list[bytes]:
    """A well signed message of four parts, whatever they are."""
    return [DELIMITER, oracle().sign(list(parts)), *parts]


GOOD = json.dumps(HEADER).encode()
DEEP = b"[" * 100_000 + b"]" * 100_000
BAD_PARTS = {
    "header is not JSON": (b"{", b"{}", b"{}", b"{}"),
    "header is a list": (b"[]", b"{}", b"{}", b"{}"),
    "header is null": (b"null", b"{}", b"{}", b"{}"),
    "header is empty": (b"", b"{}", b"{}", b"{}"),
    "no msg_id": (b'{"msg_type":"a"}', b"{}", b"{}", b"{}"),
    "msg_id is a number": (b'{"msg_type":"a","msg_id":1}', b"{}", b"{}", b"{}"),
    "no msg_type": (b'{"msg_id":"a"}', b"{}", b"{}", b"{}"),
    "msg_type is null": (b'{"msg_id":"a","msg_type":null}', b"{}", b"{}", b"{}"),
    "header too deep": (b'{"msg_id":"a","msg_type":"b","x":%s}' % DEEP, b"{}", b"{}", b"{}"),
    "header just too deep": (
        b'{"msg_id":"a","msg_type":"b","x":%s}' % (b"[" * 64 + b"]" * 64),
        b"{}",
        b"{}",
        b"{}",
    ),
    "number too long": (b'{"msg_id":"a","msg_type":"b","x":%s}' % (b"1" * 9999), *[b"{}"] * 3),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, b"{}", b"{}", b"{}"),
    "parent is a list": (GOOD, b"[]", b"{}", b"{}"),
    "parent is not JSON": (GOOD, b"\xff", b"{}", b"{}"),
    "metadata is text": (GOOD, b"{}", b'"x"', b"{}"),
    "metadata too deep": (GOOD, b"{}", DEEP, b"{}"),
}


@pytest.mark.parametrize("parts", BAD_PARTS.values(), ids=BAD_PARTS.keys())
def test_signed_nonsense_is_a_bad_message(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(BadMessage):
        Wire(KEY).unpack(signed(*parts))


def test_depth_that_is_allowed_can_be_written_again() -> None:
    metadata = b'{"x":%s}' % (b"[" * 62 + b"]" * 62)
    wide = b'{"x":[%s]}' % b",".join([b"[]"] * 500)
    for part in (metadata, wide):
        _, message = Wire(KEY).unpack(signed(GOOD, b"{}", part, b"{}"))
        assert Wire(KEY).pack(message)[4] == part


def test_null_parent_is_no_parent() -> None:
    _, message = Wire(KEY).unpack(signed(GOOD, b"null", b"null", b"{}"))  # xeus: metadata, too
    assert (message.parent, message.metadata) == ({}, {})


@pytest.mark.parametrize("length", range(6))
def test_truncated(length: int) -> None:
    with pytest.raises(BadMessage, match=r"truncated|delimiter"):
        Wire(KEY).unpack(signed(GOOD, b"{}", b"{}", b"{}")[:length])


@pytest.mark.parametrize("signature", [b"", b"0" * 64, b"\xff" * 64, b"short"])
def test_wrong_or_missing_signature(signature: bytes) -> None:
    frames = signed(GOOD, b"{}", b"{}", b"{}")
    frames[1] = signature
    with pytest.raises(BadMessage, match=r"unsigned|signature"):
        Wire(KEY).unpack(frames)


@pytest.mark.parametrize("part", range(2, 6))
def test_every_signed_part_is_checked(part: int) -> None:
    frames = signed(GOOD, b"{}", b"{}", b"{}")
    frames[part] += b" "
    with pytest.raises(BadMessage, match="signature"):
        Wire(KEY).unpack(frames)


def test_no_key_means_unsigned_as_in_jupyter_client() -> None:
    session = Session(key=b"", packer="json", unpacker="json")
    frames = session.serialize(session.msg("kernel_info_request"))
    assert Wire(b"").unpack(frames) == Wire(b"").unpack(frames)
    assert Wire(b"").pack(Wire(b"").unpack(frames)[1])[1] == b""


def test_a_replay_is_dropped_even_if_the_first_was_malformed() -> None:
    wire = Wire(KEY)
    frames = signed(GOOD, b"{}", b"{}", b"{}")
    wire.unpack(frames)
    with pytest.raises(BadMessage, match="replayed"):
        wire.unpack(frames)
    nonsense = signed(b"[]", b"{}", b"{}", b"{}")
    for reason in ("not an object", "replayed"):
        with pytest.raises(BadMessage, match=reason):
            wire.unpack(nonsense)


def test_forgeries_do_not_make_us_forget() -> None:
    wire = Wire(KEY, remember=2)
    genuine = signed(GOOD, b"{}", b"{}", b"{}")
    wire.unpack(genuine)
    for number in range(5):
        with pytest.raises(BadMessage, match="signature"):
            wire.unpack([DELIMITER, b"%064d" % number, GOOD, b"{}", b"{}", b"{}"])
    with pytest.raises(BadMessage, match="replayed"):
        wire.unpack(genuine)


def test_the_memory_of_signatures_is_bounded_and_forgets_the_oldest() -> None:
    wire = Wire(KEY, remember=10)
    messages = [signed(GOOD, b"{}", b"{}", b"%d" % n) for n in range(100)]
    for frames in messages:
        wire.unpack(frames)
    assert len(wire._replays._seen) == len(wire._replays._order) == 10
    for frames in messages[-10:]:
        with pytest.raises(BadMessage, match="replayed"):
            wire.unpack(frames)
    wire.unpack(messages[0])


def test_without_memory_a_repeated_message_passes() -> None:
    wire = Wire(KEY, remember=0)
    frames = signed(GOOD, b"{}", b"{}", b"{}")
    assert wire.unpack(frames) == wire.unpack(frames)


def test_frames_of_libzmq_are_read_without_copying_the_buffers() -> None:
    frames = [*signed(GOOD, b"{}", b"{}", b"{}"), b"x" * 1000]
    held = [zmq.Frame(frame) for frame in [b"me", *frames]]
    idents, message = Wire(KEY).unpack(held)
    assert idents == (b"me",)
    assert message == Message(HEADER, {}, {}, b"{}", (b"x" * 1000,))
    assert isinstance(message.buffers[0], memoryview)


def test_own_ids_never_repeat_even_when_wires_share_a_session() -> None:
    wires = [Wire(KEY, session="same") for _ in range(3)]
    ids = {wire.compose("status", b"{}", {}, {}).msg_id for wire in wires for _ in range(50)}
    assert len(ids) == 150
    assert Wire(KEY).session != Wire(KEY).session


@pytest.mark.parametrize("key", [b"k", b"k" * 64, b"k" * 65, b"k" * 500])
@pytest.mark.parametrize("scheme", ["hmac-sha256", "hmac-sha512", "hmac-md5", "hmac-sha3_256"])
def test_signatures_of_any_key_and_scheme_are_jupyter_clients(key: bytes, scheme: str) -> None:
    session = Session(key=key, signature_scheme=scheme, packer="json", unpacker="json")
    frames = session.serialize(session.msg("kernel_info_request"))
    _, message = Wire(key, scheme).unpack(frames)
    session.deserialize(Wire(key, scheme).pack(message)[1:])


def test_large_content_is_signed_to_its_end() -> None:
    session, wire = oracle(), Wire(KEY)
    frames = session.serialize(session.msg("stream", {"text": "x" * 3_000_000}))
    _, message = wire.unpack(frames)
    session.deserialize(wire.pack(message)[1:])
    frames[5] = frames[5][:-3] + b'y"}'
    with pytest.raises(BadMessage, match="signature"):
        wire.unpack(frames)


@pytest.mark.parametrize("scheme", ["sha256", "hmac-", "hmac-none", "hmac-shake_128", ""])
def test_unknown_scheme(scheme: str) -> None:
    with pytest.raises(UsageError, match="scheme"):
        Wire(KEY, scheme)
