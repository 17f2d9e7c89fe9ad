from __future__ import annotations

import json

from spmd_kernel.core.model import Cause, Facts

from ...world import World, start
from .asking import now


def test_the_ranks_at_rest() -> None:
    world = start(2)
    world.facts = Facts(rss={0: 1000})
    assert "rss" not in now(world, "status")["ranks"][0]
    status = now(world, "status", resources=True)
    assert (status["state"], status["size"], status["running"]) == ("idle", 2, None)
    assert status["versions"]["implementation"] == "ipython"
    first, second = status["ranks"]
    assert (first["state"], first["pid"], first["rss"]) == ("idle", 1000, 1000)
    assert second["rss"] is None and second["last_seconds"] is None


def test_the_cell_that_runs_and_who_has_finished() -> None:
    world = start(2)
    world.run("x")
    world.at += 5
    began = world.at
    cell = world.execute("work()")
    world.execute("later()")
    world.at += 2
    world.answer_shell(world.ranks[1])
    status = now(world, "status")
    running = status["running"]
    assert (running["msg_id"], running["execution_count"]) == (cell.message.msg_id, 2)
    assert running["ranks"] == [0] and status["queued"] == 1
    assert 2 <= status["now"] - running["started"] < 2.1
    first, second = status["ranks"]
    assert first["state"] == "busy" and second["state"] == "idle"
    assert abs(first["busy_since"] - began) < 0.1 and second["busy_since"] is None
    assert 2 <= second["last_seconds"] < 2.1


def test_what_a_rank_died_of() -> None:
    world = start(2)
    world.die(world.ranks[1], Cause(signal=11))
    status = now(world, "status")
    assert status["ranks"][1]["state"] == "dead"
    assert "SIGSEGV" in status["ranks"][1]["cause"]
    assert status["ranks"][0]["cause"] is None


def test_a_cell_of_a_notebook_is_named() -> None:
    world = start(1)
    sent = world.execute("x")
    assert now(world, "status")["running"]["cell_id"] is None
    assert sent.message.metadata == {}


def test_settings_and_limits() -> None:
    world = start(2, max_processes=4, pinned=2)
    world.run("%processes --show 0 --on-error stop")
    settings = now(world, "status")["settings"]
    assert settings["show"] == [0] and settings["on_error"] == "stop"
    assert (settings["pinned"], settings["max_processes"]) == (2, 4)


def test_when_no_rank_could_ever_start() -> None:
    world = World(1)
    world.survey()
    world.die(world.ranks[0], Cause(missing="no such program"))
    world.settle()
    status = now(world, "status")
    assert status["state"] == "idle"
    assert status["ranks"][0]["state"] == "dead"
    assert status["versions"]["implementation"] is None


def test_while_it_shuts_down() -> None:
    world = start(2)
    world.ask("shutdown_request", {"restart": False}, channel="control")
    assert now(world, "status")["state"] == "closing"
    world.settle()
    assert world.exits == [0]


def test_the_answer_is_plain_json() -> None:
    world = start(1)
    sent = world.control("status", resources=True)
    world.survey()
    assert b"NaN" not in sent.replies[0].content
    json.loads(sent.replies[0].content)


def test_a_busy_kernel_says_so_after_other_requests() -> None:
    """Servers and pages take the last state that they heard for the kernel's."""
    world = start(2)
    cell = world.execute("train()")

    def state() -> str:
        said = [e for e in world.effects if getattr(e, "msg_type", "") == "status"]
        last: str = json.loads(said[-1].content)["execution_state"]  # type: ignore[union-attr]
        return last

    for ask in (
        lambda: world.control("status"),
        lambda: world.ask("comm_info_request", {}),
        lambda: world.ask("comm_open", {"comm_id": "s", "target_name": "spmd.status", "data": {}}),
    ):
        assert ask().states == ["busy", "idle"]
        assert state() == "busy"
    world.settle()
    assert cell.states == ["busy", "idle"] and state() == "idle"
    world.control("status")
    assert state() == "idle"
