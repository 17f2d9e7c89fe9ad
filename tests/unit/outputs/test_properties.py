"""What must hold whatever the ranks say, in whatever pieces and order it comes."""

import json
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from spmd_kernel.core.outputs import OutputPolicy, fold, parse_label

from .document import Cell, display, error, message, result, stream

# Few words, so that ranks agree often; some that read like our own labels.
WORDS = st.sampled_from(["", "a", "b", "loss 0.3", "1 │ x", "0-3 │ y", "│ z", "2", "\ta  b "])
EXAMPLES = settings(max_examples=60, deadline=None)
DELAYS = st.sampled_from([0, 0, 0, 0.004, 0.03, 0.09, 0.3, 1.1])


@st.composite
def said(draw):
    """One thing that a rank publishes: (kind, payload)."""
    kinds = ["stderr", "display", "rich", "named", "update", "result", "error"]
    kind = draw(st.sampled_from(["stdout"] * 7 + kinds))
    return kind, draw(WORDS)


def as_message(kind, word):
    if kind in ("stdout", "stderr"):
        return stream(word + "\n", kind)
    if kind == "rich":
        return display({"text/plain": word, "image/png": word})
    if kind == "named":
        return display(word, display_id="same on all ranks")
    if kind == "update":
        unknown = {"display_id": "never shown"}
        return message("update_display_data", data={}, metadata={}, transient=unknown)
    return {"display": display, "result": result, "error": error}[kind](word)


def expected(kind, word):
    if kind in ("stdout", "stderr"):
        return kind, word
    if kind == "error":
        return kind, (word, f"{'-' * 9}\nValueError", word)
    data = {"text/plain": word} | ({"image/png": word} if kind == "rich" else {})
    return "execute_result" if kind == "result" else "display_data", json.dumps(data)


def play(cell, draw, programs):
    """Run each rank's steps in any interleaving; a rank finishes at any time after its last."""
    left = {rank: list(steps) for rank, steps in programs.items()}
    while left:
        rank = draw(st.sampled_from(sorted(left)))
        if left[rank]:
            left[rank].pop(0)(rank)
        else:
            cell.finish(rank)
            del left[rank]
        cell.wait(draw(DELAYS))
        assert_young(cell)
    cell.close()
    assert_empty(cell)


def assert_young(cell):
    """Nothing that can be published waits longer than the longest window."""
    if cell.outputs._fold.deadline() == cell.at:
        return  # the next slice is due
    for lane in cell.outputs._fold._order:
        if lane.items and not lane.is_blocked:
            assert lane.items[0].born >= cell.at - fold.WINDOW_LEAD - 1e-9


def assert_empty(cell):
    for lane in cell.outputs._fold._order:
        assert not lane.items and not lane.counts and not lane.barriers and not lane.size


@given(st.integers(1, 4), st.data())
@EXAMPLES
def test_nothing_is_lost_and_the_order_of_each_rank_is_kept(size, data):
    cell = Cell(max(size, 2), ranks=range(size))
    words = {r: data.draw(st.lists(said(), max_size=8), label=f"rank {r}") for r in range(size)}

    def steps(things):
        return [lambda rank, what=as_message(*thing): cell.feed(rank, what) for thing in things]

    play(cell, data.draw, {rank: steps(things) for rank, things in words.items()})
    assert cell.by_rank() == {
        r: [expected(*thing) for thing in words[r] if thing[0] != "update"] for r in words
    }
    assert_errors(cell)


@given(st.integers(1, 4), st.data())
@EXAMPLES
def test_what_is_much_goes_out_in_slices(size, data):
    """Of two items here; then others get their turn."""
    with mock.patch.object(fold, "SLICE", 2), mock.patch.object(fold, "LAST", 2):
        test_nothing_is_lost_and_the_order_of_each_rank_is_kept.hypothesis.inner_test(size, data)


def assert_errors(cell):
    if cell.outputs.root_cause is None:
        assert not cell.of("error")
        return
    rank, content = cell.outputs.root_cause
    first = cell.of("error")[0]
    named, _ = parse_label(first["traceback"][0])
    assert rank in (named or cell.ranks)
    assert first["evalue"] == content["evalue"]


def pieces_of(draw, text):
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(st.integers(2, 4), st.data())
@EXAMPLES
def test_text_in_any_pieces(size, data):
    """Streams cut anywhere: per rank and stream every character, in order; lines whole if in time."""
    cell = Cell(size)
    texts, programs = {}, {}
    for rank in range(size):
        lines = data.draw(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), WORDS)))
        texts[rank] = lines
        programs[rank] = [
            (lambda r, piece=piece, name=name: cell.feed(r, piece, name))
            for name, line in lines
            for piece in pieces_of(data.draw, line + data.draw(st.sampled_from(["\n", ""])))
        ]
    play(cell, data.draw, programs)
    for rank, said in cell.by_rank().items():
        for name in ("stdout", "stderr"):
            got = "".join(line for kind, line in said if kind == name)
            # A label-like beginning that was shown before its bar came may get a label of its own.
            assert got == "".join(line for kind, line in texts[rank] if kind == name)


@given(st.integers(2, 4), st.lists(st.text("ab1 │\n\t", max_size=12), max_size=4), st.data())
@EXAMPLES
def test_ranks_that_say_the_same_within_a_window_are_one(size, phases, data):
    cell = Cell(size)
    for phase in phases:
        left = {rank: pieces_of(data.draw, phase) for rank in range(size)}
        for _ in range(sum(map(len, left.values()))):
            rank = data.draw(st.sampled_from(sorted(r for r in left if left[r])))
            cell.feed(rank, left[rank].pop(0))
            cell.wait(0.09 / (7 * size))
        cell.wait(1.0)
    for rank in data.draw(st.permutations(range(size))):
        cell.finish(rank)
        cell.wait(0.09 / size)
    cell.close()
    everyone = tuple(range(size))
    text = "\n".join(
        rest for named, rest in map(parse_label, cell.text.split("\n")) if named in (None, everyone)
    )
    assert text.replace("\n", "") == "".join(phases).replace("\n", "")
    if "│" not in text:
        assert cell.text == "".join(phases)


@given(st.lists(st.lists(WORDS, min_size=1, max_size=3), max_size=5), st.data())
@EXAMPLES
def test_lines_of_one_write_stay_together(writes, data):
    cell = Cell(3)
    block = "\n\x1f".join
    mine = {rank: [[*lines, f"end {rank}"] for lines in writes] for rank in range(3)}
    programs = {
        rank: [lambda r, text=block(lines) + "\n": cell.feed(r, text) for lines in blocks]
        for rank, blocks in mine.items()
    }
    play(cell, data.draw, programs)
    lines = [parse_label(line) for line in cell.text.split("\n")[:-1]]
    for rank, blocks in mine.items():
        at = 0
        where = [i for i, (named, _) in enumerate(lines) if named is None or rank in named]
        for wanted in blocks:
            found = where[at : at + len(wanted)]
            assert [lines[i][1] for i in found] == wanted
            assert found == list(range(found[0], found[0] + len(found)))
            at += len(wanted)


@given(st.lists(said(), max_size=6))
def test_world_size_1_is_the_bare_kernel(things):
    cell = Cell(1)
    sent = [as_message(*thing) for thing in things]
    for what in sent:
        cell.feed(0, what)
    cell.finish()
    cell.close()
    assert [(p.msg_type, p.content) for p in cell.published] == [
        (what.msg_type, what.content) for what in sent
    ]


@given(st.integers(2, 4), st.data())
@EXAMPLES
def test_progress_bars_end_as_their_last_state(size, data):
    """Bars rewritten in any pieces, with lines between: every line and each last state, once."""
    cell = Cell(size)
    wanted, programs = {}, {}
    for rank in range(size):
        steps, wanted[rank] = [], []
        for index in range(data.draw(st.integers(0, 3))):
            count = data.draw(st.integers(1, 6))
            text = "".join(f"\rbar {index} step {i}" for i in range(count + 1))
            last = data.draw(st.sampled_from(["\n", "\r\n"]))
            steps += [
                lambda r, piece=piece: cell.feed(r, piece, "stderr")
                for piece in pieces_of(data.draw, text + last)
            ]
            steps.append(lambda r, index=index: cell.feed(r, f"after {index}\n"))
            wanted[rank] += [("stderr", f"bar {index} step {count}"), ("stdout", f"after {index}")]
        programs[rank] = steps
    play(cell, data.draw, programs)
    for rank, said in cell.by_rank().items():
        assert [what for what in said if what[0] != "display_data"] == wanted[rank]
    for kind, content in cell.shown():
        if kind == "display_data":
            assert content["data"] == {"text/plain": ""}


@given(st.integers(2, 3), st.data())
@EXAMPLES
def test_clearing_loses_no_output_of_another_rank(size, data):
    cell = Cell(size)
    kept, programs = {}, {}
    for rank in range(size):
        steps, kept[rank] = [], []
        clears = data.draw(st.booleans()) if rank else True
        for index in range(data.draw(st.integers(0, 6))):
            if clears and data.draw(st.booleans()):
                wait = data.draw(st.booleans())
                steps.append(lambda r, w=wait: cell.feed(r, message("clear_output", wait=w)))
                kept[rank] = []
            word = f"rank {rank} says {index}"
            kind = data.draw(st.sampled_from(["stdout", "display", "rich"]))
            steps.append(lambda r, what=as_message(kind, word): cell.feed(r, what))
            kept[rank].append(word)
        programs[rank] = steps
    play(cell, data.draw, programs)
    shown = json.dumps(cell.shown(), ensure_ascii=False)
    for words in kept.values():
        for word in words:
            assert word in shown


@given(st.lists(st.text("ab\n\x1f", max_size=6), max_size=6), st.data())
@EXAMPLES
def test_marks_are_taken_out_and_what_a_program_wrote_is_not(writes, data):
    """A rank doubles U+001F of the program; a kernel that marks nothing keeps it as it is."""
    writes = [f"{text}|" for text in writes]
    sent = [w.replace("\x1f", "\x1f\x1f").replace("\n", "\n\x1f") + "\n" for w in writes]
    cell, other = Cell(2), Cell(2, policy=OutputPolicy(marks=False))
    while sent:
        count = data.draw(st.integers(1, len(sent)))
        cell.feed_all("".join(sent[:count]))
        del sent[:count]
    other.feed_all("".join(f"{w}\n" for w in writes))
    for each in (cell, other):
        each.finish()
        each.close()
        assert each.text == "".join(f"{w}\n" for w in writes)


@given(st.integers(2, 4), st.data())
@EXAMPLES
def test_grouped_outputs_depend_on_what_was_said_alone(size, data):
    """Any interleaving of ranks and streams, in any pieces, at any time: the same bytes."""
    words = {r: data.draw(st.lists(said(), max_size=8), label=f"rank {r}") for r in range(size)}
    shown = []
    for _ in range(2):
        cell = Cell(size, policy=OutputPolicy(mode="grouped"))
        play_grouped(cell, data.draw, words)
        shown.append([(p.msg_type, p.content, p.metadata) for p in cell.published])
        streams, others = split_kinds(cell.by_rank())
        for rank, things in words.items():
            wanted = split_kinds({rank: [expected(*t) for t in things if t[0] != "update"]})
            assert (streams[rank], others[rank]) == (wanted[0][rank], wanted[1][rank])
    assert shown[0] == shown[1]


def play_grouped(cell, draw, words):
    """Each rank's streams come in pieces; between two other outputs in any order of the two."""
    left = {rank: pieces(draw, things) for rank, things in words.items()}
    while left:
        rank = draw(st.sampled_from(sorted(left)))
        if left[rank]:
            cell.feed(rank, left[rank].pop(0))
        else:
            cell.finish(rank)
            del left[rank]
        cell.wait(draw(DELAYS))
        assert not cell.published
    cell.close()


def pieces(draw, things):
    out, texts = [], {"stdout": "", "stderr": ""}
    for kind, word in [*things, (None, "")]:
        if kind in texts:
            texts[kind] += word + "\n"
            continue
        for name in draw(st.permutations(sorted(texts))):
            text, texts[name] = texts[name], ""
            at = draw(st.integers(0, len(text)))
            out += [stream(part, name) for part in (text[:at], text[at:]) if part]
        if kind:
            out.append(as_message(kind, word))
    return out


def split_kinds(by_rank):
    """Per rank: {stream: lines}, and all else in order."""
    streams, others = {}, {}
    for rank, items in by_rank.items():
        streams[rank] = {n: [w for k, w in items if k == n] for n in ("stdout", "stderr")}
        others[rank] = [item for item in items if item[0] not in ("stdout", "stderr")]
    return streams, others


@given(st.integers(2, 4), st.data())
@EXAMPLES
def test_a_view_shows_what_its_ranks_said_and_every_error(size, data):
    cell = Cell(size, policy=OutputPolicy(show=(size - 1,)))
    everything = Cell(size)
    words = {r: data.draw(st.lists(said(), max_size=6), label=f"rank {r}") for r in range(size)}
    for rank, things in words.items():
        for thing in things:
            for each in (cell, everything):
                each.feed(rank, as_message(*thing))
                each.wait(0.03)
    for each in (cell, everything):
        each.finish()
        each.close()
    shown, whole = cell.by_rank(), everything.by_rank()
    assert shown[size - 1] == whole[size - 1]
    for rank in range(size):
        assert set(shown[rank]) <= set(whole[rank])
        errors = [item for item in whole[rank] if item[0] == "error"]
        assert [item for item in shown[rank] if item[0] == "error"] == errors
