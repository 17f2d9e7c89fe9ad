"""The text of one cell up to a limit, of which the pure machine decides what is shown and what is filed."""

import json

from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.content import dumps
from spmd_kernel.core.outputs import Publish
from spmd_kernel.core.outputs.limit import Shares, StreamLimit
from spmd_kernel.core.outputs.writing import text_of

LIMIT = 8000
PATH = "/cache/output-1.txt"


def text(words, name="stdout"):
    return Publish("stream", dumps({"name": name, "text": words}))


class Reader:
    def __init__(self, limit=LIMIT):
        self.limit = StreamLimit(limit, PATH)
        self.published, self.filed = [], []

    def feed(self, item):
        self.limit.feed(item)
        self.take()

    def end(self):
        self.limit.end()
        self.take()

    def take(self):
        shown, filed = self.limit.take()
        self.published += shown
        self.filed += filed

    @property
    def shown(self):
        """What a reader sees: text, and other outputs as their kind."""
        return "".join(
            json.loads(item.content)["text"] if item.msg_type == "stream" else f"<{item.msg_type}>"
            for item in self.published
        )

    @property
    def notes(self):
        return [line for line in self.shown.splitlines() if line.startswith("… ")]

    @property
    def file(self):
        return b"".join(map(text_of, self.filed)).decode()


def lines(begin, end):
    return "".join(f"0 │ line {number:04}\n" for number in range(begin, end))


def test_text_below_the_limit_is_shown_as_it_came_and_most_of_it_is_never_filed():
    reader = Reader()
    items = [text(lines(0, 20)), text("to stderr\n", "stderr"), text("")]
    for item in items:
        reader.feed(item)
    reader.end()
    assert reader.published == items
    assert not reader.filed and not reader.limit.has_file


def test_the_first_and_the_last_part_are_shown_and_all_is_in_the_file():
    reader = Reader()
    said = [lines(number, number + 10) for number in range(0, 2000, 10)]
    for words in said:
        reader.feed(text(words))
    reader.end()
    whole = "".join(said)
    assert reader.file == whole
    first, _, rest = reader.shown.partition("…")
    assert whole.startswith(first) and LIMIT // 2 < len(first) <= LIMIT
    last = rest.rpartition(":\n")[2]
    assert last.startswith("0 │ line ") and whole.endswith(last)
    assert 0 < len(last) <= Shares(LIMIT).tail
    assert f"goes to {PATH}" in reader.notes[0]
    assert f"all in {PATH}:" in reader.notes[-1] and "of 0.0" in reader.notes[-1]
    assert len(reader.notes) < 8  # one each time it has doubled


def test_a_message_that_crosses_the_limit_is_parted_at_a_line():
    reader = Reader()
    reader.feed(text(lines(0, 1000)))
    first = reader.shown.partition("…")[0]
    assert first.endswith("\n") and len(first) > LIMIT * 0.9
    assert reader.file == lines(0, 1000)


def test_a_line_without_end_is_parted_and_no_part_of_it_stands_without_its_label():
    reader = Reader()
    for _ in range(100):
        reader.feed(text("x" * 1000))
    reader.end()
    first, note, last = reader.shown.split("\n")[:3]
    assert set(first) == {"x"} and LIMIT * 0.8 < len(first) <= LIMIT
    assert note.startswith("… more than")
    assert last.startswith("… ")
    assert "xx" not in "".join(reader.shown.split("\n")[2:])
    assert reader.file == "x" * 100_000


def test_text_before_an_error_stands_before_it_once():
    reader = Reader()
    reader.feed(text(lines(0, 1000)))
    reader.feed(Publish("error", b"{}"))
    reader.feed(text(lines(1000, 1010)))
    reader.feed(Publish("error", b"{}"))
    reader.end()
    before, between, after = reader.shown.split("<error>")
    assert before.endswith(lines(990, 1000))
    assert between == ""
    assert after.endswith(lines(1000, 1010))


def test_other_outputs_pass():
    reader = Reader()
    reader.feed(text(lines(0, 1000)))
    item = Publish("display_data", b"{}")
    reader.feed(item)
    assert reader.published[-1] is item


def test_a_file_that_cannot_be_written():
    reader = Reader()
    reader.feed(text(lines(0, 200)))
    assert reader.limit.broken("No space left on device") == ""  # all was shown so far
    filed = len(reader.filed)
    reader.feed(text(lines(200, 2000)))
    reader.end()
    assert len(reader.filed) == filed
    assert "No space left on device" in reader.notes[0]
    assert reader.shown.endswith(lines(1950, 2000))
    assert "all in" not in reader.notes[-1]


def test_a_file_that_cannot_be_written_any_more():
    reader = Reader()
    reader.feed(text(lines(0, 2000)))
    assert "No space" in reader.limit.broken("No space left on device")


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("ab\n", max_size=60))))
def test_the_file_holds_everything_and_what_is_shown_is_its_beginning_and_its_end(said):
    reader = Reader(limit=200)
    for name, words in said:
        reader.feed(text(words, name))
    reader.end()
    whole = "".join(words for _, words in said)
    if not reader.limit.is_over:
        assert reader.shown == whole
        return
    assert reader.file == whole
    first, _, rest = reader.shown.partition("… more than")
    assert whole.startswith(first) or whole.startswith(first.removesuffix("\n"))
    last = rest.rpartition("output-1.txt")[2].removeprefix(":").removeprefix("\n")
    assert whole.endswith(last)
