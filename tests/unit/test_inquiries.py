"""Which rank answers a client's question, through which of its shells, and how soon."""

from __future__ import annotations

from typing import Any

import pytest

from spmd_kernel.core.model import ToRank

from ..world import FakeRank, Sent, World, start


def working(size: int = 2, code: str = "work()") -> World:
    """Ranks with subshells, at work on a cell."""
    world = start(size, subshells=True)
    world.execute(code)
    return world


def complete(world: World) -> Sent:
    return world.ask("complete_request", {"code": "pri", "cursor_pos": 3})


def asked(world: World) -> list[tuple[int, bool]]:
    """The ranks that were asked to complete, and whether in a subshell."""
    return [
        (effect.ranks[0], "subshell_id" in effect.message.header)
        for effect in world.effects
        if isinstance(effect, ToRank) and effect.message.msg_type == "complete_request"
    ]


def private(fake: FakeRank) -> str:
    (subshell,) = fake.subshells
    return subshell


def answer(world: World, rank: int, **content: Any) -> None:
    """From its private subshell."""
    fake = world.ranks[rank]
    request = fake.subshells[private(fake)].popleft()
    world.say(fake, "shell", "complete_reply", {"status": "ok", **content}, request)
    world.say(fake, "iopub", "status", {"execution_state": "idle"}, request)


def pass_time(world: World, seconds: float) -> None:
    until = world.at + seconds
    while due := [key for key, at in world.timers.items() if at <= until]:
        world.fire(min(due, key=lambda key: world.timers[key]))
    world.at = until


def test_a_busy_rank_answers_in_a_subshell_of_its_own() -> None:
    world = working()
    query = complete(world)
    assert asked(world) == [(0, True)]
    answer(world, 0, matches=["print"])
    assert query.reply == {"status": "ok", "matches": ["print"]}
    assert query.kinds == ["status", "complete_reply", "status"]
    listed = world.ask("list_subshell_request", {}, channel="control")
    assert listed.reply == {"status": "ok", "subshell_id": []}, "clients do not see it"


def test_an_idle_rank_answers_in_its_main_shell_whenever_it_can() -> None:
    world = start(2, subshells=True)
    query = complete(world)
    assert asked(world) == [(0, False)]
    pass_time(world, 1.0)
    assert asked(world) == [(0, False)] and not query.replies, "its first completion takes long"
    pass_time(world, 1.0)
    assert asked(world) == [(0, False), (1, False)]
    world.answer_shell(world.ranks[1])
    assert query.reply["status"] == "ok"


def test_another_rank_is_asked_if_the_first_is_slow_and_the_first_answer_counts() -> None:
    world = working(3)
    query = complete(world)
    pass_time(world, 0.07)
    assert asked(world) == [(0, True)]
    pass_time(world, 0.02)
    assert asked(world) == [(0, True), (1, True)]
    answer(world, 1, matches=["one"])
    answer(world, 0, matches=["zero"])
    assert query.reply["matches"] == ["one"]
    assert len(query.replies) == 1


def test_an_idle_rank_is_the_second_choice() -> None:
    world = working(3, "%%rank 0-1\nwork()")
    query = complete(world)
    pass_time(world, 0.1)
    assert asked(world) == [(0, True), (2, False)]
    while not query.replies:
        world.answer_shell(world.ranks[2])
    assert query.reply["status"] == "ok"


def test_nobody_answers_in_time() -> None:
    world = working(4)
    query = complete(world)
    pass_time(world, 0.24)
    assert not query.replies
    assert asked(world) == [(0, True), (1, True)], "two and no more: it costs them time"
    pass_time(world, 0.02)
    assert query.reply["matches"] == [] and query.reply["cursor_start"] == 3
    answer(world, 0, matches=["late"])
    assert len(query.replies) == 1
    assert not [key for key in world.timers if key[0] in ("hedge", "inquiry")]


def test_a_rank_that_has_not_answered_for_long_is_asked_last() -> None:
    world = working(2)
    complete(world)
    pass_time(world, 2.5)
    query = complete(world)
    assert asked(world) == [(0, True), (1, True), (0, True)], "neither has"
    pass_time(world, 0.3)
    answer(world, 1)
    answer(world, 1)
    again = complete(world)
    assert asked(world)[-1] == (1, True)
    answer(world, 1, matches=["one"])
    assert query.reply["matches"] == [] and again.reply["matches"] == ["one"]
    while world.ranks[0].subshells[private(world.ranks[0])]:
        answer(world, 0)
    complete(world)
    assert asked(world)[-1] == (0, True), "it is well again"


def test_questions_do_not_pile_up_before_a_rank_that_does_not_answer() -> None:
    world = working(1)
    queries = [complete(world) for _ in range(6)]
    assert len(asked(world)) == 4
    assert [len(query.replies) for query in queries] == [0, 0, 0, 0, 1, 1]


def test_a_late_answer_serves_the_next_one_who_asks_the_same() -> None:
    world = working(1)
    first = complete(world)
    pass_time(world, 0.3)
    other = world.ask("complete_request", {"code": "x", "cursor_pos": 1})
    again = complete(world)
    answer(world, 0, matches=["print"])
    assert first.reply["matches"] == [] and again.reply["matches"] == ["print"]
    assert not other.replies


def test_a_rank_that_dies_hands_on_at_once() -> None:
    world = start(3, subshells=True)
    query = complete(world)
    world.die(world.ranks[0])
    assert asked(world) == [(0, False), (1, False)]
    world.settle()
    assert query.reply["status"] == "ok"


def test_one_that_is_interrupted_answers_nothing_and_hands_on() -> None:
    world = start(2, subshells=True)
    complete(world)
    request = world.ranks[0].inbox.popleft()
    world.say(world.ranks[0], "iopub", "status", {"execution_state": "idle"}, request)
    pass_time(world, 0.6)
    assert asked(world) == [(0, False), (1, False)]


@pytest.mark.parametrize("code", ["work()", "%%rank 0\nwork()"])
def test_kernels_without_subshells(code: str) -> None:
    """An idle rank answers if there is one; nobody waits for the cell."""
    world = start(2)
    world.execute(code)
    query = complete(world)
    if code == "work()":
        assert query.reply["matches"] == [] and not asked(world)
    else:
        assert asked(world) == [(1, False)]


def test_ranks_that_come_later_have_one_too() -> None:
    world = start(2, subshells=True)
    world.die(world.ranks[0])
    world.run("%restart dead")
    world.run("%processes 3 --keep")
    assert [len(fake.subshells) for fake in world.ranks.values()] == [1, 1, 1]
    world.execute("work()")
    complete(world)
    assert asked(world) == [(0, True)]


def test_a_rank_at_work_for_a_widget_answers_beside_it() -> None:
    world = start(1, subshells=True)
    content = {"comm_id": "k", "target_name": "t", "data": {}}
    world.ask("comm_open", content)
    query = complete(world)
    assert asked(world) == [(0, True)]
    pass_time(world, 1.0)
    assert not query.replies, "no cell runs: as good an answer as can be had"
    answer(world, 0)
    assert query.reply["status"] == "ok"
