"""What is found in a JSON object without decoding all of it is what `json` finds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd_kernel.core.content import loads
from spmd_kernel.core.errors import BadMessage
from spmd_kernel.core.outputs.splice import Parsed

TEXT = st.text(st.sampled_from('ab\n\\"{}:,é😀\udcff'), max_size=9)
LONG = st.builds(lambda head, tail: head + "x" * 10_000 + tail, TEXT, TEXT)
LEAF = st.one_of(st.none(), st.booleans(), st.integers(), st.just(2**70), TEXT, LONG)
VALUE = st.one_of(LEAF, st.lists(LEAF, max_size=2), st.dictionaries(TEXT, LEAF, max_size=3))
BUNDLE = st.fixed_dictionaries(
    {"data": st.dictionaries(TEXT, VALUE, max_size=3), "metadata": st.dictionaries(TEXT, LEAF)},
    optional={"transient": VALUE},
)


def written(value: Any, escape: bool, indent: int | None) -> bytes:
    return json.dumps(value, ensure_ascii=escape, indent=indent).encode("utf-8", "surrogateescape")


@settings(max_examples=60)
@given(BUNDLE, st.booleans(), st.sampled_from([None, 1]))
def test_an_object_is_read_as_json_reads_it(
    value: dict[str, Any], escape: bool, indent: int | None
) -> None:
    raw = written(value, escape, indent)
    parsed = Parsed(raw)
    assert parsed.content == loads(raw) == value
    assert loads(parsed.replaced({})) == value
    assert loads(parsed.replaced({"metadata": 1, "new": []})) == value | {"metadata": 1, "new": []}


@pytest.mark.parametrize(
    "raw",
    [b"", b"1", b"[]", b'{"a":1', b'{"a":1}}', b'{"a":1,}', b'{"a"1}', b'{1:1}', b'{"a":"b}',
     b'{"data":{"b":"' + b"x" * 20_000, b'{"data":{"b":"' + b"x" * 20_000 + b'"',
     b'{"data":{"b":"' + b"x" * 20_000 + b'\\u"}}', b'{"a":1} {}'],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        Parsed(raw)


def test_of_two_members_of_one_name_the_last_counts() -> None:
    parsed = Parsed(b'{"a": 1, "b": 2, "a": 3}')
    assert parsed.content == {"a": 3, "b": 2}
    assert loads(parsed.replaced({})) == {"a": 3, "b": 2}
