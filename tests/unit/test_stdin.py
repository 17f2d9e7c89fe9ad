"""input(), getpass and pdb: one question at a time, answered to the ranks that asked it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spmd_kernel.core.model import FromFront, Message, Signalled, ToFront, ToRank

from ..world import World, start


def shown(world: World) -> list[str]:
    return [content["prompt"] for content in contents(world)]


def contents(world: World) -> list[Any]:
    return [json.loads(effect.content) for effect in questions(world)]


def questions(world: World) -> list[ToFront]:
    return [e for e in world.effects if isinstance(e, ToFront) and e.channel == "stdin"]


def asking(size: int, code: str = "input()", **content: Any) -> World:
    world = start(size)
    world.execute(code, **content)
    return world


def test_one_rank_asks_as_it_is() -> None:
    world = start(1)
    cell = world.execute("input('name? ')", client=b"somebody")
    world.question(world.ranks[0], "name? ")
    (question,) = questions(world)
    assert question.idents == (b"somebody",)
    assert question.parent == cell.message.header
    assert question.msg_type == "input_request"
    assert json.loads(question.content) == {"prompt": "name? ", "password": False}
    world.answer("Ann")
    assert world.ranks[0].answers == ["Ann"]
    world.settle()
    assert cell.reply["status"] == "ok"


def test_equal_prompts_are_one_question_and_all_get_the_answer() -> None:
    world = asking(3)
    for fake in list(world.ranks.values())[:2]:
        world.question(fake, "n: ")
    assert not shown(world), "the third may ask the same"
    world.question(world.ranks[2], "n: ")
    assert shown(world) == ["n: "], "at once, and without labels: everybody asks it"
    world.answer("5")
    assert [fake.answers for fake in world.ranks.values()] == [["5"]] * 3
    world.settle()
    assert shown(world) == ["n: "]


def test_the_answer_is_sent_as_it_came_under_each_ranks_own_question() -> None:
    world = asking(2)
    for fake in world.ranks.values():
        world.question(fake, "n: ")
    asked = {fake.rank: next(iter(fake.questions)) for fake in world.ranks.values()}
    sent = world.answer("5")
    replies = [e for e in world.effects if isinstance(e, ToRank) and e.channel == "stdin"]
    assert [reply.ranks for reply in replies] == [(0,), (1,)]
    assert {r.ranks[0]: r.message.parent_id for r in replies} == asked
    assert {r.message.content for r in replies} == {sent.message.content}


def test_the_window_waits_for_equals_and_then_the_prompt_is_labelled() -> None:
    world = asking(3)
    world.question(world.ranks[2], "n: ")
    assert world.timers["stdin"] == pytest.approx(world.at + 0.1)
    world.fire("stdin")
    assert shown(world) == ["2 │ n: "]
    world.question(world.ranks[0], "n: ")
    world.fire("stdin")
    assert shown(world) == ["2 │ n: "], "one at a time"
    world.answer("5")
    assert shown(world) == ["2 │ n: "], "those just answered may ask the same again"
    world.fire("stdin")
    assert shown(world) == ["2 │ n: ", "0 │ n: "]
    assert [world.ranks[rank].answers for rank in (0, 1, 2)] == [[], [], ["5"]]


def test_different_prompts_one_by_one() -> None:
    world = asking(2)
    world.question(world.ranks[1], "b")
    world.question(world.ranks[0], "a")
    world.fire("stdin")
    assert shown(world) == ["1 │ b"]
    world.answer("for b")
    assert shown(world) == ["1 │ b", "0 │ a"]
    world.answer("for a")
    assert (world.ranks[0].answers, world.ranks[1].answers) == (["for a"], ["for b"])


def test_a_password_stays_one_and_is_another_question() -> None:
    world = asking(2)
    world.question(world.ranks[0], "key", password=True)
    world.question(world.ranks[1], "key")
    world.fire("stdin")
    assert contents(world) == [{"prompt": "0 │ key", "password": True}]
    world.answer("secret")
    assert contents(world)[1:] == [{"prompt": "1 │ key", "password": False}]


def test_ranks_that_are_done_are_not_waited_for() -> None:
    world = asking(3)
    world.answer_shell(world.ranks[0])
    world.question(world.ranks[1], "n: ")
    assert not shown(world)
    world.question(world.ranks[2], "n: ")
    assert shown(world) == ["1-2 │ n: "], "but the label tells that they do not ask"


def test_interrupt_withdraws_all_of_them() -> None:
    world = asking(2)
    world.question(world.ranks[0], "a")
    world.question(world.ranks[1], "b")
    world.fire("stdin")
    world.feed(Signalled(world.tick(), 2))
    world.ask("input_reply", {"value": "late"}, channel="stdin")
    assert not any(fake.answers for fake in world.ranks.values())
    assert world.logs[-1].text == "an input_reply came although nothing was asked"
    world.question(world.ranks[1], "sure? ")
    world.fire("stdin")
    assert shown(world)[-1] == "1 │ sure? ", "the interrupted program may ask again"
    world.settle()
    assert len(shown(world)) == 2


def test_the_question_of_a_dead_rank_is_withdrawn() -> None:
    world = asking(1)
    world.question(world.ranks[0], "a")
    world.die(world.ranks[0])
    world.ask("input_reply", {"value": "x"}, channel="stdin")
    assert world.logs[-1].text == "an input_reply came although nothing was asked"
    world.run("%processes 1")
    world.execute("input()")
    world.question(world.ranks[0], "b")
    assert shown(world) == ["a", "b"]
    world.settle()


def test_what_survivors_had_asked_is_withdrawn_with_their_interrupt() -> None:
    world = asking(3)
    world.question(world.ranks[0], "a")
    world.fire("stdin")
    world.die(world.ranks[2])
    world.pass_time_until(lambda: world.ranks[0].interrupted)
    world.question(world.ranks[0], "again? ")
    world.answer("yes")
    world.fire("stdin")
    assert shown(world) == ["0 │ a", "0 │ again? "]
    world.answer("yes")
    assert world.ranks[0].answers == ["yes"]


def test_on_error_stop_withdraws_the_questions_of_the_others() -> None:
    world = start(2)
    world.run("%processes 2 --on-error stop")
    world.execute("f()")
    world.question(world.ranks[1], "a")
    world.fire("stdin")
    world.answer_shell(world.ranks[0], error=True)
    world.pass_time_until(lambda: world.ranks[1].interrupted)
    world.ask("input_reply", {"value": "x"}, channel="stdin")
    assert not world.ranks[1].answers
    assert world.logs[-1].text == "an input_reply came although nothing was asked"


def test_the_end_of_a_cell_ends_its_questions() -> None:
    world = asking(2)
    liar = world.ranks[0]
    liar.liar = True
    world.question(liar, "a")
    for fake in world.ranks.values():
        world.answer_shell(fake)
    assert not shown(world)
    world.execute("input()", client=b"another")
    world.fire("stdin")
    assert not shown(world)
    for fake in world.ranks.values():
        world.question(fake, "b")
    assert [q.idents for q in questions(world)] == [(b"another",)]
    assert shown(world) == ["b"]


def test_a_line_magic_asks_its_own_ranks_only() -> None:
    world = asking(3, "%rank 1 x = input()")
    world.question(world.ranks[1], "x? ")
    assert shown(world) == ["x? "], "of all ranks that run it everybody asks"
    world.settle()
    assert world.ranks[1].answers == ["typed"]


def test_what_was_printed_before_comes_first() -> None:
    world = asking(2)
    for fake in world.ranks.values():
        text = {"name": "stdout", "text": "think: "}
        world.say(fake, "iopub", "stream", text, fake.inbox[0])
        world.question(fake, "n? ")
    kinds = [e.msg_type for e in world.effects if isinstance(e, ToFront)]
    assert "stream" in kinds
    assert kinds.index("stream") < kinds.index("input_request")


def test_before_any_cell_nobody_is_there_to_be_asked() -> None:
    world = start(2)
    world.say(world.ranks[0], "stdin", "input_request", {"prompt": "a"}, None)
    assert world.logs[-1].text == "rank 0: input_request before any cell"
    world.execute("pass")
    world.say(world.ranks[1], "stdin", "odd", {"prompt": "a"}, None)
    assert world.logs[-1].text == "rank 1: odd on stdin"
    world.settle()
    assert not shown(world)


def test_a_thread_may_wait_for_its_answer_when_the_cell_is_over() -> None:
    world = asking(2)
    cell = world.ranks[0].inbox[0]
    for fake in world.ranks.values():
        fake.liar = True  # it goes on: it is a thread that waits
        world.question(fake, "a")
    assert shown(world) == ["a"]
    for fake in world.ranks.values():
        world.answer_shell(fake)
    world.ask("input_reply", {"value": "x"}, channel="stdin")
    assert [fake.answers for fake in world.ranks.values()] == [["x"]] * 2
    world.question(world.ranks[1], "b", parent=cell)
    assert shown(world) == ["a"]
    world.fire("stdin")
    assert shown(world) == ["a", "1 │ b"]
    world.ask("input_reply", {"value": "y"}, channel="stdin")
    assert [fake.answers for fake in world.ranks.values()] == [["x"], ["x", "y"]]


def test_two_threads_of_a_rank_ask_twice() -> None:
    world = asking(1)
    fake = world.ranks[0]
    world.question(fake, "a")
    world.question(fake, "a")
    world.answer("1")
    assert shown(world) == ["a", "a"]
    world.answer("2")
    assert fake.answers == ["1", "2"]


def test_a_late_answer_to_a_question_that_was_withdrawn_is_nobodys() -> None:
    world = asking(1)
    world.question(world.ranks[0], "old")
    (old,) = questions(world)
    world.feed(Signalled(world.tick(), 2))
    world.question(world.ranks[0], "new")
    world.feed(reply_from(b"client", old.msg_id, world))
    assert not world.ranks[0].answers
    assert world.logs[-1].text == "an input_reply came to what is asked no more"
    new = questions(world)[-1]
    world.feed(reply_from(b"client", new.msg_id, world))
    assert world.ranks[0].answers == ["typed"]


def test_some_clients_name_their_cell_where_the_question_belongs() -> None:
    world = asking(1)
    world.question(world.ranks[0], "a")
    world.feed(reply_from(b"client", world.ranks[0].inbox[0].msg_id, world))
    assert world.ranks[0].answers == ["typed"]


def test_another_client_answers_nothing() -> None:
    world = asking(1)
    world.question(world.ranks[0], "a")
    world.feed(reply_from(b"another", "", world))
    assert not world.ranks[0].answers
    world.answer("mine")
    assert world.ranks[0].answers == ["mine"]


def reply_from(client: bytes, parent_id: str, world: World) -> FromFront:
    header = {"msg_id": "reply", "msg_type": "input_reply"}
    parent = {"msg_id": parent_id} if parent_id else {}
    message = Message(header, parent, {}, b'{"value": "typed"}')
    return FromFront(world.tick(), "stdin", (client,), message)


def test_debuggers_that_drifted_apart_are_together_again() -> None:
    world = asking(3)
    for rank in (0, 1):
        world.question(world.ranks[rank], "ipdb> ")
    world.fire("stdin")
    world.question(world.ranks[2], "ipdb> ")
    assert shown(world) == ["0-1 │ ipdb> "]
    world.answer("n")
    for rank in (0, 1):
        world.question(world.ranks[rank], "ipdb> ")
    assert shown(world) == ["0-1 │ ipdb> ", "ipdb> "]


def test_each_line_of_a_prompt_has_its_label() -> None:
    world = asking(2)
    world.question(world.ranks[1], "one\ntwo\n")
    world.fire("stdin")
    assert shown(world) == ["1 │ one\n1 │ two\n"]


def test_an_interrupt_of_some_leaves_the_questions_of_others() -> None:
    world = asking(3)
    for fake in world.ranks.values():
        world.question(fake, f"{fake.rank}? ")
    world.fire("stdin")
    world.control("interrupt", ranks=[0, 1])
    assert shown(world) == ["0 │ 0? ", "2 │ 2? "]
    world.answer("x")
    assert world.ranks[2].answers == ["x"]


def test_a_debugger_that_asks_after_stop_is_not_stuck() -> None:
    world = asking(3)
    world.question(world.ranks[0], "ipdb> ")
    world.answer_shell(world.ranks[2])
    world.feed(Signalled(world.tick(), 2))
    world.question(world.ranks[0], "ipdb> ")
    world.fire("stdin")
    before = len(shown(world))
    world.ranks[0].interrupted = world.ranks[1].interrupted = False
    world.pass_time_until(lambda: world.ranks[1].interrupted)
    assert not world.ranks[0].interrupted
    world.answer("p x")
    assert world.ranks[0].answers == ["p x"]
    assert len(shown(world)) == before, "nothing was withdrawn"
    world.question(world.ranks[0], "ipdb> ")
    world.fire("stdin")
    world.feed(Signalled(world.tick(), 2))  # a second Stop: of those that hang
    assert world.ranks[1].stopping and not world.ranks[0].stopping


def test_a_debugger_outlives_the_death_of_another_rank() -> None:
    world = interrupted_once(3)
    world.question(world.ranks[0], "ipdb> ")
    world.fire("stdin")
    world.pass_time_until(lambda: world.ranks[1].stopping)
    assert not world.ranks[0].stopping
    world.answer("q")
    assert world.ranks[0].answers == ["q"]


# ---------------------------------------------------------------- a client without a keyboard


@pytest.mark.parametrize("size", [1, 2])
def test_kernels_that_ask_all_the_same_get_an_empty_answer_and_fail(size: int) -> None:
    world = start(size)
    cell = world.execute("readline()", allow_stdin=False)
    for fake in world.ranks.values():
        world.question(fake, "who? ")
        assert fake.answers == [""]
    world.settle()
    assert not shown(world)
    assert cell.reply["ename"] == "StdinNotImplementedError"
    first = cell.errors[0]["traceback"]
    assert "rank 0 asked for input, which this client does not take" in first[0]
    assert first[1].startswith("hint: ")
    assert world.run("on").reply["status"] == "ok"


def test_a_loop_that_asks_is_interrupted() -> None:
    world = asking(2, allow_stdin=False)
    for _ in range(2):
        assert not world.ranks[0].interrupted
        world.question(world.ranks[0], "who? ")
    assert world.ranks[0].interrupted and not world.ranks[1].interrupted


def test_what_we_run_ourselves_asks_nobody() -> None:
    world = start(2)
    world.execute("%compare input()")
    world.question(world.ranks[0], "x? ")
    assert world.ranks[0].answers == [""]
    world.settle()
    assert not shown(world)


def test_other_messages_on_stdin_answer_nothing() -> None:
    world = asking(1)
    world.question(world.ranks[0], "a")
    world.ask("odd", {"value": "x"}, channel="stdin")
    assert not world.ranks[0].answers
    world.answer("y")
    assert world.ranks[0].answers == ["y"]


def interrupted_once(size: int) -> World:
    """A cell whose program handles the interrupt that came with the death of its last rank."""
    world = asking(size)
    world.die(world.ranks[size - 1])
    world.pass_time_until(lambda: world.ranks[0].interrupted)
    return world


def test_after_an_interrupt_a_death_withdraws_the_dead_ranks_question_alone() -> None:
    world = interrupted_once(4)
    world.question(world.ranks[0], "a")
    world.question(world.ranks[1], "b")
    world.fire("stdin")
    world.die(world.ranks[0])
    assert shown(world) == ["0 │ a", "1 │ b"], "the next one is asked at once"
    world.die(world.ranks[2])
    world.answer("for b")
    assert world.ranks[1].answers == ["for b"]


def test_after_an_interrupt_a_dead_rank_is_not_waited_for() -> None:
    world = interrupted_once(4)
    for rank in (0, 1):
        world.question(world.ranks[rank], "n: ")
    assert not shown(world)
    world.die(world.ranks[2])
    assert shown(world) == ["n: "], "everybody who is left asks it"


def test_of_several_that_asked_the_dead_one_is_forgotten() -> None:
    world = interrupted_once(4)
    for rank in (0, 1):
        world.question(world.ranks[rank], "n: ")
    world.die(world.ranks[0])
    world.fire("stdin")
    assert shown(world) == ["1 │ n: "]
    world.answer("5")
    assert world.ranks[1].answers == ["5"]


def test_a_thread_that_asks_while_its_rank_serves_a_request_of_ours_is_asked() -> None:
    world = asking(2, "thread.start()")
    for fake in list(world.ranks.values()):
        world.answer_shell(fake)
    fence = world.hub.stage.own_request("kernel_info_request", {})
    for fake in world.ranks.values():
        world.question(fake, "still? ", parent=fence)
    world.fire("stdin")
    assert shown(world) == ["still? "]
    world.ask("input_reply", {"value": "yes"}, channel="stdin")
    assert [fake.answers for fake in world.ranks.values()] == [["yes"]] * 2


def test_a_cell_of_our_own_that_asks_is_refused() -> None:
    world = start(1)
    probe = world.hub.stage.own_execute("input()", silent=True)
    world.question(world.ranks[0], "x", parent=probe)
    assert not shown(world) and world.ranks[0].answers == [""]


def answered_after_the_next_cell_began(between: str = "") -> World:
    """A thread asks; the answer and the next cell come by two sockets, the cell first."""
    world = asking(2, "thread.start()")
    for fake in world.ranks.values():
        world.question(fake, "still? ")
        fake.beside |= fake.questions.keys()  # no SIGINT reaches a thread
    for fake in list(world.ranks.values()):
        world.answer_shell(fake)
    assert shown(world) == ["still? "]
    world.execute("thread.join()")
    if between == "death":
        world.die(world.ranks[1])
    elif between == "question":
        world.question(world.ranks[0], "new? ")
        world.fire("stdin")
    world.ask("input_reply", {"value": "yes"}, channel="stdin")
    return world


def test_an_answer_that_the_next_cell_has_overtaken() -> None:
    world = answered_after_the_next_cell_began()
    assert [fake.answers for fake in world.ranks.values()] == [["yes"]] * 2


def test_it_is_not_for_a_rank_that_has_died_nor_when_more_is_asked() -> None:
    world = answered_after_the_next_cell_began("death")
    assert world.ranks[0].answers == ["yes"]
    world = answered_after_the_next_cell_began("question")
    assert [fake.answers for fake in world.ranks.values()] == [["yes"], []]
    assert len(world.ranks[0].questions) == 1, "the old one is answered no more"
