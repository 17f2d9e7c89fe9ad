"""Questions of ranks, as ``status`` tells them and ``answer`` answers them."""

from __future__ import annotations

from ...world import Sent, World, start
from .asking import now, pushed, refused
from .test_status_comm import open_comm


def asked(size: int) -> tuple[World, Sent]:
    world = start(size)
    cell = world.execute("input('name? ')")
    for fake in world.ranks.values():
        world.question(fake, "name? ")
    return world, cell


def test_the_question_and_its_answer() -> None:
    world, cell = asked(2)
    question = now(world, "status")["question"]
    assert (question["prompt"], question["password"], question["ranks"]) == (
        "name? ",
        False,
        [0, 1],
    )
    assert question["cell"] == cell.message.msg_id
    assert now(world, "answer", value="Ann", msg_id=question["msg_id"])["ranks"] == [0, 1]
    assert [fake.answers for fake in world.ranks.values()] == [["Ann"]] * 2
    assert now(world, "status")["question"] is None
    world.settle()
    assert cell.reply["status"] == "ok"


def test_of_some_ranks_it_has_their_label_and_the_next_one_follows() -> None:
    world = start(2)
    world.execute("input()")
    world.question(world.ranks[0], "a? ", password=True)
    world.question(world.ranks[1], "b? ")
    world.fire("stdin")
    question = now(world, "status")["question"]
    assert (question["prompt"], question["password"], question["ranks"]) == ("0 │ a? ", True, [0])
    now(world, "answer", value="x")
    assert now(world, "status")["question"]["prompt"] == "1 │ b? "
    assert world.ranks[0].answers == ["x"] and not world.ranks[1].answers


def test_what_is_asked_no_more_takes_no_answer() -> None:
    world, _ = asked(1)
    name, text, _ = refused(world.control("answer", value="x", msg_id="another"))
    assert (name, text) == ("UsageError", "answer: that question is asked no more")
    world.answer("by the page")
    assert world.ranks[0].answers == ["by the page"]
    assert refused(world.control("answer", value="x"))[1] == "answer: no rank waits for one"
    assert world.ranks[0].answers == ["by the page"]


def test_an_interrupt_withdraws_it() -> None:
    world, _ = asked(2)
    now(world, "interrupt")
    assert now(world, "status")["question"] is None
    refused(world.control("answer", value="x"))


def test_pages_hear_of_it() -> None:
    world = start(1)
    open_comm(world)
    world.execute("input()")
    world.question(world.ranks[0], "name? ")
    world.fire("status")
    assert pushed(world)[-1]["status"]["question"]["prompt"] == "name? "
    world.answer("Ann")
    world.fire("status")
    assert pushed(world)[-1]["status"]["question"] is None


def test_a_thread_that_still_waits_when_the_next_cell_runs() -> None:
    world, _ = asked(2)
    for fake in list(world.ranks.values()):
        fake.beside |= fake.questions.keys()  # a thread's: the cell ends without its answer
        world.answer_shell(fake)
    world.execute("y")
    question = now(world, "status")["question"]
    assert question["prompt"] == "name? "
    assert now(world, "answer", value="Ann", msg_id=question["msg_id"])["ranks"] == [0, 1]
    assert [fake.answers for fake in world.ranks.values()] == [["Ann"]] * 2
    assert now(world, "status")["question"] is None
