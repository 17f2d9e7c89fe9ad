"""Output widgets and the restoring of a page, through the whole hub."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spmd_kernel.core.model import Interrupt, Message

from ..world import FakeRank, Sent, World, start

CONTROL = {"comm_id": "control", "target_name": "jupyter.widget.control", "data": {}}
QUESTION = {"comm_id": "control", "data": {"method": "request_states"}}


def output_widget(world: World, fake: FakeRank, comm_id: str) -> None:
    state = {"_model_name": "OutputModel", "msg_id": ""}
    content = {"comm_id": comm_id, "target_name": "jupyter.widget", "data": {"state": state}}
    world.say(fake, "iopub", "comm_open", content, fake.inbox[0])


def switch(
    world: World, fake: FakeRank, comm_id: str, msg_id: str | None = None, **more: Any
) -> None:
    """``msg_id``: by default that of the request at hand."""
    state = {"msg_id": fake.inbox[0].msg_id if msg_id is None else msg_id, **more}
    data = {"method": "update", "state": state, "buffer_paths": []}
    content = {"comm_id": comm_id, "data": data}
    world.say(fake, "iopub", "comm_msg", content, fake.inbox[0])


def say(world: World, fake: FakeRank, text: str) -> None:
    world.say(fake, "iopub", "stream", {"name": "stdout", "text": text}, fake.inbox[0])


def begun(size: int, **cell: Any) -> tuple[World, Sent, list[FakeRank]]:
    """A cell on all ranks, each of which has made an Output widget."""
    world = start(size)
    sent = world.execute("with out: ...", **cell)
    fakes = list(world.ranks.values())
    for fake in fakes:
        output_widget(world, fake, f"out-{fake.rank}")
    return world, sent, fakes


def story(sent: Sent) -> list[Any]:
    """Text, and (widget, state) of what widgets say."""
    found: list[Any] = []
    for effect in sent.of("stream", "comm_msg"):
        content = json.loads(effect.content)
        found.append(
            content["text"]
            if effect.msg_type == "stream"
            else (content["comm_id"], content["data"]["state"])
        )
    return found


def around(sent: Sent, comm_id: str, text: str) -> list[Any]:
    msg_id = sent.message.msg_id
    return [(comm_id, {"msg_id": msg_id}), text, (comm_id, {"msg_id": ""})]


def test_two_widgets_at_once_take_their_own_ranks_text() -> None:
    world, cell, (zero, one) = begun(2)
    switch(world, zero, "out-0")
    switch(world, one, "out-1")
    assert story(cell) == [], "clients would give all to the last one"
    say(world, zero, "of 0\n")
    say(world, one, "of 1\n")
    switch(world, zero, "out-0", "")
    say(world, zero, "free\n")
    say(world, one, "more\n")
    world.settle()
    assert story(cell) == [
        *around(cell, "out-0", "of 0\n"),
        *around(cell, "out-1", "of 1\n"),
        *around(cell, "out-1", "more\n"),
        "0 │ free\n",
    ]


def test_the_innermost_widget_takes_it() -> None:
    world, cell, (zero, _) = begun(2)
    output_widget(world, zero, "inner")
    switch(world, zero, "out-0")
    switch(world, zero, "inner")
    say(world, zero, "a\n")
    switch(world, zero, "inner", "")
    say(world, zero, "b\n")
    assert story(cell) == [*around(cell, "inner", "a\n"), *around(cell, "out-0", "b\n")]


def held_reply() -> tuple[World, Sent]:
    """nbclient's cell is over on the ranks, and it still has to send what a widget took."""
    world, cell, (zero, one) = begun(2, allow_stdin=False)
    switch(world, zero, "out-0")
    say(world, zero, "a\n")
    for fake in (zero, one):
        world.answer_shell(fake)
    assert "execute_reply" not in cell.kinds
    return world, cell


def test_a_headless_client_gets_its_reply_when_it_has_sent_what_its_widgets_took() -> None:
    world, cell = held_reply()
    world.ask("comm_msg", {"comm_id": "out-0", "data": {"method": "update", "state": {}}})
    assert (cell.reply["status"], cell.states) == ("ok", ["busy", "idle"])
    assert "echoes" not in world.timers


def test_a_client_that_sends_nothing_gets_its_reply_too() -> None:
    world, cell = held_reply()
    world.fire("echoes")
    assert (cell.reply["status"], cell.states) == ("ok", ["busy", "idle"])


def test_a_widget_that_its_rank_took_along_is_not_waited_for() -> None:
    world, cell = held_reply()
    world.die(world.ranks[0])
    assert (cell.reply["status"], cell.states) == ("ok", ["busy", "idle"])


def test_a_held_reply_comes_before_the_end_of_the_kernel() -> None:
    world, cell = held_reply()
    end = world.ask("shutdown_request", {"restart": False}, channel="control")
    assert cell.reply["status"] == "ok"
    world.settle()
    assert end.reply["status"] == "ok"


def test_what_else_a_widget_says_goes_on() -> None:
    world, cell, (zero, _) = begun(2)
    switch(world, zero, "out-0", layout="x")
    switch(world, zero, "out-0", "", outputs=[])
    switch(world, zero, "out-0", "")
    assert story(cell) == [
        ("out-0", {"layout": "x"}),
        ("out-0", {"outputs": []}),
        ("out-0", {"msg_id": ""}),  # it ends nothing that we know of
    ]


def test_a_closed_widget_and_a_dead_rank_take_nothing() -> None:
    world, cell, (zero, one, _two) = begun(3)
    for fake in (zero, one):
        switch(world, fake, f"out-{fake.rank}")
    world.say(zero, "iopub", "comm_close", {"comm_id": "out-0", "data": {}}, zero.inbox[0])
    say(world, zero, "free\n")
    world.die(one)
    world.settle()
    assert story(cell) == ["0 │ free\n"]
    new = world.run("%restart 1\n1")
    assert new.reply["status"] == "ok"


def test_marks_and_display_ids_are_those_of_any_output() -> None:
    world, cell, (zero, one) = begun(2)
    for fake in (zero, one):
        switch(world, fake, f"out-{fake.rank}")
    world.hub.stage.policy = type(world.hub.stage.policy)(marks=True)
    say(world, zero, "one\n\x1fwrite\n")
    display = {"data": {"text/html": "x"}, "metadata": {}, "transient": {"display_id": "d"}}
    for fake in (zero, one):
        world.say(fake, "iopub", "display_data", display, fake.inbox[0], buffers=(b"b",))
        world.say(fake, "iopub", "update_display_data", display, fake.inbox[0])
    world.settle()
    assert around(cell, "out-0", "one\nwrite\n") == story(cell)[:3]
    shown = cell.of("display_data")
    contents = [json.loads(effect.content) for effect in shown]
    assert [c["metadata"]["spmd"]["ranks"] for c in contents] == [[0], [1]]
    assert [effect.buffers for effect in shown] == [(b"b",)] * 2
    ids = [content["transient"]["display_id"] for content in contents]
    updates = [json.loads(e.content)["transient"] for e in cell.of("update_display_data")]
    assert len(set(ids)) == 2 and [{"display_id": name} for name in ids] == updates


def test_an_error_that_is_shown_and_survived_stops_nobody() -> None:
    for size in (1, 2):
        world, _, fakes = begun(size, allow_stdin=False)  # headless: a failure stops the others
        error = {"ename": "E", "evalue": "v", "traceback": ["E: v"]}
        switch(world, fakes[0], "out-0")
        world.say(fakes[0], "iopub", "error", error, fakes[0].inbox[0])
        for key in list(world.timers):
            world.fire(key)
        assert not any(isinstance(effect, Interrupt) for effect in world.effects)


def test_garbage_is_shown_as_it_came() -> None:
    world, cell, (zero, _) = begun(2)
    switch(world, zero, "out-0")
    world.say(zero, "iopub", "display_data", b'{"data"', zero.inbox[0])
    (shown,) = cell.of("display_data")
    assert shown.content == b'{"data"'
    assert world.logs[-1].level == "warning"


# ---------------------------------------------------------------- a page is loaded again


def asked(size: int) -> tuple[World, Sent, list[FakeRank]]:
    world = start(size)
    world.ask("comm_open", CONTROL)
    world.settle()
    question = world.ask("comm_msg", QUESTION)
    return world, question, list(world.ranks.values())


def answers(question: Sent) -> list[dict[str, Any]]:
    return [json.loads(e.content)["data"]["states"] for e in question.of("comm_msg")]


def states(fake: FakeRank, found: dict[str, Any], paths: list[Any] | None = None) -> Any:
    data = {"method": "update_states", "states": found, "buffer_paths": paths or []}
    return (fake, "iopub", "comm_msg", {"comm_id": "control", "data": data}, fake.inbox[0])


def test_all_states_are_one_answer_before_idle() -> None:
    world, question, fakes = asked(3)
    for fake in reversed(fakes):
        assert not answers(question)
        world.answer_shell(fake)
    (merged,) = answers(question)
    assert list(merged) == ["widget-0", "widget-1", "widget-2"]
    (effect,) = question.of("comm_msg")
    assert effect.buffers == (b"\0", b"\1", b"\2") and effect.metadata == {}
    paths = json.loads(effect.content)["data"]["buffer_paths"]
    assert paths == [[f"widget-{rank}", "state", "image"] for rank in range(3)]
    assert question.kinds == ["status", "comm_msg", "status"]


def test_of_a_widget_that_two_ranks_have_the_lower_ranks_state_counts() -> None:
    world, question, (zero, one) = asked(2)
    world.say(*states(one, {"w": 1, "x": 1}, [["x", "a"], ["w", "b"]]), buffers=(b"x1", b"w1"))
    world.say(*states(zero, {"w": 0}, [["w", "b"]]), buffers=(b"w0",))
    world.say(*states(zero, {"w": 2}))  # a second answer counts for nothing
    zero.inbox[0] = one.inbox[0] = Message(zero.inbox[0].header, {}, {}, b"{}")
    world.settle()
    assert answers(question) == [{"w": 0, "x": 1}]
    assert question.of("comm_msg")[0].buffers == (b"w0", b"x1")


@pytest.mark.parametrize("late", [False, True])
def test_states_of_a_dead_rank_are_missing(late: bool) -> None:
    world = start(2)
    world.ask("comm_open", CONTROL)
    world.settle()
    if not late:
        world.die(world.ranks[1])
    question = world.ask("comm_msg", QUESTION)
    if late:
        world.die(world.ranks[1])
    world.settle()
    assert answers(question) == [{"widget-0": {"state": {"rank": 0}}}]
    assert question.of("comm_msg")[0].metadata == {"spmd": {"ranks": [0], "missing": [1]}}
    assert world.logs[-1].text == "widgets of dead ranks cannot be restored: rank 1"


def test_a_rank_that_answers_and_dies_is_not_missing() -> None:
    world, question, (zero, one) = asked(2)
    world.tell_states(one, one.inbox[0])
    world.die(one)
    world.answer_shell(zero)
    assert [sorted(found) for found in answers(question)] == [["widget-0", "widget-1"]]
    assert question.of("comm_msg")[0].metadata == {}


def test_ranks_without_widgets_say_nothing() -> None:
    world, question, fakes = asked(2)
    for fake in fakes:
        fake.inbox[0] = Message(fake.inbox[0].header, {}, {}, b"{}")
    world.settle()
    assert question.kinds == ["status", "status"]


def test_nonsense_instead_of_states_is_left_out() -> None:
    world, question, (zero, one) = asked(2)
    world.say(*states(zero, {"w": 0}, [["w", "b"]]))  # the buffer is missing
    zero.inbox[0] = Message(zero.inbox[0].header, {}, {}, b"{}")
    assert "rank 0: states of its widgets dropped" in world.logs[-1].text
    world.answer_shell(one)
    world.answer_shell(zero)
    assert [list(found) for found in answers(question)] == [["widget-1"]]


def test_one_rank_answers_as_it_does_without_us() -> None:
    world, question, (zero,) = asked(1)
    world.answer_shell(zero)
    assert question.kinds == ["status", "comm_msg", "status"]
    assert question.of("comm_msg")[0].content.startswith(b'{"comm_id": "control", ')


def test_a_comm_that_others_still_have_is_not_closed_for_clients() -> None:
    world = start(2)
    opened = world.ask("comm_open", {"comm_id": "k", "target_name": "t", "data": {}})
    close = {"comm_id": "k", "data": {}}
    world.say(world.ranks[0], "iopub", "comm_close", close, opened.message)
    assert not opened.of("comm_close")
    world.say(world.ranks[1], "iopub", "comm_close", close, opened.message)
    assert len(opened.of("comm_close")) == 1


@pytest.mark.parametrize("size", [1, 2])
def test_a_page_is_restored_while_a_cell_runs(size: int) -> None:
    world = start(size, subshells=True)
    world.quiet()
    cell = world.execute("train()")
    opened = world.ask("comm_open", CONTROL)
    question = world.ask("comm_msg", QUESTION)
    for fake in world.ranks.values():
        (private,) = fake.subshells
        world.answer_subshell(fake, private)
        world.answer_subshell(fake, private)
    assert opened.states == question.states == ["busy", "idle"]
    assert len(answers(question)) == 1 and not cell.replies
    world.settle()
    again = world.ask("comm_msg", QUESTION)  # by the same way: the comm is known there
    assert all(len(fake.inbox) == 0 for fake in world.ranks.values())
    world.settle()
    assert len(answers(again)) == 1


def test_ranks_at_rest_are_asked_in_their_main_shells() -> None:
    world = start(2, subshells=True)
    world.quiet()
    world.ask("comm_open", CONTROL)
    world.ask("comm_msg", QUESTION)
    assert [len(fake.inbox) for fake in world.ranks.values()] == [2, 2]
    world.settle()
