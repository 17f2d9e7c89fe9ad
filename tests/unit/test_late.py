"""Output that belongs to no running round is never dropped, and it finds its cell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spmd_kernel.core.model import Message, ToFront

from ..world import FakeRank, World, start


def say(world: World, fake: FakeRank, text: str, parent: Message | None) -> None:
    world.say(fake, "iopub", "stream", {"name": "stdout", "text": text}, parent)


def streams(world: World) -> list[tuple[str, str]]:
    """Parent id and text of every stream message, in order."""
    found = [e for e in world.effects if isinstance(e, ToFront) and e.msg_type == "stream"]
    return [(str(e.parent.get("msg_id", "")), json.loads(e.content)["text"]) for e in found]


def test_a_thread_prints_into_its_own_cell_for_ever() -> None:
    world = start(2)
    first = world.run("thread()")
    world.run("other()")
    say(world, world.ranks[1], "late\n", first.message)
    world.settle()
    assert streams(world) == [(first.message.msg_id, "1 │ late\n")]
    say(world, world.ranks[0], "later\n", first.message)
    world.settle()
    assert first.text == "1 │ late\n0 │ later\n"


def test_text_of_all_ranks_at_once_is_folded_like_any_other() -> None:
    world = start(2)
    cell = world.run("thread()")
    for fake in world.ranks.values():
        say(world, fake, "same\n", cell.message)
    world.settle()
    assert cell.text == "same\n"


def test_at_world_size_1_it_is_what_the_rank_sent() -> None:
    world = start(1)
    cell = world.run("thread()")
    raw = b'{ "name": "stdout", "text": "x" }'
    world.say(world.ranks[0], "iopub", "stream", raw, cell.message, {"m": 1}, (b"b",))
    (got,) = cell.of("stream")
    assert (got.content, got.metadata, got.buffers) == (raw, {"m": 1}, (b"b",))
    assert not world.timers


def test_output_of_our_own_requests_goes_to_the_running_then_the_last_cell() -> None:
    world = start(2)
    own = Message({"msg_id": "own_1", "session": "own", "msg_type": "execute_request"}, {}, {}, b"")
    cell = world.execute("work()")
    say(world, world.ranks[0], "a\n", own)
    world.settle()
    say(world, world.ranks[0], "b\n", own)
    world.settle()
    assert [parent for parent, _ in streams(world)] == [cell.message.msg_id] * 2


def test_before_any_cell_it_has_no_parent() -> None:
    world = start(2)
    own = Message({"msg_id": "own_1", "session": "own", "msg_type": "execute_request"}, {}, {}, b"")
    say(world, world.ranks[0], "a\n", own)
    say(world, world.ranks[1], "b\n", None)
    world.settle()
    assert streams(world) == [("", "0 │ a\n1 │ b\n")]


def test_what_was_given_late_comes_before_the_idle_of_its_cell() -> None:
    world = start(2)
    cell = world.execute("work()")
    query = Message({"msg_id": "q", "session": "c", "msg_type": "complete_request"}, {}, {}, b"")
    say(world, world.ranks[0], "t", query)
    for fake in list(world.ranks.values()):
        world.answer_shell(fake)
    assert cell.text.strip() == "0 │ t"
    assert ("late", cell.message.msg_id) not in world.timers
    assert cell.kinds[-1] == "status"


def test_a_cell_that_has_not_begun_gets_nothing_yet() -> None:
    world = start(2)
    running, queued = world.execute("a"), world.execute("b")
    say(world, world.ranks[0], "x\n", queued.message)
    assert queued.effects == []
    world.settle()
    assert running.text == "0 │ x\n"


def test_rounds_of_line_magics_are_rounds_of_their_cell() -> None:
    world = start(2)
    cell = world.execute("%rank 0 x\ny = 1")
    round_ = world.ranks[0].inbox[0]
    assert round_.msg_id != cell.message.msg_id
    world.settle()
    say(world, world.ranks[0], "late\n", round_)
    world.settle()
    assert cell.text == "0 │ late\n"
    assert all(parent == cell.message.msg_id for parent, _ in streams(world))


def test_a_rank_outside_of_the_round_speaks_into_the_cell() -> None:
    world = start(2)
    cell = world.execute("%%rank 0\nx")
    say(world, world.ranks[1], "thread\n", cell.message)
    world.settle()
    assert cell.text == "1 │ thread\n"


@pytest.mark.parametrize("size", [1, 2])
def test_nonsense_is_passed_on_as_it_came(size: int) -> None:
    world = start(size)
    cell = world.run("x")
    world.say(world.ranks[0], "iopub", "display_data", b"[1]", cell.message)
    world.settle()
    assert [e.content for e in cell.of("display_data")] == [b"[1]"]


def test_shutdown_shows_what_was_still_held() -> None:
    world = start(2)
    cell = world.run("x")
    say(world, world.ranks[0], "bye", cell.message)
    shutdown = world.ask("shutdown_request", {}, channel="control")
    world.settle()
    assert "bye" in cell.text
    kinds: list[Any] = [e.msg_type for e in world.effects if isinstance(e, ToFront)]
    assert kinds.index("stream") < kinds.index("shutdown_reply")
    assert shutdown.reply == {"status": "ok", "restart": False}


def test_a_rank_that_is_gone_says_no_more() -> None:
    world = start(2)
    cell = world.run("x")
    gone = world.ranks[1]
    world.die(gone)
    before = len(world.effects)
    say(world, gone, "ghost\n", cell.message)
    world.settle()
    assert not [e for e in world.effects[before:] if isinstance(e, ToFront)]


def query() -> Message:
    return Message({"msg_id": "q", "session": "c", "msg_type": "complete_request"}, {}, {}, b"")


@pytest.mark.parametrize("size", [1, 2])
def test_a_thread_that_a_query_has_renamed_stays_in_order(size: int) -> None:
    world = start(size)
    cell = world.execute("work()")
    parents = [cell.message, query(), cell.message, query(), query(), cell.message]
    for number, parent in enumerate(parents):
        say(world, world.ranks[0], f"{number}\n", parent)
    world.settle()
    lines = [line.removeprefix("0 │ ") for line in cell.text.splitlines()]
    assert lines == [str(number) for number in range(len(parents))]


def test_a_thread_that_a_widget_has_renamed_is_heard() -> None:
    world = start(2)
    cell = world.run("widget()")
    fake = world.ranks[0]
    world.say(fake, "iopub", "comm_open", {"comm_id": "k", "target_name": "t"}, cell.message)
    moved = world.ask("comm_msg", {"comm_id": "k", "data": {}})
    say(world, fake, "callback\n", moved.message)
    world.settle()
    say(world, fake, "thread\n", moved.message)
    world.settle()
    assert (moved.text, cell.text) == ("0 │ callback\n", "0 │ thread\n")


def test_last_words_name_nobody_and_belong_to_the_cell_at_hand() -> None:
    world = start(2)
    cell = world.execute("%restart all")
    old = list(world.ranks.values())
    while not old[1].stopping:
        assert world.step()
    for fake in old:
        say(world, fake, f"bye {fake.rank}\n", None)
    world.settle()
    assert "0 │ bye 0\n1 │ bye 1\n" in cell.text


def test_last_words_come_before_the_end_of_the_kernel() -> None:
    world = start(2)
    cell = world.run("x")
    world.ask("shutdown_request", {}, channel="control")
    say(world, world.ranks[1], "bye\n", None)
    world.settle()
    assert cell.text == "1 │ bye\n"
    kinds = [e.msg_type for e in world.effects if isinstance(e, ToFront)]
    assert kinds.index("stream") < kinds.index("shutdown_reply")


@pytest.mark.parametrize("output", ["live", "grouped"])
def test_it_goes_on_below_a_line_that_the_cell_has_left_unfinished(output: str) -> None:
    world = start(2, output=output)
    cell = world.execute("thread()")
    say(world, world.ranks[1], "0", None)
    say(world, world.ranks[1], "0", world.ranks[1].inbox[0])
    world.settle()
    say(world, world.ranks[0], "01", cell.message)
    world.settle()
    say(world, world.ranks[0], "2", cell.message)
    world.settle()
    say(world, world.ranks[1], "12\n", cell.message)
    world.settle()
    assert cell.text == "1 │ 00\n0 │ 012\n1 │ 12\n"


def test_what_cells_have_left_unfinished_is_not_kept_for_ever() -> None:
    world = start(2)
    for _ in range(200):
        cell = world.execute("x")
        say(world, world.ranks[0], "x", cell.message)
        world.settle()
    assert len(world.hub.late._unfinished) < 100
