from __future__ import annotations

from spmd_kernel.core.model import Interrupt

from ...world import World, start
from .asking import now


def interrupted(world: World) -> list[tuple[int, ...]]:
    return [effect.ranks for effect in world.effects if isinstance(effect, Interrupt)]


def test_without_ranks_it_is_stop() -> None:
    world = start(3)
    world.execute("work()")
    world.answer_shell(world.ranks[1])
    assert now(world, "interrupt") == {"interrupted": [0, 2]}
    assert interrupted(world) == [(0, 2)]


def test_some_ranks_alone() -> None:
    world = start(3)
    cell = world.execute("work()")
    assert now(world, "interrupt", ranks=[2, 0]) == {"interrupted": [0, 2]}
    assert interrupted(world) == [(0, 2)]
    assert not world.ranks[1].interrupted
    world.answer_shell(world.ranks[0], error=True)
    world.answer_shell(world.ranks[2], error=True)
    assert not cell.replies, "rank 1 goes on"
    world.settle()
    assert cell.reply["status"] == "error"
    assert world.run("x").reply["status"] == "ok"


def test_a_rank_that_has_finished_is_left_alone() -> None:
    world = start(2)
    world.execute("work()")
    world.answer_shell(world.ranks[1])
    assert now(world, "interrupt", ranks="all") == {"interrupted": [0]}
    assert interrupted(world) == [(0,)]


def test_at_rest_it_touches_nobody() -> None:
    world = start(2)
    assert now(world, "interrupt") == {"interrupted": []}
    assert now(world, "interrupt", ranks="-1") == {"interrupted": []}
    assert interrupted(world) == []


def test_a_widget_callback_can_be_interrupted() -> None:
    world = start(2)
    opened = {"comm_id": "c", "target_name": "t"}
    world.say(world.ranks[1], "iopub", "comm_open", opened, None)
    world.ask("comm_msg", {"comm_id": "c", "data": {}})
    assert now(world, "interrupt", ranks=[0, 1]) == {"interrupted": [1]}
    assert interrupted(world) == [(1,)]


def test_the_question_of_the_others_stays() -> None:
    world = start(2)
    world.execute("input()")
    for fake in world.ranks.values():
        world.question(fake, "name? ")
    now(world, "interrupt", ranks=[0])
    world.answer("me")
    assert world.ranks[1].answers == ["me"] and not world.ranks[0].answers
    world.settle()


def test_an_interrupt_that_costs_a_rank_its_reply_ends_it_all_the_same() -> None:
    world = start(2)
    cell = world.execute("work()")
    now(world, "interrupt", ranks=[0])
    world.ranks[0].inbox.popleft()  # SIGINT hit between the cell and its reply
    world.settle()
    assert cell.reply["ename"] == "KeyboardInterrupt"


def test_others_still_end_by_on_error_stop() -> None:
    world = start(2)
    world.run("%processes --on-error stop")
    world.execute("work()")
    now(world, "interrupt", ranks=[0])
    world.answer_shell(world.ranks[0], error=True)
    world.pass_time_until(lambda: len(interrupted(world)) == 2)
    assert interrupted(world) == [(0,), (1,)]


def test_one_that_is_lost_is_sent_once_more() -> None:
    """ipykernel takes a SIGINT that comes just before it begins a cell for nothing."""
    world = start(3)
    world.execute("work()")
    now(world, "interrupt", ranks=[0, 1])
    world.answer_shell(world.ranks[0], error=True)
    began = world.at
    world.pass_time_until(lambda: len(interrupted(world)) == 2)
    assert interrupted(world) == [(0, 1), (1,)]
    assert 1.9 < world.at - began < 2.1
    world.settle()
    assert len(interrupted(world)) == 2
