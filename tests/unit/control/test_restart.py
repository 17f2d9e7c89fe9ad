from __future__ import annotations

import pytest

from spmd_kernel.core.model import Stop

from ...world import World, start
from .asking import checked, now, refused


def test_a_dead_rank_comes_back_and_the_text_is_that_of_the_magic() -> None:
    world = start(2)
    world.die(world.ranks[1])
    kept = world.ranks[0]
    sent = world.control("restart", ranks="dead")
    world.settle()
    data = checked("restart", sent)
    assert data["text"].startswith("rank 1 is back after ") and data["size"] == 2
    assert world.ranks[0] is kept
    assert world.run("x").reply["status"] == "ok"


@pytest.mark.parametrize("ranks", [[1], "1", "-1"])
def test_a_live_rank_is_replaced(ranks: object) -> None:
    world = start(2)
    kept, old = world.ranks[0], world.ranks[1]
    sent = world.control("restart", ranks=ranks)
    world.settle()
    assert checked("restart", sent)["text"].startswith("rank 1 is back after ")
    assert world.ranks[0] is kept and world.ranks[1] is not old


def test_ranks_must_be_named() -> None:
    world = start(2)
    assert "ranks is missing" in refused(world.control("restart"))[1]


def test_while_a_cell_runs_it_is_refused_unless_it_is_to_wait() -> None:
    world = start(2)
    cell = world.execute("work()")
    assert "is running" in refused(world.control("restart", ranks=[1]))[1]
    sent = world.control("restart", ranks=[1], wait=True)
    world.settle()
    assert cell.reply["status"] == "ok"
    assert checked("restart", sent)["text"].startswith("rank 1 is back")


def stuck(world: World, rank: int) -> None:
    """It hears no interrupt and answers nothing."""
    world.ranks[rank].inbox.clear()


def test_a_stuck_rank_is_replaced_while_its_cell_runs() -> None:
    world = start(3)
    cell = world.execute("hang()")
    behind = world.execute("later()")
    stuck(world, 1)
    sent = world.control("restart", ranks=[1], force=True)
    killed = [e for e in world.effects if isinstance(e, Stop)]
    assert [(effect.ranks, effect.now) for effect in killed] == [((1,), True)]
    kept = world.ranks[0], world.ranks[2]
    world.settle()
    assert cell.reply["status"] == "error"
    assert "killed to be restarted" in cell.reply["evalue"]
    assert behind.reply["status"] == "aborted"
    assert checked("restart", sent)["text"].startswith("rank 1 is back")
    assert (world.ranks[0], world.ranks[2]) == kept
    assert world.run("x").reply["status"] == "ok"


def test_force_interrupts_a_cell_that_the_named_ranks_do_not_run() -> None:
    world = start(2)
    world.die(world.ranks[1])
    world.execute("%%rank 0\nwork()")
    sent = world.control("restart", ranks="dead", force=True)
    assert world.ranks[0].interrupted
    last = world.execute("x")
    world.settle()
    assert checked("restart", sent)["text"].startswith("rank 1 is back")
    assert last.reply["status"] == "ok", "it waited for the rank"


def test_force_at_rest_is_an_ordinary_restart() -> None:
    world = start(2)
    sent = world.control("restart", ranks="all", force=True)
    world.settle()
    assert checked("restart", sent)["size"] == 2
    assert now(world, "status")["state"] == "idle"
