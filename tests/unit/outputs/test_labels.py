import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.outputs import label, parse_label, rank_ranges
from spmd_kernel.core.outputs.colours import settle
from spmd_kernel.core.outputs.keys import Keys
from spmd_kernel.core.outputs.labels import looks_labelled, may_become_labelled
from spmd_kernel.core.outputs.splice import Parsed
from spmd_kernel.core.outputs.stream import collapse


@pytest.mark.parametrize(
    ("ranks", "size", "text"),
    [
        ((1,), 4, "1 │ "),
        ((1,), 16, " 1 │ "),
        ((7,), 1000, "  7 │ "),
        ((0, 1, 2, 5), 8, "0-2,5 │ "),
        ((0, 2, 4), 64, "0,2,4 │ "),
        ((3,), 1, "3 │ "),
    ],
)
def test_label(ranks, size, text):
    assert label(ranks, size) == text
    assert parse_label(text + "rest") == (ranks, "rest")


LABELS = json.loads((Path(__file__).parents[2] / "golden/labels/labels.json").read_text())


@pytest.mark.parametrize(("line", "ranks", "rest"), LABELS)
def test_lines_that_front_ends_read_alike(line, ranks, rest):
    assert parse_label(line) == (None if ranks is None else tuple(ranks), rest)


@given(st.sets(st.integers(0, 200), min_size=1), st.integers(201, 2000), st.text())
def test_parse_is_the_inverse_of_label(ranks, size, rest):
    ranks = tuple(sorted(ranks))
    assert parse_label(label(ranks, size) + rest) == (ranks, rest)
    assert looks_labelled(label(ranks, size))


@pytest.mark.parametrize(
    "line",
    ["", "1", "1 |", "1 | x", "a │ b", "1│ x", "3-1 │ x", "2,1 │ x", "0-999999999999 │ x",
     "9" * 5000 + " │ x", "-1 │ x", "1- │ x"],
)  # fmt: skip
def test_other_lines_have_no_label(line):
    assert parse_label(line) == (None, line)


@given(st.sets(st.integers(0, 30), min_size=1), st.data())
def test_every_beginning_of_a_label_with_its_bar_is_noticed(ranks, data):
    text = label(ranks, 31)
    cut = data.draw(st.integers(text.index("│") + 1, len(text)))
    assert may_become_labelled(text[:cut])


def test_ranges():
    assert rank_ranges([]) == ""
    assert rank_ranges([5, 0, 1, 2]) == "0-2,5"


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("on cuda:0", "on cuda:1"),
        ("[tensor(1., device='xla:0')]", "[tensor(1., device='xla:1')]"),
        ("<Net object at 0x7f86f6c247d0>", "<Net object at 0x7fe6f6c247d0>"),
        ("/tmp/ipykernel_12/3.py:1: W", "/tmp/ipykernel_345/3.py:1: W"),
        ("2026-11-29 17:13:06,576 INFO a", "2026-11-29 17:13:06,578 INFO a"),
        ("[2026-11-29T17:13:06.576Z] a", "[2026-11-29T17:13:07.1Z] a"),
        ("12:00:01 a", "12:00:02 a"),
        ("[12:00:01] a", "[12:00:02] a"),
        ("W1129 12:00:01.123456 77 a.cpp:1] b", "W1129 12:00:01.123999 78 a.cpp:1] b"),
    ],
)
def test_texts_that_say_the_same(mine, other):
    assert Keys(0).text(mine) == Keys(1).text(other)


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ("on cuda:1", "on cuda:0"),  # neither names its own
        ("on cuda:0", "on cuda:10"),
        ("checksum 0x7f86f6c247d0", "checksum 0x7fe6f6c247d0"),
        ("took 12:00:01 a", "took 12:00:02 a"),
        ("12:00:01", "12:00:02"),  # a time is not the stamp of a log line
        ("loss 0.1", "loss 0.2"),
    ],
)
def test_texts_that_differ(mine, other):
    assert Keys(0).text(mine) != Keys(1).text(other)


def test_bars_differ_by_time_and_rate_only():
    bar = "train: 100%|███| 30/30 [00:01<00:00, 22.92it/s, loss=0.1]"
    keys = Keys(0)
    assert keys.bar(bar) == keys.bar(bar.replace("00:01<", "00:02<").replace("22.92", "1.2"))
    assert keys.bar(bar) != keys.bar(bar.replace("loss=0.1", "loss=0.2"))
    assert keys.bar("  1.2/9.0 MB 3.1 MB/s eta 0:00:01") == keys.bar(
        "  1.2/9.0 MB 12 kB/s eta 0:10:01"
    )


@given(st.text(), st.integers(0, 9))
def test_plain_text_is_its_own_key(text, rank):
    if Keys.plain(text):
        assert all(Keys(rank).text(line) == line for line in text.split("\n"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb\nc\x1b[0md", "a\x1b[31mb\x1b[0m\n\x1b[31mc\x1b[0md"),
        ("\x1b[1;38;5;9ma\nb\x1b[39m\nc\x1b[22m", "\x1b[1;38;5;9ma\x1b[0m\n\x1b[1m\x1b[38;5;9mb\x1b[39m"
         "\x1b[0m\n\x1b[1mc\x1b[22m"),
        ("\x1b[31ma\x1b[m\nb", "\x1b[31ma\x1b[m\nb"),
        ("\x1b[2Ka\nb", "\x1b[2Ka\nb"),
    ],
)  # fmt: skip
def test_colour_is_closed_and_opened_again(text, shown):
    assert settle(text, {}) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\rb", "b"), ("abc\rX", "Xbc"), ("50%\r", "50%"), ("abc\r   \r", "   "),
     ("\x1b[32mabc\x1b[0m\r\x1b[32mX\x1b[0m", "\x1b[32mX\x1b[0m")],
)  # fmt: skip
def test_collapse(text, shown):
    assert collapse(text) == shown


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), _json), st.dictionaries(st.text(max_size=3), _json))
def test_splice(members, changes):
    import json

    for raw in (json.dumps(members, indent=1).encode(), json.dumps(members).encode()):
        parsed = Parsed(raw)
        assert parsed.content == members
        assert json.loads(parsed.replaced(changes)) == members | changes
