"""Many lines of one message are one item: that is for speed, and must not be seen."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd_kernel.core.model import Message
from spmd_kernel.core.outputs import CellOutputs, Publish, stream

LINES = st.lists(st.sampled_from(["a", "b", "", "1 │ x", "same", "é"]), max_size=12)
MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 2),  # rank
        st.sampled_from(["stdout", "stdout", "stderr"]),
        LINES,
        st.sampled_from(["", "own"]),  # makes the lines those of one rank
        st.booleans(),  # ends in the middle of a line
        st.sampled_from([0.0, 0.001, 0.03, 0.06, 0.2, 0.6]),  # seconds until the next
    ),
    max_size=14,
)


def message(name: str, text: str) -> Message:
    content = json.dumps({"name": name, "text": text}).encode()
    return Message({"msg_type": "stream"}, {}, {}, content)


def published(messages: list[tuple[int, str, list[str], str, bool, float]]) -> list[Publish]:
    outputs, at, out = CellOutputs((0, 1, 2), 3), 0.0, []
    for rank, name, lines, own, cut, pause in messages:
        text = "".join(f"{line}{own and f' of {rank}'}\n" for line in lines)
        out += outputs.feed(rank, message(name, text[:-1] if cut else text), at)
        at += pause
        if (due := outputs.deadline()) is not None and due <= at:
            out += outputs.tick(at)
    for rank in (2, 0, 1):
        out += outputs.finish(rank, at)
    return out + outputs.close(at)


@settings(max_examples=400, deadline=None)
@given(messages=MESSAGES)
def test_blocks_change_nothing(
    messages: list[tuple[int, str, list[str], str, bool, float]],
) -> None:
    results = []
    for least in (2, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream, "BLOCK", least)
            results.append(published(messages))
    assert results[0] == results[1]


def test_long_text_is_parted_at_line_ends() -> None:
    text = "".join(f"{i:06d} {'é' * 73}\n" for i in range(40_000))
    outputs = CellOutputs((0, 1), 2)
    out = outputs.feed(0, message("stdout", text), 0.0)
    out += outputs.finish(0, 0.0) + outputs.finish(1, 0.0) + outputs.close(0.0)
    texts = [json.loads(item.content)["text"] for item in out]
    assert all(len(item.content) <= 1_000_000 for item in out)
    assert all(part.endswith("\n") for part in texts)
    assert "".join(texts) == "".join(f"0 │ {line}\n" for line in text.splitlines())
