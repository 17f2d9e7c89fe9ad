"""Stop in odd moments, and what is left afterwards."""

from __future__ import annotations

import json

from spmd_kernel.core.model import Facts, Interrupt, Signalled, ToRank

from ..world import GIB, World, start
from .test_cells import sent_codes


def silent_codes(world: World) -> list[str]:
    messages = [e.message for e in world.effects if isinstance(e, ToRank)]
    contents = [json.loads(m.content) for m in messages if m.msg_type == "execute_request"]
    return [content["code"] for content in contents if content["silent"]]


def interrupted(world: World) -> list[tuple[int, ...]]:
    return [effect.ranks for effect in world.effects if isinstance(effect, Interrupt)]


def test_stop_reaches_a_rank_that_evaluates_an_expression_for_a_magic() -> None:
    world = start(2)
    cell = world.execute("%processes {endless()}")
    world.feed(Signalled(world.tick(), 2))
    assert interrupted(world) == [(0,)]
    assert cell.reply["ename"] == "KeyboardInterrupt"


def test_stop_reaches_a_rank_that_is_in_a_widget_callback() -> None:
    world = start(2)
    rank = world.ranks[1]
    world.say(rank, "iopub", "comm_open", {"comm_id": "c", "target_name": "t"}, None)
    world.ask("comm_msg", {"comm_id": "c", "data": {}})
    world.feed(Signalled(world.tick(), 2))
    assert interrupted(world) == [(1,)]


def test_stop_at_rest_touches_nobody() -> None:
    world = start(2)
    world.run("pass")
    world.feed(Signalled(world.tick(), 2))
    assert interrupted(world) == []


def test_stop_while_the_kernel_starts_drops_the_cells_that_wait() -> None:
    world = World(2)
    cell = world.execute("work()")
    info = world.ask("kernel_info_request", {})
    world.ask("interrupt_request", {}, channel="control")
    world.settle()
    assert cell.reply == {"status": "aborted"}
    assert info.reply["status"] == "ok"


def test_counts_are_realigned_after_an_interrupt() -> None:
    world = start(2)
    world.run("pass")
    world.execute("loop()")
    world.feed(Signalled(world.tick(), 2))
    world.settle()
    assert any("'count': 3" in code or '"count": 3' in code for code in silent_codes(world)[-1:])


def test_a_blank_body_counts_on_every_rank() -> None:
    world = start(2)
    world.run("%%rank 0\n")
    assert [world.ranks[rank].count for rank in (0, 1)] == [1, 1]
    assert sent_codes(world, 0) == sent_codes(world, 1) == ["# %%rank 0"]


def test_after_a_start_that_was_broken_off_the_same_number_starts_again() -> None:
    world = start(2)
    cell = world.execute("%processes 2 --fresh")
    world.survey()  # asked by the magic
    world.survey()  # asked by the start
    world.feed(Signalled(world.tick(), 2))
    assert cell.reply["ename"] == "KeyboardInterrupt"
    again = world.run("%processes 2")
    assert again.reply["status"] == "ok" and "already" not in again.text
    assert world.run("pass").reply["status"] == "ok"


def test_who_kept_its_memory_is_said_right() -> None:
    world = start(3)
    world.die(world.ranks[1])
    text = world.run("%processes 3").text
    assert "rank 1 is back" in text and "ranks 0, 2 kept their memory" in text
    for rank in list(world.ranks.values()):
        world.die(rank)
    assert "kept" not in world.run("%processes 3").text


def test_a_rank_that_comes_back_gets_the_setup_of_the_client_but_no_old_parameters() -> None:
    world = start()
    world.run("import helper", silent=True, store_history=False)
    world.run("epochs = 3")
    world.run("%processes 2")
    world.run("epochs = 10")
    before = len(silent_codes(world))
    world.die(world.ranks[1])
    world.run("%processes 2")
    replayed = silent_codes(world)[before:]
    assert "import helper" in replayed and "epochs = 3" not in replayed


def test_too_many_ranks_from_the_environment_are_explained_in_each_cell() -> None:
    world = World(512, facts=Facts(memory_available=GIB))
    world.settle()
    assert not world.launches
    cell = world.run("pass")
    assert "not enough memory for 512 ranks" in cell.reply["evalue"]
    assert world.run("%processes 2").reply["status"] == "ok"


def test_a_query_that_the_rank_rejects_ends() -> None:
    """ipykernel answers a request that it cannot read with busy and idle only."""
    world = start()
    query = world.ask("is_complete_request", {})
    rank = world.ranks[0]
    request = rank.inbox.popleft()
    for state in ("busy", "idle"):
        world.say(rank, "iopub", "status", {"execution_state": state}, request)
    world.settle()
    assert query.reply == {"status": "unknown"}
    assert query.states == ["busy", "idle"]


def test_what_a_rank_wrote_precedes_its_comm_messages() -> None:
    """An Output widget captures between two comm messages."""
    world = start(2)
    cell = world.execute("with out: print()")
    rank = world.ranks[0]
    comm = {"comm_id": "o", "data": {}}
    world.say(rank, "iopub", "comm_msg", comm, rank.inbox[0])
    world.say(rank, "iopub", "stream", {"name": "stdout", "text": "captured\n"}, rank.inbox[0])
    world.say(rank, "iopub", "comm_msg", comm, rank.inbox[0])
    kinds = [effect.msg_type for effect in cell.effects]
    assert kinds[-3:] == ["comm_msg", "stream", "comm_msg"]
