"""How one world of ranks gives way to the next, and how the kernel ends."""

from __future__ import annotations

import json

import pytest

from spmd_kernel.core.model import Cause, Exit, Facts, Preload, Signalled, ToRank

from ..world import GIB, World, start


def silent_codes(world: World) -> list[str]:
    messages = [e.message for e in world.effects if isinstance(e, ToRank)]
    contents = [json.loads(m.content) for m in messages if m.msg_type == "execute_request"]
    return [content["code"] for content in contents if content["silent"]]


def test_requests_wait_for_the_first_rank() -> None:
    world = World()
    info = world.ask("kernel_info_request", {})
    assert not info.effects
    world.settle()
    assert info.reply["implementation"] == "ipython"
    assert info.reply["supported_features"] == ["debugger"]


def test_kernel_info_is_answered_even_if_no_rank_can_start() -> None:
    world = World()
    info = world.ask("kernel_info_request", {})
    world.survey()
    world.die(world.ranks[0], Cause(code=1), "No module named ipykernel\n")
    world.settle()
    assert info.reply["language_info"]["name"] == "python"
    cell = world.run("pass")
    assert "rank 0 could not start" in cell.reply["evalue"]
    assert "No module named ipykernel" in cell.reply["evalue"]


def test_processes_replaces_the_ranks_and_reports() -> None:
    world = start()
    assert "cleared" not in world.run("%processes 1 --fresh").text  # nothing had run there
    assert "cleared" in world.run("%processes 2").text  # somebody asked for those ranks
    world.run("x = 1")
    old = world.ranks[0]
    cell = world.run("%processes 3\nprint(1)")
    assert sorted(world.ranks) == [0, 1, 2]
    assert world.ranks[0] is not old
    assert "3 ranks ready in" in cell.text
    assert "OMP_NUM_THREADS=1" in cell.text
    assert "cleared" in cell.text
    ports = {(r.env["MASTER_PORT"], r.env["WORLD_SIZE"]) for r in world.ranks.values()}
    assert ports == {("20006", "3")}


def test_parameters_and_client_setup_are_replayed() -> None:
    world = start()
    world.run("import helper", silent=True, store_history=False)
    world.run("epochs = 3\nprocesses = 2")
    world.run("print('not replayed')")
    world.run("%processes {processes}")
    replayed = silent_codes(world)
    assert "import helper" in replayed
    assert "epochs = 3\nprocesses = 2" in replayed
    assert not any("not replayed" in code for code in replayed)
    assert len(world.ranks) == 2


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "as VS Code"])
def test_set_up_is_what_no_history_keeps(silent: bool) -> None:
    world = start()
    world.run("import helper", silent=silent, store_history=False)
    world.run("1 + 1")
    world.run("variables()", silent=silent, store_history=False)
    world.run("%processes 2")
    replayed = silent_codes(world)
    assert "import helper" in replayed
    assert "variables()" not in replayed[-2:]


def test_same_number_keeps_everything() -> None:
    world = start(2)
    before = dict(world.ranks)
    cell = world.run("%processes 2")
    assert "already 2 ranks" in cell.text
    assert world.ranks == before
    world.run("%processes 2 --fresh")
    assert world.ranks != before


def test_environment_wins_over_the_magic() -> None:
    world = start(2, pinned=2)
    cell = world.run("%processes 8")
    assert len(world.ranks) == 2
    assert "SPMD_PROCESSES=2" in cell.text


def test_too_little_memory() -> None:
    world = World(facts=Facts(memory_available=GIB // 8))
    world.settle()
    cell = world.run("%processes 64")
    assert "not enough memory" in cell.reply["evalue"]
    assert len(world.ranks) == 1


def test_a_rank_that_cannot_start_is_explained_and_the_others_are_stopped() -> None:
    world = start()
    cell = world.execute("%processes 3")
    while len(world.launches) < 2:
        world.step()
    world.become_ready(world.ranks[0])
    world.die(world.ranks[1], Cause(code=7), "boom in sitecustomize\n")
    world.settle()
    assert not world.ranks
    error = "\n".join(cell.errors[0]["traceback"])
    assert "rank 1 could not start" in error and "code 7" in error
    assert "boom in sitecustomize" in error and "hint:" in error
    assert world.run("pass").reply["status"] == "error"
    assert world.run("%processes 3").reply["status"] == "ok"
    assert world.run("pass").reply["status"] == "ok"


def test_a_silent_rank_is_given_up() -> None:
    world = start()
    cell = world.execute("%processes 2")
    while len(world.launches) < 2:
        world.step()
    mute = world.ranks[1]
    world.become_ready(world.ranks[0])
    world.pass_time_until(lambda: mute.stopping)
    world.settle()
    assert "did not answer within 60 s" in cell.reply["evalue"]


def test_interrupt_breaks_off_a_start() -> None:
    world = start()
    cell = world.execute("%processes 2")
    while len(world.launches) < 2:
        world.step()
    world.feed(Signalled(world.tick(), 2))
    world.settle()
    assert cell.reply["ename"] == "KeyboardInterrupt"
    assert not world.ranks


def test_a_death_between_cells_is_told_in_the_last_one() -> None:
    world = start(2)
    cell = world.run("pass")
    world.die(world.ranks[1])
    assert "rank 1 died" in cell.text


def test_shutdown_waits_for_the_ranks() -> None:
    world = start(2)
    running, queued = world.execute("work()"), world.execute("more()")
    shutdown = world.ask("shutdown_request", {"restart": True}, channel="control")
    assert not shutdown.replies
    world.settle()
    assert shutdown.reply == {"status": "ok", "restart": True}
    assert world.exits == [0]
    assert running.reply == queued.reply == {"status": "aborted"}
    assert not world.ranks


def test_sigterm_leaves_at_once() -> None:
    world = start(2)
    world.feed(Signalled(world.tick(), 15))
    assert world.effects[-1] == Exit(0)


def test_exit_in_a_cell_ends_the_kernel() -> None:
    world = start(2)
    cell = world.execute("exit()")
    for rank in list(world.ranks.values()):
        request = rank.inbox.popleft()
        payload = [{"source": "ask_exit", "keepkernel": False}]
        world.say(rank, "shell", "execute_reply", {"status": "ok", "payload": payload}, request)
        world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    world.settle()
    assert cell.reply["status"] == "ok"
    assert world.exits == [0]


def test_what_cannot_be_preloaded_costs_no_rank() -> None:
    world = start(2)
    old = dict(world.ranks)
    cell = world.run("%processes 3 --preload no_such,torch")
    assert "no_such cannot be imported" in cell.reply["evalue"]
    assert world.ranks == old
    assert world.run("x = 1").reply["status"] == "ok"


def test_ranks_are_forked_from_a_process_that_has_imported_it() -> None:
    world = start()
    cell = world.run("%processes 2 --preload torch,jax --env A=1")
    assert "preloaded torch, jax" in cell.text
    prepared = next(e.request for e in world.effects if isinstance(e, Preload))
    launched = world.launches[-1].request
    assert prepared.preload == launched.preload == ("torch", "jax")
    (spec,) = prepared.ranks
    assert spec.env["OMP_NUM_THREADS"] == spec.env["A"] == "1"
    assert all(rank.env.items() >= spec.env.items() for rank in launched.ranks)
    world.die(world.ranks[1])
    assert "preload" not in world.run("%processes 2 --preload torch").text  # it is what they have
    assert world.launches[-1].request.preload == ("torch", "jax")
    world.run("%processes 2 --fresh")
    assert world.launches[-1].request.preload == ()


def test_stop_ends_the_wait_for_a_preload() -> None:
    world = start()
    cell = world.execute("%processes 2 --preload torch")
    while not world.preloads:
        assert world.step()
    world.ask("interrupt_request", {}, channel="control")
    assert cell.reply["ename"] == "KeyboardInterrupt"
    world.preloaded()  # too late
    assert world.run("x = 1").reply["status"] == "ok"
    assert len(world.ranks) == 1
