"""Stop for ranks that do not end: who is interrupted, freed, named, restarted, and when."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from spmd_kernel.core.model import (
    Dump,
    Effect,
    Interrupt,
    Signalled,
    Stop,
    ToRank,
    Unblock,
    Unblocked,
)

from ..dumps import C10D, dump, in_all_reduce
from ..world import Sent, World

CODE = "dist.all_reduce(x)"
INIT = (("torch/distributed/rendezvous.py", "_create_c10d_store"), (C10D, "init_process_group"))
STEPS = (Interrupt, Unblock, Stop)


class Ladder(World):
    """Time passes in steps; nobody but the engine answers unless a test says so."""

    began = 0.0

    def stop(self) -> None:
        self.feed(Signalled(self.tick(), 2))

    def until(self, seconds: float) -> None:
        """Until so long after the first Stop."""
        while due := [key for key, at in self.timers.items() if at <= self.began + seconds + 0.01]:
            self.fire(min(due, key=lambda key: self.timers[key]))
            while self.lookouts:
                self.look()
        self.at = max(self.at, self.began + seconds)

    def of(self, *kinds: type[Effect]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kinds)]


def stopped(size: int, code: str = CODE, **settings: Any) -> tuple[Ladder, Sent]:
    """A cell on all ranks, stopped just now."""
    world = Ladder(size, **settings)
    world.settle()
    world.effects.clear()
    cell = world.execute(code)
    world.stop()
    world.began = world.at
    return world, cell


def test_one_rank_is_an_ordinary_kernel() -> None:
    world, _ = stopped(1)
    world.stacks = {0: in_all_reduce(CODE)}
    world.until(60)
    world.stop()
    assert world.of(*STEPS) == [Interrupt((0,)), Interrupt((0,))]
    assert not world.of(Dump)


def test_who_waits_for_a_peer_that_has_finished_is_freed() -> None:
    world, cell = stopped(2)
    world.stacks, world.closed = {0: in_all_reduce(CODE)}, {0: 3}
    world.answer_shell(world.ranks[1])
    world.until(0.9)
    assert world.of(*STEPS) == [Interrupt((0, 1))]
    world.until(1.5)
    (unblock,) = world.of(Unblock)
    assert unblock.ranks == (0,) and not unblock.store
    assert unblock.ports == world.hub.settings.ports
    world.answer_shell(world.ranks[0], error=True)
    world.settle()
    assert cell.text.count("process group is broken") == 1
    assert cell.reply["status"] == "error"


def test_the_next_cell_finds_a_new_port() -> None:
    world, _ = stopped(2)
    world.stacks, world.closed = {0: in_all_reduce(CODE)}, {0: 3}
    world.answer_shell(world.ranks[1])
    world.until(1.5)
    world.answer_shell(world.ranks[0], error=True)
    later = world.execute("x")
    assert not later.effects  # it waits
    world.settle()
    asked = [e for e in world.of(ToRank) if e.message.msg_type == "execute_request"]
    news = [effect for effect in asked if b"MASTER_PORT" in effect.message.content]
    assert [effect.ranks for effect in news] == [(0, 1)]
    port = world.launches[-1].request.ranks[0].env["MASTER_PORT"]
    assert port.encode() not in news[0].message.content
    assert asked[-1].message.header["msg_id"] == later.message.msg_id
    assert later.reply["status"] == "ok"


def test_nobody_is_freed_who_waits_for_a_rank_that_still_works() -> None:
    world, _ = stopped(3)
    world.stacks = {rank: in_all_reduce(CODE, rank) for rank in (0, 1)}
    world.stacks[2] = dump(CODE, ("numpy/linalg.py", "svd"))
    world.until(4.5)
    assert not world.of(Unblock)
    world.answer_shell(world.ranks[2], error=True)  # the C code has ended at last
    world.until(10)
    assert world.of(Unblock)[0].ranks == (0, 1)


def test_ranks_that_all_wait_are_freed() -> None:
    world, _ = stopped(2)
    world.stacks = {0: dump(CODE, (C10D, "recv")), 1: dump(CODE, (C10D, "send"), rank=1)}
    world.until(1.5)
    assert world.of(Unblock)[0].ranks == (0, 1)


def test_a_rank_that_was_not_asked_to_run_the_cell_is_no_peer_that_comes() -> None:
    world = Ladder(2)
    world.settle()
    world.execute(f"%%rank 0\n{CODE}")
    code = f"# %%rank 0\n{CODE}"
    world.stacks = {0: in_all_reduce(code, line=2)}
    world.stop()
    world.began = world.at
    world.until(1.5)
    assert world.of(Unblock)[0].ranks == (0,)


def test_a_wait_for_the_store_ends_with_the_connection_to_the_store() -> None:
    world, _ = stopped(2)
    world.stacks = {0: dump(CODE, *INIT)}
    world.answer_shell(world.ranks[1])
    world.until(1.5)
    (unblock,) = world.of(Unblock)
    assert unblock.store and unblock.ports == world.hub.settings.ports[::2]
    world.until(2.5)
    assert [effect.store for effect in world.of(Unblock)] == [True, False]


def test_the_second_sigint_spares_those_just_freed() -> None:
    world, _ = stopped(3)
    world.answer_shell(world.ranks[2])
    world.stacks, world.closed = {0: in_all_reduce(CODE)}, {0: 1}
    world.until(2.5)
    assert [effect.ranks for effect in world.of(Interrupt)] == [(0, 1, 2), (1,)]


def test_the_second_sigint_spares_those_that_write_their_traceback() -> None:
    world, _ = stopped(2)
    world.stacks = {1: dump(CODE, ("IPython/core/interactiveshell.py", "showtraceback"), rank=1)}
    world.until(2.5)
    assert [effect.ranks for effect in world.of(Interrupt)] == [(0, 1), (0,)]


def test_who_is_still_busy_is_told_once() -> None:
    world, cell = stopped(3)
    world.stacks = {rank: dump(CODE, ("scipy/linalg.py", "svd"), rank=rank) for rank in (0, 2)}
    world.answer_shell(world.ranks[1], error=True)
    world.until(30)
    assert cell.text.count("ranks 0, 2 are still busy 5 s after Stop") == 1
    assert "ranks 0, 2: cell line 1" in cell.text and "scipy/linalg.py:7 in svd" in cell.text
    assert (
        "second Stop restarts ranks 0, 2" in cell.text and "(the others keep theirs)" in cell.text
    )
    assert not world.of(Stop)


def test_ranks_that_do_not_answer_are_told_of_too() -> None:
    world, cell = stopped(2)
    world.until(6)
    assert "ranks 0-1: no answer\n" in cell.text


@pytest.mark.parametrize("seconds", [0.5, 1.9])
def test_an_early_second_stop_is_only_an_interrupt(seconds: float) -> None:
    world, _ = stopped(2)
    world.until(seconds)
    world.stop()
    assert not world.of(Stop)
    assert len(world.of(Interrupt)) == 2


def test_a_second_stop_restarts_just_the_stuck_ranks() -> None:
    world, cell = stopped(3)
    old = dict(world.ranks)
    world.answer_shell(world.ranks[0], error=True)
    world.answer_shell(world.ranks[2], error=True)
    world.stacks = {1: dump(CODE, ("scipy/linalg.py", "svd"), rank=1)}
    world.until(2.2)
    world.stop()
    assert world.of(Stop) == [Stop((1,), now=True)]
    later = world.execute("x")
    world.settle()
    (error,) = [e for e in cell.errors if e["ename"] == "RankLost"]
    assert "rank 1 was restarted" in error["evalue"] and "cell line 1" in error["evalue"]
    assert "the other ranks keep theirs" in error["traceback"][-1]
    assert world.ranks[0] is old[0] and world.ranks[2] is old[2]
    assert world.ranks[1] is not old[1]
    assert later.reply["status"] == "aborted"
    assert world.run("pass").reply["status"] == "ok"


def test_a_cell_sent_while_ranks_come_back_waits_for_them() -> None:
    world, cell = stopped(2)
    world.answer_shell(world.ranks[0], error=True)
    world.until(2.2)
    world.stop()
    world.die(world.ranks[1])
    assert cell.finished
    later = world.execute("pass")
    assert not later.effects
    world.settle()
    assert later.reply["status"] == "ok"


def test_ranks_that_cannot_come_back_are_told_of() -> None:
    world, cell = stopped(2)
    world.answer_shell(world.ranks[0], error=True)
    world.until(2.2)
    world.stop()
    world.die(world.ranks[1])
    while 1 not in world.ranks:
        world.step()
    world.die(world.ranks[1], stderr="no licence")
    world.settle()
    assert "rank 1 could not start" in cell.text and "no licence" in cell.text
    refused = world.run("pass")
    assert refused.reply["ename"] == "RankLost"


def test_stop_breaks_off_the_return_of_ranks() -> None:
    world, _ = stopped(2)
    world.answer_shell(world.ranks[0], error=True)
    world.until(2.2)
    world.stop()
    world.die(world.ranks[1])
    world.stop()
    world.settle()
    assert world.run("%%rank 0\npass").reply["status"] == "ok"
    assert world.run("%processes 2").reply["status"] == "ok"
    assert world.run("pass").reply["status"] == "ok"


def test_shutdown_leaves_no_ladder() -> None:
    world, _ = stopped(2)
    world.ask("shutdown_request", {"restart": False}, channel="control")
    assert not [key for key in world.timers if key[0] in ("ladder", "watch")]  # type: ignore[index]
    world.settle()
    assert world.exits == [0]


def test_what_we_may_not_touch_the_rank_closes_itself() -> None:
    world, cell = stopped(2)
    world.answer_shell(world.ranks[1])
    world.stacks = {0: in_all_reduce(CODE)}
    while not world.lookouts:
        world.fire(min(world.timers, key=lambda key: world.timers[key]))
    world.look()
    (unblock,) = world.of(Unblock)
    world.lookouts.clear()
    world.feed(Unblocked(world.tick(), unblock.token, {0: 0}, {0: ((9, 12345),)}))
    assert "process group is broken" in cell.text
    (request,) = world.ranks[0].control
    assert request.msg_type == "create_subshell_request"
    world.ranks[0].control.clear()
    world.ranks[0].subshells["s1"] = deque()
    world.say(world.ranks[0], "control", "x", {"subshell_id": "s1"}, request)
    (message,) = world.ranks[0].subshells["s1"]
    assert b"(9, 12345)" in message.content


def test_a_wait_without_connections_is_one_of_nccl() -> None:
    world, _ = stopped(2)
    world.answer_shell(world.ranks[1])
    world.stacks = {0: in_all_reduce(CODE)}
    world.until(1.5)
    assert [message.msg_type for message in world.ranks[0].control] == ["create_subshell_request"]


def test_idle_ranks_help_jax_to_start_its_devices() -> None:
    world, _ = stopped(2)
    world.answer_shell(world.ranks[1])
    world.stacks = {0: dump(CODE, ("jaxlib/xla_client.py", "make_cpu_client"))}
    world.until(1.5)
    assert not world.of(Unblock)
    assert any(b"jax._src.distributed" in message.content for message in world.ranks[1].inbox)


def answer_all(world: Ladder, rank: int) -> None:
    while world.ranks[rank].inbox:
        world.answer_shell(world.ranks[rank])


def in_jit(code: str, rank: int = 0) -> str:
    return dump(code, ("jax/_src/interpreters/pxla.py", "__call__"), rank=rank)


def test_ranks_that_have_the_devices_started_leave_nothing_that_a_new_start_trips_over() -> None:
    world, cell = stopped(2)
    world.answer_shell(world.ranks[1])
    world.stacks = {0: dump(CODE, ("jaxlib/xla_client.py", "make_cpu_client"))}
    world.until(1.5)
    answer_all(world, 1)
    world.answer_shell(world.ranks[0], error=True)
    assert "all ranks have to make the same calls" in cell.text
    assert "process group is broken" not in cell.text
    world.settle()
    assert any(b"global_topology" in effect.message.content for effect in world.of(ToRank))


def test_idle_ranks_take_part_in_a_first_collective_before_connections_are_closed() -> None:
    world, cell = stopped(3)
    for rank in (1, 2):
        world.answer_shell(world.ranks[rank])
    world.stacks, world.closed = {0: in_jit(CODE)}, {0: 2}
    world.until(1.5)
    assert not world.of(Unblock)
    for rank in (1, 2):
        assert not world.lookouts
        asked = world.ranks[rank].inbox[-1]
        assert b"cpu:gloo/" in asked.content and b"(0,)" in asked.content
        answer_all(world, rank)
    world.look()
    assert [effect.ranks for effect in world.of(Unblock)] == [(0,)]
    assert "process group is broken" in cell.text and "--fresh" in cell.text


def test_ranks_that_wait_themselves_take_part_beside_that() -> None:
    world, _ = stopped(2)
    world.stacks = {rank: in_jit(CODE, rank) for rank in (0, 1)}
    world.until(1.5)
    assert not world.of(Unblock)
    for fake in world.ranks.values():
        assert [message.msg_type for message in fake.control] == ["create_subshell_request"]
    world.until(2.5)  # no answer
    assert [effect.ranks for effect in world.of(Unblock)] == [(0, 1)]


def test_nobody_takes_part_while_a_rank_still_works() -> None:
    world, _ = stopped(3)
    world.answer_shell(world.ranks[2])
    world.stacks = {0: in_jit(CODE), 1: dump(CODE, ("numpy/linalg.py", "svd"), rank=1)}
    world.until(1.5)
    assert not [message for message in world.ranks[2].inbox if b"jax" in message.content]
    assert world.of(Unblock)[0].ranks == (0,)


def test_the_death_of_a_peer_frees_the_others_without_any_stop() -> None:
    world = Ladder(3)
    world.settle()
    world.execute(CODE)
    world.stacks = {rank: in_all_reduce(CODE, rank) for rank in (0, 1)}
    world.began = world.at
    world.die(world.ranks[2])
    world.until(1.5)
    assert world.of(Unblock)[0].ranks == (0, 1)


def test_stop_after_the_death_of_a_peer_is_the_first() -> None:
    world = Ladder(2)
    world.settle()
    world.execute(CODE)
    world.began = world.at
    world.die(world.ranks[1])
    world.until(3)
    world.stop()
    assert not world.of(Stop)
