"""Long values of large displays stay closed: nothing is to be seen of that but in memory and time."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.content import dumps
from spmd_kernel.core.errors import BadMessage
from spmd_kernel.core.outputs import closed, splice
from spmd_kernel.core.outputs.closed import Closed, opened
from spmd_kernel.core.outputs.splice import Parsed

from .document import Cell, display, message

PNG = "iVBOR" * 40_000
texts = st.text(st.sampled_from('ab"\\{}[],: \n\u00e9\U0001f600\udcff'))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@pytest.fixture(scope="module", autouse=True)
def _everything_is_large():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splice, "LARGE", 0)
        patch.setattr(closed, "LONG", 0)
        yield


@given(
    st.dictionaries(texts | st.just("metadata"), values),
    st.dictionaries(texts | st.just("text/plain"), values),
    st.dictionaries(texts | st.just("metadata"), values),
    st.sampled_from([None, 1]),
)
def test_members_are_found_and_left_as_they_are(members, data, changes, indent):
    content = {**members, "data": data, "last": 0}
    raw = json.dumps(content, indent=indent, ensure_ascii=False).encode("utf-8", "surrogateescape")
    parsed = Parsed(raw)
    found = {**parsed.content, "data": opened(parsed.content["data"])}
    assert found == content
    for mime, value in parsed.content["data"].items():
        assert isinstance(value, Closed) == (mime != "text/plain")
        again = Parsed(raw).content["data"][mime]
        assert value == again
        assert mime == "text/plain" or hash(value) == hash(again)
    spliced = parsed.replaced(changes)
    assert json.loads(spliced.decode("utf-8", "surrogateescape")) == {**content, **changes}


@given(st.dictionaries(texts, values), st.data())
def test_what_is_no_json_is_a_bad_message(data, draw):
    """Or it is found to be none by somebody else: a string may hold what no JSON string holds."""
    raw = dumps({"data": data, "metadata": {}})
    cut = raw[: draw.draw(st.integers(0, len(raw) - 1))]
    with pytest.raises(BadMessage):
        Parsed(cut)
    at = draw.draw(st.integers(0, len(raw) - 1))
    with contextlib.suppress(BadMessage):
        Parsed(raw[:at] + draw.draw(st.binary(max_size=3)) + raw[at + 1 :])


@pytest.mark.parametrize("raw", [b"[" * 10_000, b'{"data":' * 10_000, b'{"a":' + b"[" * 10_000])
def test_what_is_nested_too_deeply(raw):
    with pytest.raises(BadMessage):
        Parsed(raw)


def test_equal_ones_are_one_and_others_are_not():
    cell = Cell(3)
    for rank, png in enumerate([PNG, PNG, PNG[:-1] + "X"]):
        cell.feed(rank, display({"image/png": png, "text/plain": "<Figure>"}))
    cell.finish()
    cell.close()
    shown = [c for c in cell.of("display_data") if "role" not in c["metadata"]["spmd"]]
    assert [(c["metadata"]["spmd"]["ranks"], c["data"]["image/png"]) for c in shown] == [
        ([0, 1], PNG),
        ([2], PNG[:-1] + "X"),
    ]


def test_what_stands_beside_it_is_starred():
    """Two ranks that named their own devices are one: the data is written anew."""
    cell = Cell(2)
    for rank in cell.ranks:
        cell.feed(rank, display({"image/png": PNG, "text/plain": f"on cuda:{rank}"}))
    assert [c["data"] for c in cell.of("display_data")] == [
        {"image/png": PNG, "text/plain": "on cuda:*"}
    ]


def test_a_rank_that_clears_on_its_own_shows_it_in_its_slot():
    cell = Cell(2)
    cell.feed(0, "first\n")
    cell.feed(0, message("clear_output", wait=True))
    cell.wait(1)
    cell.feed(0, display({"image/png": PNG}))
    cell.wait(1)
    cell.finish()
    cell.close()
    assert [content["data"] for _, content in cell.shown() if "data" in content] == [
        {"image/png": PNG}
    ]
