"""Text as it stands in JSON: the fast ways must say what the plain ones say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.content import dumps, loads
from spmd_kernel.core.outputs.labels import label_lines
from spmd_kernel.core.outputs.writing import Writing, escaped_lines, pieces, read_stream, text_of

TEXT = st.text(st.sampled_from('ab\n\\n"é│😀\t\r\x1f\udcff'), max_size=80)
PLAIN = st.lists(st.text(st.sampled_from("ab :é│😀\udcff"), max_size=9), min_size=1, max_size=9)


@given(TEXT, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_stream_message_is_read_as_json_reads_it_or_not_at_all(
    text: str, escape: bool, separators: tuple[str, str]
) -> None:
    long = text + "x" * 1000
    content = json.dumps(
        {"name": "stderr", "text": long}, ensure_ascii=escape, separators=separators
    ).encode("utf-8", "surrogateescape")
    found = read_stream(content)
    if found is not None:
        name, simple = found
        assert (name, simple.text) == ("stderr", loads(content)["text"])
        assert simple.size == len(long)
        assert simple.lines == long.split("\n")
        assert simple.without_first_line().text == long.partition("\n")[2]
    elif not escape:  # nothing but newlines is no reason to refuse
        assert set(text) & set('\\"\t\r\x1f')


@given(st.sampled_from(["", "3 │ ", "0-2,5 │ "]), PLAIN)
def test_lines_are_labelled_and_escaped_as_one_by_one(label: str, lines: list[str]) -> None:
    text = "\n".join(lines)
    wanted = (label_lines(label, text) if label else text) + "\n"
    assert escaped_lines(label, lines) == dumps(wanted)[1:-1]


@given(st.lists(st.one_of(TEXT, PLAIN), max_size=5))
def test_a_message_has_what_was_added_in_order(parts: list[str | list[str]]) -> None:
    writing, wanted = Writing(), ""
    writing.stream = "stdout"
    for part in parts:
        if isinstance(part, str):
            writing.add(part)
            wanted += part
        else:
            writing.add_escaped(escaped_lines("", part))
            wanted += "\n".join(part) + "\n"
    contents = [loads(content) for content in writing.take()]
    assert contents == ([{"name": "stdout", "text": wanted}] if wanted else [])
    assert writing.take() == []


@given(st.text(st.sampled_from('a\n\\"é😀\x1f'), max_size=60), st.integers(12, 40))
def test_long_text_is_parted_into_pieces_that_are_text_themselves(text: str, most: int) -> None:
    found = pieces(dumps(text)[1:-1], most)
    assert "".join(loads(b'"' + piece + b'"') for piece in found) == text
    assert all(0 < len(piece) <= most for piece in found)


def test_it_is_parted_where_a_line_ends() -> None:
    body = escaped_lines("", [f"line {i:03d}" for i in range(100)])
    assert all(piece.endswith(b"\\n") for piece in pieces(body, 60))


@pytest.mark.parametrize("words", ["", "a\nb\n", "\\n", 'a"b\t€\n', "x" * 2000 + "\n\x1b"])
def test_the_text_of_a_message_as_bytes(words: str) -> None:
    assert text_of(dumps({"name": "stdout", "text": words})) == words.encode()
    assert text_of(json.dumps({"text": words, "name": "stderr"}).encode()) == words.encode()
