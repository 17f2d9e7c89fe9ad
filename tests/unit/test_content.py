"""JSON content: what comes in leaves as it came, and wrong types are the sender's fault."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.content import Content, dumps, loads, read
from spmd_kernel.core.errors import BadMessage

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert loads(dumps(value)) == value


@given(VALUES)
def test_it_is_json_to_others(value: object) -> None:
    assert json.loads(dumps(value).decode("utf-8", "surrogateescape")) == value


def test_bytes_that_are_no_text_survive() -> None:
    raw = b'{"text":"a\xffb"}'
    assert read(raw)["text"] == "a\udcffb"
    assert dumps(read(raw)) == raw


def test_surrogates_that_no_encoding_takes_are_escaped() -> None:
    assert dumps("\ud800") == b'"\\ud800"'


def test_compact_and_not_escaped() -> None:
    assert dumps({"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()
    assert math.isinf(loads(dumps(math.inf)))


@pytest.mark.parametrize("raw", [b"", b"{", b"{'a': 1}", b"\xff", b"[" * 100_000])
def test_no_json(raw: bytes) -> None:
    with pytest.raises(BadMessage, match="not JSON"):
        loads(raw)


@pytest.mark.parametrize("raw", [b"[]", b"5", b"null", b'"text"'])
def test_no_object(raw: bytes) -> None:
    with pytest.raises(BadMessage, match="not an object"):
        read(raw)


def test_typed_reads_and_their_defaults() -> None:
    content = Content(text="t", flag=1, integer=7, mapping={"a": 1}, items=[1])
    assert content.text("text") == "t"
    assert content.flag("flag") is True
    assert content.integer("integer") == 7
    assert content.mapping("mapping") == {"a": 1}
    assert content.items_of("items") == [1]
    assert (content.text("no"), content.text("no", "d"), content.text("no", None)) == (
        "",
        "d",
        None,
    )
    assert (content.flag("no"), content.flag("no", True)) == (False, True)
    assert (content.integer("no"), content.integer("no", 3)) == (0, 3)
    assert (content.mapping("no"), content.items_of("no")) == ({}, [])


@pytest.mark.parametrize("value", [5, [], {}, True, None])
def test_wrong_text(value: object) -> None:
    with pytest.raises(BadMessage, match="'key' has type"):
        Content(key=value).text("key")


def test_absent_and_null_are_the_same_where_nothing_is_the_default() -> None:
    assert Content(key=None).text("key", None) is None
    with pytest.raises(BadMessage):
        Content(key=5).text("key", None)


@pytest.mark.parametrize("value", ["5", 5.0, True, None])
def test_wrong_integer(value: object) -> None:
    with pytest.raises(BadMessage):
        Content(key=value).integer("key")


@pytest.mark.parametrize("value", ["x", 1, None])
def test_wrong_containers(value: object) -> None:
    with pytest.raises(BadMessage):
        Content(key=value).mapping("key")
    with pytest.raises(BadMessage):
        Content(key=value).items_of("key")
