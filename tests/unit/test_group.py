"""The ranks' table: who lives, who is replaced, and what is said when one cannot start."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from spmd_kernel.core.group import Group
from spmd_kernel.core.model import (
    CancelTimer,
    Cause,
    Facts,
    Launch,
    LaunchRequest,
    RankExited,
    RankReady,
    RankSpec,
    SetTimer,
    Settings,
    Signalled,
    Stop,
    ToRank,
)
from spmd_kernel.core.slot import TRANSITIONS, Slot, State
from spmd_kernel.core.stage import Stage
from spmd_kernel.core.wants import LaunchRanks, StopRanks

from ..world import World, start


class Ranks:
    """A `Group` alone, with what it says when a wait is over."""

    def __init__(self, size: int = 2) -> None:
        self.stage = Stage(Settings(session="own"))
        self.group = Group(self.stage)
        self.through: list[str] = []
        self.launch(range(size))

    def launch(self, ranks: Any, generation: int = 1) -> None:
        specs = tuple(RankSpec(rank, {}) for rank in ranks)
        self.request = LaunchRequest("python3", generation, specs)
        self.group.launch(LaunchRanks(self.request), lambda: self.through.append("launched"))

    def stop(self, *ranks: int, now: bool = False) -> Any:
        return self.group.stop(StopRanks(ranks, now), lambda: self.through.append("stopped"))

    def ready(self, rank: int, generation: int = 1, **info: Any) -> None:
        self.group.ready(RankReady(0.0, rank, generation, 70 + rank, info))

    def exited(self, rank: int, generation: int = 1, cause: Cause | None = None) -> Slot | None:
        slot = self.group.exited(RankExited(0.0, rank, generation, cause or Cause(code=1), "bye"))
        self.group.check()
        return slot

    @property
    def states(self) -> list[str]:
        return [str(slot.state) for slot in self.group.slots.values()]


def test_the_table_is_complete_and_has_one_way_out() -> None:
    for state, event in itertools.product(State, ("ready", "stop", "exited")):
        slot = Slot(0, 1, state)
        assert slot.move(event) is ((state, event) in TRANSITIONS)
        assert slot.state == TRANSITIONS.get((state, event), state)
    assert {s for s, _ in TRANSITIONS} == set(State) - {State.DEAD}, "nobody comes back from there"
    assert all(TRANSITIONS[state, "exited"] is State.DEAD for state in set(State) - {State.DEAD})


def test_a_launch_is_through_when_all_are_ready() -> None:
    ranks = Ranks()
    timer = ("start", 1)
    assert ranks.stage.take() == [Launch(ranks.request), SetTimer(timer, 60.0)]
    ranks.ready(1)
    assert not ranks.through and ranks.group.alive == (1,)
    ranks.ready(0)
    assert ranks.through == ["launched"]
    assert ranks.stage.take() == [CancelTimer(timer)]
    assert [view.pid for view in ranks.group.view()] == [70, 71]
    ranks.ready(0)
    assert ranks.through == ["launched"]


def test_a_launch_is_through_when_one_is_lost() -> None:
    ranks = Ranks()
    assert ranks.exited(1) is None, "it never ran: the start tells of it"
    assert ranks.through == ["launched"]
    assert ranks.states == ["starting", "dead"]


def test_events_of_another_generation_change_nothing() -> None:
    ranks = Ranks()
    ranks.ready(0, generation=0)
    assert ranks.exited(1, generation=2) is None
    ranks.ready(7)
    assert ranks.states == ["starting", "starting"]
    assert ranks.group.current(0, 1) is ranks.group.slots[0]
    assert ranks.group.current(0, 2) is None and ranks.group.current(7, 1) is None


def test_who_died_unasked() -> None:
    ranks = Ranks(4)
    for rank in range(4):
        ranks.ready(rank)
    ranks.stop(1)
    ranks.group.end((2,), "was killed")
    died = ranks.exited(0, cause=Cause(signal=9))
    assert died is ranks.group.slots[0] and died.stderr == "bye"
    assert ranks.exited(1) is None, "we stopped it"
    ended = ranks.exited(2)
    assert ended is not None and ended.obituary() == "rank 2 was killed"
    assert ranks.exited(0) is None, "nobody dies twice"
    assert ranks.group.alive == (3,) and ranks.group.dead == (0, 1, 2)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause(signal=11), "rank 3 died: killed by SIGSEGV (signal 11)"),
        (Cause(signal=9), "rank 3 died: killed by SIGKILL (signal 9) (out of memory, or"),
        (Cause(signal=9, out_of_memory=True), "(signal 9): out of memory"),
        (Cause(signal=63), "killed by signal 63 (signal 63)"),
        (Cause(code=3), "rank 3 died: the process exited with code 3"),
    ],
)
def test_obituaries(cause: Cause, words: str) -> None:
    assert words in Slot(3, 1, State.DEAD, pid=73, cause=cause).obituary()


def test_why_a_cell_cannot_run() -> None:
    ranks = Ranks()
    assert ranks.group.obituaries() == "the ranks are not ready"
    ranks.ready(0)
    ranks.ready(1)
    ranks.exited(0, cause=Cause(signal=6))
    ranks.exited(1, cause=Cause(code=2))
    assert ranks.group.obituaries().splitlines() == [
        "rank 0 died: killed by SIGABRT (signal 6)",
        "rank 1 died: the process exited with code 2",
    ]
    assert Group(ranks.stage).obituaries() == "there is no rank"


def test_stop_waits_for_all_of_them() -> None:
    ranks = Ranks()
    ranks.ready(0)
    ranks.stage.take()
    ranks.stop(0, 1)
    assert ranks.stage.take() == [Stop((0, 1))]
    ranks.exited(1)
    assert ranks.through == []
    ranks.exited(0)
    assert ranks.through == ["stopped"]
    ranks.stop(0, 1)
    assert ranks.through == ["stopped", "stopped"] and not ranks.stage.take()


def test_stop_again_only_if_at_once() -> None:
    ranks = Ranks(1)
    ranks.stop(0)
    ranks.stage.take()
    ranks.stop(0)
    assert not ranks.stage.take()
    ranks.stop(0, now=True)
    assert ranks.stage.take() == [Stop((0,), now=True)]
    ranks.exited(0)
    ranks.stop(0, now=True)
    assert not ranks.stage.take()


def test_a_wait_that_was_given_up_is_not_resumed() -> None:
    ranks = Ranks(1)
    give_up = ranks.stop(0)
    give_up()
    ranks.exited(0)
    assert ranks.through == []


def test_the_overdue_are_killed_and_only_they() -> None:
    ranks = Ranks()
    ranks.ready(0)
    ranks.stage.take()
    ranks.group.overdue(7)
    assert not ranks.stage.take()
    ranks.group.overdue(1)
    assert ranks.stage.take() == [Stop((1,), now=True)]
    ranks.exited(1, cause=Cause(signal=9))
    assert str(ranks.group.slots[1].cause) == "it did not answer in time"


def test_busy_and_how_long_it_took() -> None:
    ranks = Ranks(1)
    ranks.ready(0)
    ranks.group.mark_done(0, 3.0)
    assert ranks.group.view()[0].seconds is None
    ranks.group.mark_busy(0, 5.0)
    assert ranks.group.view()[0].state == "busy"
    ranks.group.mark_done(0, 7.5)
    ranks.group.mark_done(0, 9.0)
    view = ranks.group.view()[0]
    assert (view.state, view.seconds, view.generation) == ("idle", 2.5, 1)
    ranks.group.mark_busy(0, 10.0)
    ranks.exited(0, cause=Cause(code=4))
    view = ranks.group.view()[0]
    assert (view.state, view.cause) == ("dead", "exited with code 4")


def test_kernel_info_is_that_of_the_first_rank_that_ever_got_ready() -> None:
    ranks = Ranks()
    ranks.ready(1, banner="one")
    ranks.ready(0, banner="zero")
    assert ranks.group.info == {"banner": "one"}


# ---------------------------------------------------------------- through the whole hub


def own_codes(world: World, rank: int, since: int = 0) -> list[str]:
    """Silent code of ours that a rank was sent."""
    messages = [
        e.message for e in world.effects[since:] if isinstance(e, ToRank) and rank in e.ranks
    ]
    contents = [json.loads(m.content) for m in messages if m.msg_type == "execute_request"]
    return [content["code"] for content in contents if content["silent"]]


def test_dead_ranks_come_back_into_a_new_rendezvous_that_survivors_hear_of() -> None:
    world = start(3)
    world.die(world.ranks[1])
    since = len(world.effects)
    kept = {rank: world.ranks[rank] for rank in (0, 2)}
    cell = world.run("%processes 3")
    assert "rank 1" in cell.text or "1 rank" in cell.text
    assert {rank: world.ranks[rank] for rank in (0, 2)} == kept
    new = world.ranks[1]
    assert (new.env["RANK"], new.env["WORLD_SIZE"], new.env["MASTER_PORT"]) == ("1", "3", "20002")
    asked, told = own_codes(world, 0, since)
    assert not asked  # expressions only
    assert "environ" in told and "'MASTER_PORT': '20002'" in told
    assert not any("environ" in code for code in own_codes(world, 1, since))
    assert [launch.request.generation for launch in world.launches] == [1, 2]
    assert [spec.rank for spec in world.launches[1].request.ranks] == [1]


def test_each_world_has_ports_of_its_own_until_they_run_out() -> None:
    world = start(1, ports=(1, 2, 3, 4))
    for size in (2, 3):
        world.run(f"%processes {size}")
    ports = [launch.request.ranks[0].env for launch in world.launches]
    assert [(env["MASTER_PORT"], env["JAX_COORDINATOR_ADDRESS"][-1]) for env in ports] == [
        ("1", "2"), ("3", "4"), ("1", "2")
    ]  # fmt: skip


def test_new_ranks_take_over_the_count() -> None:
    world = start(1)
    for _ in range(3):
        world.run("x")
    cell = world.run("%processes 2")
    assert cell.reply["execution_count"] == 4
    assert any('"count": 4}' in code for code in own_codes(world, 1))


def test_other_languages_are_left_alone() -> None:
    world = start(1, language="julia", setup="")
    world.run("%processes 2")
    assert not own_codes(world, 1)
    assert world.run("x").reply["status"] == "ok"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause(code=7), "rank 1 could not start: the process exited with code 7"),
        (Cause(signal=11), "rank 1 could not start: the process was killed by SIGSEGV"),
        (Cause(missing="no kernelspec 'x'"), "rank 1 could not start: no kernelspec 'x'"),
    ],
)
def test_what_is_said_of_a_rank_that_cannot_start(cause: Cause, words: str) -> None:
    world = start(1)
    cell = world.execute("%processes 2")
    while len(world.launches) < 2:
        world.step()
    other = world.ranks[0]
    world.die(world.ranks[1], cause)
    assert other.stopping
    assert not cell.replies, "not before the others are gone"
    world.settle()
    assert words in cell.reply["evalue"]
    assert "the other ranks that were starting were stopped" in cell.reply["evalue"]
    assert "last words" not in cell.reply["evalue"]
    later = world.run("x")
    assert words in later.reply["evalue"], "the next cell says it, too"


def test_a_rank_that_dies_during_its_set_up_is_missed_by_the_next_cell() -> None:
    world = start(1)
    cell = world.execute("%processes 2")
    while not any(fake.inbox for fake in world.ranks.values()) or 1 not in world.ranks:
        world.step()
    world.die(world.ranks[1], Cause(signal=6))
    world.settle()
    assert len(cell.replies) == 1
    assert "rank 1 died" in world.run("x").reply["evalue"]


def test_shutdown_before_the_first_rank_is_up_starts_none_and_leaves_nobody_waiting() -> None:
    world = World(2)
    cell, info = world.execute("x"), world.ask("kernel_info_request", {})
    comm = world.ask("comm_open", {"comm_id": "k", "target_name": "t"})
    shutdown = world.ask("shutdown_request", {"restart": False}, channel="control")
    world.settle()
    assert cell.reply == {"status": "aborted"}
    assert info.reply["status"] == "ok"
    assert comm.states == ["busy", "idle"]
    assert shutdown.reply["status"] == "ok"
    assert not world.launches and world.exits == [0]


def test_shutdown_while_the_first_ranks_start_stops_them() -> None:
    world = World(2)
    cell, query = world.execute("x"), world.ask("history_request", {})
    world.survey()
    world.become_ready(world.ranks[1])
    shutdown = world.ask("shutdown_request", {"restart": False}, channel="control")
    assert not shutdown.replies and all(fake.stopping for fake in world.ranks.values())
    world.settle()
    assert cell.reply == {"status": "aborted"}
    assert query.reply["status"] == "ok"
    assert not world.ranks and world.exits == [0]


@pytest.mark.parametrize("code", ["%processes 3", "work()"])
def test_shutdown_in_the_middle_of_a_cell(code: str) -> None:
    world = start(2)
    cell = world.execute(code)
    world.survey() if world.surveys else None
    shutdown = world.ask("shutdown_request", {"restart": True}, channel="control")
    again = world.ask("shutdown_request", {"restart": True}, channel="control")
    world.settle()
    late = world.execute("x")
    assert cell.reply == late.reply == {"status": "aborted"}
    assert late.states == ["busy", "idle"]
    assert shutdown.reply == again.reply == {"status": "ok", "restart": True}
    assert not world.ranks and world.exits == [0]


def test_a_second_interrupt_of_a_start_finds_nothing_to_do() -> None:
    world = start(1)
    cell = world.execute("%processes 2")
    while len(world.launches) < 2:
        world.step()
    for _ in range(2):
        world.feed(Signalled(world.tick(), 2))
    world.settle()
    assert cell.reply["ename"] == "KeyboardInterrupt"
    assert cell.states == ["busy", "idle"]
    assert not world.ranks


def test_devices_are_handed_out_by_rank() -> None:
    world = World(2, Facts(gpus=("0", "1")))
    world.settle()
    assert [world.ranks[rank].env["JAX_LOCAL_DEVICE_IDS"] for rank in (0, 1)] == ["0", "1"]


def test_ranks_that_come_back_get_the_environment_of_their_world() -> None:
    world = start(1)
    world.run("%processes 2 --env A=1 --env B=2")
    world.die(world.ranks[1])
    world.run("%processes 2")
    assert (world.ranks[1].env["A"], world.ranks[1].env["B"]) == ("1", "2")
    world.run("%processes 2 --fresh")
    assert "A" not in world.ranks[1].env
