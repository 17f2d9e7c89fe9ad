"""`%restart` and `%processes --keep` through the whole hub, with ranks that die and users that stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spmd_kernel.core.conversation import Talk
from spmd_kernel.core.model import Cause, Signalled
from spmd_kernel.core.topology import SHARED

from ..world import FakeRank, World, start
from .test_group import own_codes


def step_until(world: World, holds: Callable[[], bool]) -> None:
    while not holds():
        assert world.step(), "it never comes to hold"


def shared(fake: FakeRank) -> dict[str, str]:
    return {name: value for name, value in fake.env.items() if name in SHARED}


def assert_one_world(world: World) -> None:
    """All live ranks agree on where they are, and what they are is what they are called."""
    (common,) = {tuple(sorted(shared(fake).items())) for fake in world.ranks.values()}
    assert dict(common)["WORLD_SIZE"] == str(world.hub.group.size)
    assert all(fake.env["RANK"] == str(rank) for rank, fake in world.ranks.items())


def stop(world: World) -> None:
    world.feed(Signalled(world.tick(), 2))


def test_one_rank_is_replaced_and_the_others_stay() -> None:
    world = start(3)
    world.run("x = 1")
    before = dict(world.ranks)
    cell = world.run("%restart 1\nprint(1)")
    assert "rank 1 is back" in cell.text and "ranks 0, 2 kept their memory" in cell.text
    assert "TORCHELASTIC_RESTART_COUNT=1" in cell.text
    assert (world.ranks[1] is not before[1] and not before[1].ready) or before[1].stopping
    assert (world.ranks[0], world.ranks[2]) == (before[0], before[2])
    assert world.ranks[0].env["MASTER_PORT"] == "20002"
    assert {fake.count for fake in world.ranks.values()} == {2}
    assert_one_world(world)


def test_all_are_replaced_with_the_variables_of_their_world() -> None:
    world = start(1)
    world.run("%processes 2 --env A=1")
    before = dict(world.ranks)
    cell = world.run("%restart all")
    assert "ranks 0-1 are back" in cell.text and "nothing was kept" in cell.text
    assert all(world.ranks[rank] is not before[rank] for rank in (0, 1))
    assert [fake.env["A"] for fake in world.ranks.values()] == ["1", "1"]
    assert_one_world(world)


def test_only_the_named_among_the_dead_come_back() -> None:
    world = start(3)
    for rank in (1, 2):
        world.die(world.ranks[rank])
    cell = world.run("%restart 2")
    assert "rank 1 is still dead" in cell.text
    assert sorted(world.ranks) == [0, 2]
    assert "rank 1 died" in world.run("x").reply["evalue"]
    world.run("%restart dead")
    assert world.run("x").reply["status"] == "ok"
    assert_one_world(world)


def test_jax_in_a_survivor_refuses_and_touches_nobody() -> None:
    world = start(2)
    world.ranks[0].live.add("jax")
    world.die(world.ranks[1])
    before, launches = world.ranks[0], len(world.launches)
    for code in ("%restart dead", "%restart 1", "%processes 2", "%processes 3 --keep"):
        assert "jax.distributed is live in rank 0" in world.run(code).reply["evalue"]
    assert world.ranks == {0: before} and len(world.launches) == launches
    assert before.env["MASTER_PORT"] == "20000"
    assert world.run("%restart all").reply["status"] == "ok"


def test_a_survivor_that_does_not_answer_finds_the_news_in_its_queue() -> None:
    world = start(3)
    mute = world.ranks[0]
    mute.questions["q"] = ("", False)  # it is at something else
    cell = world.execute("%restart 2")
    step_until(world, lambda: cell.finished)
    assert "rank 0 did not answer within 5 s" in cell.text
    assert mute.env["MASTER_PORT"] == "20000"
    mute.questions.clear()
    world.settle()
    assert_one_world(world)


def test_growing_starts_only_what_is_missing() -> None:
    world = start(1)
    world.run("epochs = 3")
    world.run("x")
    rank_0 = world.ranks[0]
    since = len(world.effects)
    cell = world.run("%processes 3 --keep\nprint(1)")
    assert "ranks 1-2 are new" in cell.text and "rank 0 kept its memory" in cell.text
    assert "ran again: epochs" in cell.text
    assert world.ranks[0] is rank_0 and sorted(world.ranks) == [0, 1, 2]
    assert [spec.rank for spec in world.launches[-1].request.ranks] == [1, 2]
    assert {fake.count for fake in world.ranks.values()} == {3}
    assert rank_0.env["OMP_NUM_THREADS"] == "1"
    assert not any("epochs" in code for code in own_codes(world, 0, since))
    assert "│" in "".join(labels(world)), "more than one rank: outputs have labels"
    assert_one_world(world)


def labels(world: World) -> list[str]:
    cell = world.execute("print(2)")
    for fake in list(world.ranks.values()):
        content = {"name": "stdout", "text": f"{fake.rank}\n"}
        world.say(fake, "iopub", "stream", content, fake.inbox[0])
    world.settle()
    return [cell.text]


def test_shrinking_stops_the_top() -> None:
    world = start(4)
    before = dict(world.ranks)
    world.say(before[3], "iopub", "comm_open", {"comm_id": "k", "target_name": "t"}, None)
    cell = world.run("%processes 1 --keep\nprint(1)")
    assert "ranks 1-3 are stopped" in cell.text and "rank 0 kept its memory" in cell.text
    assert world.ranks == {0: before[0]}
    assert "OMP_NUM_THREADS" not in before[0].env
    assert world.ask("comm_info_request", {}).reply["comms"] == {}
    assert "│" not in "".join(labels(world))
    assert "there is no rank 3: there is only rank 0" in world.run("%%rank 3\nx").reply["evalue"]
    assert_one_world(world)


@pytest.mark.parametrize(("size", "runs"), [(1, 1), (2, 2), (3, 1)])
def test_the_set_up_runs_again_where_one_becomes_many(size: int, runs: int) -> None:
    """What depends on the world size at start is made up for, at both ends."""
    world = start(1, setup="SETUP")
    for _ in range(2):
        world.run(f"%processes {size} --keep")
    codes = [code for code in own_codes(world, 0) if "SETUP" in code]
    assert len(codes) == 1 + (size > 1)
    world.run("%processes 1 --keep")
    codes = [code for code in own_codes(world, 0) if "SETUP" in code]
    assert len(codes) == 1 + 2 * (size > 1)


def test_the_dead_among_the_survivors_come_back_too() -> None:
    world = start(3)
    world.die(world.ranks[1])
    cell = world.run("%processes 4 --keep")
    assert "rank 3 is new" in cell.text and "rank 1 is back" in cell.text
    assert world.run("x").reply["status"] == "ok"
    world.die(world.ranks[0])
    world.die(world.ranks[3])
    cell = world.run("%processes 2 --keep")
    assert "rank 0 is back" in cell.text and "ranks 2-3 are stopped" in cell.text
    assert sorted(world.ranks) == [0, 1] and world.run("x").reply["status"] == "ok"
    assert_one_world(world)


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("how", ["dies", "is silent", "stop", "two stops"])
def test_when_growing_fails_the_world_is_as_before(how: str) -> None:
    world = start(2)
    before = dict(world.ranks)
    envs = {rank: dict(fake.env) for rank, fake in before.items()}
    cell = world.execute("%processes 4 --keep")
    step_until(world, lambda: len(world.launches) == 2)
    world.become_ready(world.ranks[3])
    if how == "dies":
        world.die(world.ranks[2], Cause(code=7), "boom\n")
    elif how == "is silent":
        mute = world.ranks[2]
        world.pass_time_until(lambda: mute.stopping)
    else:
        stop(world)
        assert not cell.replies, "not before they are gone"
        if how == "two stops":
            stop(world)
    world.settle()
    expected = {"dies": "code 7", "is silent": "within 60 s"}.get(how, "stopped by the user")
    assert expected in cell.reply["evalue"]
    assert world.ranks == before
    assert {rank: fake.env for rank, fake in before.items()} == envs
    assert world.hub.group.size == 2
    assert world.run("x").reply["status"] == "ok"
    assert "4 ranks ready" in world.run("%processes 4 --keep").text
    assert_one_world(world)


def test_a_rank_that_cannot_come_back_costs_the_others_nothing() -> None:
    world = start(3)
    before = world.ranks[0]
    cell = world.execute("%restart 1-2")
    step_until(world, lambda: len(world.launches) == 2)
    world.become_ready(world.ranks[2])
    world.die(world.ranks[1], Cause(code=7))
    world.settle()
    assert "rank 1 could not start: the process exited with code 7" in cell.reply["evalue"]
    assert world.ranks == {0: before} and before.env["MASTER_PORT"] == "20000"
    assert world.run("x").reply["evalue"].splitlines() == [
        "rank 1 could not start: the process exited with code 7",
        "rank 2 is not there: it was stopped, since rank 1 failed",
    ]
    world.run("%restart dead")
    assert world.run("x").reply["status"] == "ok"
    assert_one_world(world)


def test_stop_while_a_rank_is_being_ended_leaves_it_dead() -> None:
    world = start(2)
    cell = world.execute("%restart 1")
    step_until(world, lambda: world.ranks[1].stopping)
    stop(world)
    world.settle()
    assert cell.reply["ename"] == "KeyboardInterrupt"
    assert "rank 1 was stopped, and its restart broken off" in world.run("x").reply["evalue"]
    world.run("%restart dead")
    assert world.run("x").reply["status"] == "ok"
    assert_one_world(world)


@pytest.mark.parametrize("code", ["%processes 3 --keep", "%processes 1 --keep", "%restart 1"])
def test_stop_once_ranks_are_up_breaks_nothing_off(code: str) -> None:
    """Then they are set up and told before the cell ends: no two ranks disagree on their world."""
    done = False
    for steps in range(200):
        world = start(2)
        cell = world.execute(code)
        for _ in range(steps):
            world.step()
        done = cell.finished
        stop(world)
        stop(world)
        world.settle()
        assert len(cell.replies) == 1
        assert_one_world(world)
        world.run("%restart dead")
        assert world.run("x").reply["status"] == "ok"
        assert_one_world(world)
        if done:
            return
    raise AssertionError("the cell never ends")


@pytest.mark.parametrize("code", ["%processes 3 --keep", "%processes 1 --keep", "%restart 1"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_whoever_dies_meanwhile_is_missed_and_comes_back(code: str, victim: int) -> None:
    for steps in range(200):
        world = start(2)
        cell = world.execute(code)
        for _ in range(steps):
            world.step()
        done = cell.finished
        if victim in world.ranks:
            world.die(world.ranks[victim])
        world.settle()
        assert len(cell.replies) == 1 and cell.states == ["busy", "idle"]
        world.run("%restart dead")
        assert world.run("x").reply["status"] == "ok", cell.text
        assert_one_world(world)
        if done:
            return
    raise AssertionError("the cell never ends")


def test_who_died_while_it_was_asked_kept_nothing() -> None:
    world = start(3)
    cell = world.execute("%restart 2")
    world.die(world.ranks[0])
    world.settle()
    assert "rank 1 kept its memory" in cell.text
    assert "rank 0 died meanwhile (`%restart dead`)" in cell.text


def test_shutdown_in_the_middle_leaves_nobody() -> None:
    for code in ("%processes 3 --keep", "%processes 1 --keep", "%restart 1"):
        for steps in range(60):
            world = start(2)
            world.execute(code)
            for _ in range(steps):
                world.step()
            world.ask("shutdown_request", {"restart": False}, channel="control")
            world.settle()
            assert not world.ranks and world.exits == [0]


# ---------------------------------------------------------------- no restart at all


def renewed(world: World) -> list[Any]:
    """As what breaks a collective would use it, from within the hub."""
    results: list[Any] = []
    script = world.hub.group.renew_environment()
    talk = Talk(script, world.hub.performer.perform, lambda value, _: results.append(value))
    talk.step()
    for effect in world.hub.stage.take():
        world._perform(effect)
    return results


def test_the_environment_is_renewed_without_a_restart() -> None:
    world = start(2)
    before = dict(world.ranks)
    results = renewed(world)
    world.settle()
    assert results == [()]
    assert world.ranks == before
    assert {fake.env["MASTER_PORT"] for fake in before.values()} == {"20002"}
    assert {fake.env["TORCHELASTIC_RESTART_COUNT"] for fake in before.values()} == {"1"}
    world.die(world.ranks[1])
    world.run("%restart dead")
    assert world.ranks[1].env["MASTER_PORT"] == "20004"
    assert_one_world(world)


def test_a_rank_that_is_busy_is_named_and_hears_later() -> None:
    world = start(2)
    cell = world.execute("work()")
    results = renewed(world)
    world.answer_shell(world.ranks[1])
    world.answer_shell(world.ranks[1])
    world.pass_time_until(lambda: bool(results))
    assert results == [(0,)]
    world.settle()
    assert cell.reply["status"] == "ok"
    assert_one_world(world)


def test_before_the_first_rank_there_is_nothing_to_renew() -> None:
    world = World(2)
    assert renewed(world) == [()]
