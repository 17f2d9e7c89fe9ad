"""Each kind of output, by example."""

import json

import pytest

from spmd_kernel.core.errors import BadMessage
from spmd_kernel.core.model import Message
from spmd_kernel.core.outputs import CellOutputs, DisplayIds

from .document import Cell, display, error, message, result, stream

PNG = {"text/plain": "<Figure>", "image/png": "iVBOR"}


def spmd(content):
    return content["metadata"]["spmd"]


# ---------------------------------------------------------------- streams


def test_equal_text_is_published_at_once_and_unmarked():
    cell = Cell(4)
    cell.feed_all("hello\n")
    assert cell.text == "hello\n"
    assert cell.outputs.deadline() is None


def test_a_late_rank_is_waited_for_while_all_agree():
    cell = Cell(2)
    cell.feed(0, "hello\n")
    cell.wait(0.4)
    assert not cell.published
    cell.feed(1, "hello\n")
    assert cell.text == "hello\n"


def test_text_that_differs_waits_only_one_window():
    cell = Cell(2)
    cell.feed_all("same\n")
    cell.feed(0, "a\n")
    cell.feed(1, "b\n")
    cell.wait(0.11)
    cell.feed(0, "more\n")
    cell.wait(0.11)
    assert cell.text == "same\n0 │ a\n1 │ b\n0 │ more\n"


def test_a_dead_rank_is_not_waited_for():
    cell = Cell(3)
    cell.finish(1)
    cell.feed(0, "x\n")
    cell.feed(2, "x\n")
    assert cell.text == "0,2 │ x\n"


def test_ranks_of_a_cell_that_runs_on_some_are_all_its_ranks():
    cell = Cell(4, ranks=(1, 3))
    cell.feed_all("x\n")
    cell.feed_all(display(PNG))
    assert cell.text == "x\n"
    assert [spmd(c) for c in cell.of("display_data")] == [{"ranks": [1, 3]}]


def test_text_of_all_that_reads_like_a_label_gets_one():
    cell = Cell(4)
    cell.feed_all("1 │ x\nplain │ y\n")
    assert cell.text == "0-3 │ 1 │ x\nplain │ y\n"


def test_a_newline_of_two_characters_in_two_messages():
    cell = Cell(2)
    for piece in ("a\r", "\nb\r\n", "c\r"):
        cell.feed_all(piece)
    cell.finish()
    assert cell.text == "a\nb\nc"


def test_such_a_newline_makes_no_progress_bar_of_a_line():
    cell = Cell(2)
    for rank in cell.ranks:
        cell.feed(rank, f"took {rank}:00 \r")
    cell.feed_all("\n")
    assert cell.text == "0 │ took 0:00 \n1 │ took 1:00 \n"


def test_own_devices_are_shown_as_one():
    cell = Cell(2)
    for rank in cell.ranks:
        cell.feed(rank, f"on cuda:{rank}\n")
    cell.feed_all("peer cuda:0\n")
    assert cell.text == "on cuda:*\npeer cuda:0\n"


def test_local_ranks_own_the_devices():
    cell = Cell(2, local_ranks={0: 0, 1: 0})
    cell.feed_all("on cuda:0\n")
    assert cell.text == "on cuda:0\n"


def test_an_unfinished_line_is_shown_after_a_while():
    cell = Cell(2)
    cell.feed(0, "loading")
    cell.feed(1, "loading..")
    cell.wait(0.6)
    assert cell.text == "loading"
    cell.feed(0, "..done\n")
    cell.feed(1, "done\n")
    assert cell.text == "loading..done\n"


def test_an_unfinished_line_that_another_rank_breaks():
    cell = Cell(2)
    cell.feed(0, "load")
    cell.wait(0.6)
    cell.feed(1, "x\n")
    cell.wait(0.6)
    cell.feed(0, "ed\n")
    cell.close()
    assert cell.text == "0 │ load\n1 │ x\n0 │ ed\n"


def test_unfinished_lines_that_differ_are_not_cut_apart():
    cell = Cell(2)
    cell.feed(0, "loss 0.51")
    cell.feed(1, "loss 0.52")
    cell.wait(0.6)
    assert cell.text == "0 │ loss 0.51\n1 │ loss 0.52"


def test_the_other_stream_does_not_wait_for_a_newline():
    cell = Cell(2)
    for rank in cell.ranks:
        cell.feed(rank, "starting")
        cell.feed(rank, "warning\n", "stderr")
        cell.feed(rank, "\n")
    assert [(c["name"], c["text"]) for c in cell.of("stream")] == [
        ("stdout", "starting\n"),
        ("stderr", "warning\n"),
    ]


def test_equal_text_of_different_streams_is_not_the_same():
    cell = Cell(2)
    cell.feed(0, "x\n")
    cell.feed(1, "x\n", "stderr")
    cell.feed(0, "\0stderr\0y\n")
    cell.feed(1, "y\n", "stderr")
    cell.close()
    assert sorted((c["name"], c["text"]) for c in cell.of("stream")) == [
        ("stderr", "1 │ x\n"),
        ("stderr", "1 │ y\n"),
        ("stdout", "0 │ \0stderr\0y\n"),
        ("stdout", "0 │ x\n"),
    ]


def test_a_question_follows():
    cell = Cell(2)
    cell.feed(0, "name? ")
    cell.cut(0)
    assert cell.text == "0 │ name? "
    cell.feed(1, "x\n")
    cell.close()
    assert cell.text == "0 │ name? \n1 │ x\n"


def test_no_message_is_longer_than_a_megabyte():
    cell = Cell(2)
    cell.feed_all("\x1b€é\n" * 100_000)
    cell.close()
    assert len(cell.published) > 1
    assert all(len(p.content) <= 1_000_000 for p in cell.published)
    assert cell.text == "\x1b€é\n" * 100_000


def test_what_may_wait_is_bounded():
    cell = Cell(4)
    for _ in range(1500):
        cell.feed(0, "x" * 9_999 + "\n")
    assert sum(len(c["text"]) for c in cell.of("stream")) > 1_900_000


def test_a_rank_that_says_much_had_better_not_be_heard_for_a_while():
    cell = Cell(2)
    cell.feed_all("same\n")
    for number in range(80):
        cell.feed(1, "".join(f"{number} {line}\n" for line in range(1000)))
    assert cell.outputs.full() == {1}
    cell.wait(1)  # it is due, and goes out in slices
    assert not cell.outputs.full()


def test_what_may_wait_behind_a_result_is_bounded():
    cell = Cell(2)
    cell.feed(0, result("42"))
    for _ in range(130):
        assert not cell.outputs.full()  # to wait for more would be in vain
        cell.feed(0, "x" * 99_999 + "\n")
    assert len(cell.of("execute_result")) == 1


def test_bytes_that_are_no_text_leave_as_they_came():
    cell = Cell(2)
    raw = b'{"name":"stdout","text":"\xff\\n"}'
    for rank in cell.ranks:
        cell.feed(rank, Message({"msg_type": "stream"}, {}, {}, raw))
    assert [p.content for p in cell.published] == [raw]


# ---------------------------------------------------------------- displays


def test_displays_of_some_are_captioned_once():
    cell = Cell(4)
    cell.feed(1, display(PNG))
    cell.feed(1, display(PNG | {"text/plain": "b"}))
    cell.feed(2, display(PNG | {"text/plain": "c"}))
    cell.wait(1)
    got = [(c["data"]["text/plain"], spmd(c)) for c in cell.of("display_data")]
    assert got == [
        ("1 │", {"ranks": [1], "role": "caption"}),
        ("<Figure>", {"ranks": [1]}),
        ("b", {"ranks": [1]}),
        ("2 │", {"ranks": [2], "role": "caption"}),
        ("c", {"ranks": [2]}),
    ]


def test_text_of_others_ends_a_caption():
    cell = Cell(2)
    cell.feed(1, display(PNG))
    cell.wait(1)
    cell.feed(0, "x\n")
    cell.wait(1)
    cell.feed(1, display(PNG))
    cell.wait(1)
    assert [spmd(c).get("role") for c in cell.of("display_data")] == ["caption", None] * 2


def test_a_display_of_nothing_but_text_carries_labels():
    cell = Cell(2)
    cell.feed(1, display("a\nb"))
    cell.wait(1)
    (content,) = cell.of("display_data")
    assert content["data"] == {"text/plain": "1 │ a\n1 │ b"}
    assert spmd(content) == {"ranks": [1]}


def test_metadata_stays_and_rich_content_is_not_encoded_again():
    raw = b'{ "data" : {"image/png":"A\\u0042", "text/plain": "x"},"metadata":{"image/png":{"width":3}}}'
    cell = Cell(2)
    for rank in cell.ranks:
        cell.feed(rank, Message({"msg_type": "display_data"}, {}, {"m": 1}, raw))
    (published,) = cell.published
    assert b'"data":{"image/png":"A\\u0042", "text/plain": "x"}' in published.content
    assert json.loads(published.content)["metadata"] == {
        "image/png": {"width": 3},
        "spmd": {"ranks": [0, 1]},
    }
    assert published.metadata == {"m": 1}


def test_displays_with_an_id_stay_apart_and_are_updated_from_a_later_cell():
    ids = DisplayIds()
    cell = Cell(2, display_ids=ids)
    cell.feed_all(display(PNG, display_id="x"))
    cell.close()
    shown = [c for c in cell.of("display_data") if "role" not in spmd(c)]
    assert [spmd(c)["ranks"] for c in shown] == [[0], [1]]
    later = Cell(2, display_ids=ids)
    update = {"data": {"text/plain": "y"}, "metadata": {}, "transient": {"display_id": "x"}}
    later.feed(1, message("update_display_data", **update))
    (content,) = later.of("update_display_data")
    assert content["transient"]["display_id"] == shown[1]["transient"]["display_id"]
    assert shown[0]["transient"]["display_id"] != shown[1]["transient"]["display_id"]


def test_buffers_travel_with_their_display():
    cell = Cell(2)
    sent = display(PNG)
    cell.feed(0, Message(sent.header, {}, {}, sent.content, (b"raw",)))
    cell.close()
    assert [p.buffers for p in cell.published] == [(), (b"raw",)]


# ---------------------------------------------------------------- results


def test_a_result_of_all():
    cell = Cell(4)
    cell.feed_all(result("42"))
    assert not cell.published
    cell.finish()
    (content,) = cell.of("execute_result")
    assert content == {
        "data": {"text/plain": "42"},
        "metadata": {"spmd": {"ranks": [0, 1, 2, 3]}},
        "execution_count": 3,
    }


def test_one_result_per_value_in_order_of_ranks():
    cell = Cell(4)
    for rank in (3, 1, 2, 0):
        cell.feed(rank, result("odd\nx" if rank % 2 else "even\nx"))
        cell.finish(rank)
    assert [c["data"]["text/plain"] for c in cell.of("execute_result")] == [
        "0,2 │ even\n0,2 │ x",
        "1,3 │ odd\n1,3 │ x",
    ]


def test_a_rich_result_of_some_has_a_caption():
    cell = Cell(2)
    cell.feed(1, result(PNG))
    cell.finish()
    assert [kind for kind, _ in cell.contents] == ["display_data", "execute_result"]
    assert cell.of("display_data")[0]["data"] == {"text/plain": "1 │"}
    assert cell.of("execute_result")[0]["data"] == PNG


def test_text_of_all_comes_before_results_and_figures_after_them():
    cell = Cell(2)
    cell.feed(0, result("0"))
    cell.feed(0, display(PNG))
    cell.finish(0)
    cell.wait(3)
    cell.feed(1, "late\n")
    cell.feed(1, result("1"))
    cell.feed(1, display(PNG))
    assert cell.text == "1 │ late\n"
    cell.finish(1)
    assert [kind for kind, _ in cell.contents][-3:] == ["execute_result"] * 2 + ["display_data"]
    assert spmd(cell.of("display_data")[0]) == {"ranks": [0, 1]}


# ---------------------------------------------------------------- errors


def test_one_error_of_all_is_plain():
    cell = Cell(4)
    cell.feed_all(error("no"))
    assert [p.content for p in cell.published] == [error("no").content]


def test_ranks_that_are_slow_to_fail_alike_give_one_error():
    cell = Cell(4)
    for rank in range(3):
        cell.feed(rank, f"{rank} says\n")
        cell.feed(rank, error("no"))
        cell.finish(rank)
        cell.wait(0.15)
        assert f"{rank} says" in cell.text, "what it said before does not wait as long"
    cell.wait(0.5)
    (content,) = cell.of("error")
    assert content["traceback"][0].startswith("0-2 │ ---")


def test_errors_are_not_held_for_running_ranks():
    cell = Cell(3)
    cell.feed(1, error("no"))
    cell.wait(0.5)
    (content,) = cell.of("error")
    assert content["traceback"][0].startswith("1 │ ---")
    assert (content["ename"], content["evalue"]) == ("ValueError", "no")


def test_the_rank_that_failed_first_comes_first():
    cell = Cell(4)
    cell.feed(3, "text\n")
    cell.feed(3, error("first"))
    cell.wait(0.03)
    for rank in (0, 1):
        cell.feed(rank, error("then"))
        cell.finish(rank)
    cell.wait(1)
    assert [c["evalue"] for c in cell.of("error")] == ["first", "then"]
    assert cell.of("error")[1]["traceback"][0].startswith("0-1 │ ")
    rank, content = cell.outputs.root_cause
    assert (rank, content["evalue"]) == (3, "first")
    cell.feed(2, error("then"))
    cell.close()
    assert cell.of("error")[2]["traceback"][0].startswith("2 │ ")


def test_an_error_releases_a_result_before_it():
    cell = Cell(2)
    cell.feed(0, result("1"))
    cell.feed(0, error("no"))
    cell.wait(0.5)
    assert [kind for kind, _ in cell.contents] == ["execute_result", "error"]


def test_an_error_without_traceback_still_names_its_rank():
    cell = Cell(2)
    cell.feed(1, message("error", ename="E", evalue="v", traceback=[]))
    cell.close()
    assert cell.of("error")[0]["traceback"] == ["1 │ E: v"]


# ---------------------------------------------------------------- progress bars


def bar(step):
    return f"\rbar {step}% [00:0{step % 10}<00:01, {step}.1it/s]"


def test_a_bar_is_seen_while_it_runs_and_ends_as_one_line():
    cell = Cell(2)
    for step in range(0, 101, 5):
        cell.feed_all(bar(step), "stderr")
        cell.wait(0.1)
    live = [c for kind, c in cell.contents if "live" in spmd(c)]
    assert 10 <= len(live) <= 21
    assert len(cell.of("display_data")) == 1
    assert live[-1]["data"]["text/plain"].split("\n")[1].startswith("1 │ bar 100%")
    cell.feed_all("\n", "stderr")
    cell.finish()
    cell.close()
    assert cell.text.startswith("bar 100%")
    assert cell.text.count("\n") == 1
    assert cell.shown()[0][1]["data"] == {"text/plain": ""}


def test_a_short_bar_leaves_no_slot():
    cell = Cell(2)
    for step in (10, 50, 100):
        cell.feed_all(bar(step))
    cell.feed_all("\n")
    cell.close()
    assert not cell.of("display_data")
    assert cell.text.count("bar") == 1


def test_a_bar_without_a_newline_keeps_its_last_state():
    cell = Cell(2)
    cell.feed_all(bar(10))
    cell.wait(1)
    cell.feed_all(bar(99))
    cell.finish()
    cell.close()
    ((_, content),) = cell.shown()
    assert content["data"]["text/plain"].count("bar 99%") == 2
    short = Cell(2)
    short.feed_all(bar(99))
    short.close()
    assert short.text.startswith("bar 99%")


def test_a_bar_that_was_wiped_leaves_nothing():
    cell = Cell(2)
    cell.feed_all(bar(99))
    cell.feed_all("\r" + " " * 60 + "\r")
    cell.close()
    assert not cell.published


def test_a_bar_with_its_carriage_return_at_the_end():
    cell = Cell(2)
    for step in range(5):
        cell.feed_all(f"step {step}\r")
        cell.wait(0.7)
    cell.feed_all("done  \n")
    cell.close()
    assert cell.text == "done\n"
    assert cell.of("display_data")


def test_many_bars_are_summed_up():
    cell = Cell(12)
    for rank in cell.ranks:
        cell.feed(rank, f"\rbar {50 + rank}%")
    cell.wait(1)
    (content,) = cell.of("display_data")
    assert content["data"]["text/plain"] == " 0-11 │ 50% to 61%, slowest:\n 0 │ bar 50%".strip()


# ---------------------------------------------------------------- clear_output


@pytest.mark.parametrize("wait", [True, False])
def test_all_clear(wait):
    cell = Cell(2)
    cell.feed_all("old\n")
    cell.feed_all(message("clear_output", wait=wait))
    cell.feed_all("new\n")
    assert cell.of("clear_output") == [{"wait": wait}]
    assert [c["text"] for _, c in cell.shown()] == ["new\n"]


def test_a_rank_that_clears_alone_replaces_its_own_outputs():
    cell = Cell(2)
    for step in range(3):
        cell.feed(1, f"other {step}\n")
        cell.feed(0, message("clear_output", wait=True))
        cell.feed(0, f"step {step}\n")
        cell.feed(0, display(PNG | {"text/plain": f"figure {step}"}))
        cell.wait(1)
    cell.close()
    assert not cell.of("clear_output")
    shown = cell.shown()
    assert "".join(c["text"] for kind, c in shown if kind == "stdout") == "".join(
        f"1 │ other {step}\n" for step in range(3)
    )
    slots = [c for kind, c in shown if kind == "display_data"]
    assert [c["data"]["text/plain"] for c in slots] == ["0 │ step 2", "figure 2"]
    assert [spmd(c) for c in slots] == [{"ranks": [0]}] * 2


def test_slots_that_are_not_needed_again_are_emptied():
    cell = Cell(2)
    cell.feed(0, message("clear_output", wait=False))
    cell.feed(0, "a\n")
    cell.feed(0, display(PNG))
    cell.wait(1)
    cell.feed(0, message("clear_output", wait=False))
    cell.feed(0, "b\n")
    cell.close()
    assert [c["data"] for _, c in cell.shown()] == [{"text/plain": "0 │ b"}, {"text/plain": ""}]


def test_a_slot_is_not_sent_again_for_ever():
    cell = Cell(2)
    cell.feed(0, message("clear_output", wait=False))
    for _ in range(100):
        cell.feed(0, "x" * 4999 + "\n")
        cell.wait(1)
    cell.close()
    assert sum(len(p.content) for p in cell.published) < 2_000_000
    assert json.dumps(cell.shown()).count("x" * 4999) == 100


# ---------------------------------------------------------------- the rest


def test_other_messages_are_not_outputs():
    cell = Cell(2)
    cell.feed(0, message("status", execution_state="busy"))
    cell.feed(0, message("execute_input", code="x"))
    assert not cell.published


@pytest.mark.parametrize(
    "bad",
    [
        stream(3),
        message("display_data", data=[]),
        message("update_display_data", data={}, metadata={}),
        message("error", traceback="x"),
        Message({"msg_type": "clear_output"}, {}, {}, b"[]"),
        Message({"msg_type": "display_data"}, {}, {}, b'{"data":'),
        Message({"msg_type": "display_data"}, {}, {}, b"{1:{}}"),
    ],
)
def test_a_bad_message_changes_nothing(bad):
    cell = Cell(2)
    cell.feed(0, "a")
    with pytest.raises(BadMessage):
        cell.feed(0, bad)
    cell.feed(0, "b\n")
    cell.close()
    assert cell.text == "0 │ ab\n"


def test_what_comes_after_the_end_is_published_at_once():
    cell = Cell(2)
    cell.close()
    cell.feed(1, "thread")
    cell.feed(0, result("1"))
    cell.feed(0, "\rbar")
    assert [c["text"] for c in cell.of("stream")] == ["1 │ thread", "0 │ bar"]
    assert len(cell.of("execute_result")) == 1


def test_a_rank_that_does_not_run_the_cell_may_speak():
    cell = Cell(4, ranks=(0, 1))
    cell.feed(3, "thread\n")
    cell.feed_all("x\n")
    cell.close()
    assert "3 │ thread\n" in cell.text
    assert "x\n" in cell.text.split("3 │ thread\n")


def calls(size, lines, chunk, agree):
    """How many function calls it takes: the same work counted, not timed."""
    import sys

    outputs = CellOutputs(tuple(range(size)), size)
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    texts = [
        [
            stream("".join(f"{'' if agree else rank} line {i}\n" for i in range(at, at + chunk)))
            for at in range(0, lines, chunk)
        ]
        for rank in range(size)
    ]
    sys.setprofile(trace)
    try:
        for index in range(lines // chunk):
            for rank in range(size):
                outputs.feed(rank, texts[rank][index], index * 0.001)
                outputs.deadline()
        outputs.close(9.0)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("chunk", "agree"), [(50, True), (50, False), (1, True), (1, False)])
def test_cost_is_linear(chunk, agree):
    assert calls(4, 2000, chunk, agree) < 2.3 * calls(4, 1000, chunk, agree)
