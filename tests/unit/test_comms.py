"""Comms, through the whole hub: owners, both ways, and the idle that widgets throttle by."""

from __future__ import annotations

from typing import Any

import pytest

from spmd_kernel.core.model import Message, ToFront, ToRank

from ..world import Sent, World, start

OPEN = {"comm_id": "k", "target_name": "t", "data": {}}
DATA = {"comm_id": "k", "data": {"x": 1}}


def sent_to(world: World, comm: Sent) -> list[tuple[int, ...]]:
    """The ranks that a client's message was sent to."""
    msg_id = comm.message.msg_id
    return [e.ranks for e in world.effects if isinstance(e, ToRank) and e.message.msg_id == msg_id]


def comms(world: World, **content: Any) -> Any:
    return world.ask("comm_info_request", content).reply["comms"]


def opened_by(world: World, *ranks: int) -> None:
    for rank in ranks:
        world.say(world.ranks[rank], "iopub", "comm_open", OPEN, None)


def test_a_message_goes_to_its_owner_alone_and_is_busy_until_served() -> None:
    world = start(3)
    opened_by(world, 1)
    comm = world.ask("comm_msg", DATA, buffers=(b"\0",))
    assert sent_to(world, comm) == [(1,)]
    assert comm.states == ["busy"]
    (got,) = world.ranks[1].inbox
    assert got.content == comm.message.content and got.buffers == (b"\0",)
    world.settle()
    assert comm.kinds == ["status", "status"] and comm.states == ["busy", "idle"]


def test_what_several_ranks_opened_under_one_id_belongs_to_them_all() -> None:
    world = start(3)
    opened_by(world, 0, 2)
    comm = world.ask("comm_msg", DATA)
    assert sent_to(world, comm) == [(0, 2)]
    world.answer_shell(world.ranks[2])
    assert comm.states == ["busy"], "one owner is still at work"
    world.answer_shell(world.ranks[0])
    assert comm.states == ["busy", "idle"]


def test_what_a_client_opens_belongs_to_everybody() -> None:
    world = start(2)
    comm = world.ask("comm_open", OPEN)
    assert sent_to(world, comm) == [(0, 1)]
    assert comms(world) == {"k": {"target_name": "t"}}
    assert sent_to(world, world.ask("comm_msg", DATA)) == [(0, 1)]
    assert sent_to(world, world.ask("comm_close", DATA)) == [(0, 1)]
    assert comms(world) == {}
    late = world.ask("comm_msg", DATA)
    assert sent_to(world, late) == [] and late.states == ["busy", "idle"]


def test_each_owner_closes_its_own() -> None:
    world = start(2)
    opened_by(world, 0, 1)
    world.say(world.ranks[0], "iopub", "comm_close", DATA, None)
    assert sent_to(world, world.ask("comm_msg", DATA)) == [(1,)]
    world.say(world.ranks[1], "iopub", "comm_close", DATA, None)
    assert comms(world) == {}
    world.say(world.ranks[1], "iopub", "comm_close", DATA, None)
    assert comms(world) == {}


def test_the_comms_of_a_dead_rank_die_with_it() -> None:
    world = start(2)
    opened_by(world, 1)
    unserved = world.ask("comm_msg", DATA)
    world.die(world.ranks[1])
    assert unserved.states == ["busy", "idle"], "nobody is left to serve it"
    assert comms(world) == {}
    assert sent_to(world, world.ask("comm_msg", DATA)) == []


def test_an_owner_that_dies_is_not_waited_for() -> None:
    world = start(2)
    comm = world.ask("comm_open", OPEN)
    world.answer_shell(world.ranks[0])
    world.die(world.ranks[1])
    assert comm.states == ["busy", "idle"]
    assert sent_to(world, world.ask("comm_msg", DATA)) == [(0,)]


def test_new_ranks_inherit_nothing() -> None:
    world = start(1)
    world.ask("comm_open", OPEN)
    world.run("%processes 2")
    assert comms(world) == {}


def test_without_a_rank_there_is_nothing_to_own() -> None:
    world = start(1)
    world.die(world.ranks[0])
    comm = world.ask("comm_open", OPEN)
    assert comm.states == ["busy", "idle"]
    assert comms(world) == {}


def test_comm_info_by_target_and_while_a_cell_runs() -> None:
    world = start(1)
    opened_by(world, 0)
    world.say(world.ranks[0], "iopub", "comm_open", {"comm_id": "j", "target_name": "u"}, None)
    world.execute("busy()")
    assert comms(world, target_name="u") == {"j": {"target_name": "u"}}
    assert set(comms(world)) == {"j", "k"}
    assert comms(world, target_name="v") == comms(world, target_name="") == {}
    assert set(comms(world, target_name=None)) == {"j", "k"}


@pytest.mark.parametrize("size", [1, 2])
def test_what_a_rank_sends_reaches_the_client_as_it_came(size: int) -> None:
    world = start(size)
    cell = world.execute("widget()")
    raw = b'{ "comm_id": "k", "data": {"x": 1e999} }'
    request = world.ranks[0].inbox[0]
    world.say(world.ranks[0], "iopub", "comm_msg", raw, request, {"version": "2"}, (b"b", b""))
    (got,) = cell.of("comm_msg")
    assert (got.content, got.metadata, got.buffers) == (raw, {"version": "2"}, (b"b", b""))


def test_an_answer_in_a_callback_belongs_to_the_message_it_answers() -> None:
    world = start(2)
    opened_by(world, 0)
    cell = world.execute("work()")
    comm = world.ask("comm_msg", DATA)
    request = world.ranks[0].inbox[1]
    world.say(world.ranks[0], "iopub", "comm_msg", DATA, request)
    world.say(world.ranks[0], "iopub", "stream", {"name": "stdout", "text": "cb\n"}, request)
    world.settle()
    assert len(comm.of("comm_msg")) == 1 and not cell.of("comm_msg")
    assert comm.text == "0 │ cb\n" and not cell.text
    assert comm.kinds == ["status", "comm_msg", "stream", "status"], "clients hear no more then"


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"comm_id": 5}'])
def test_nonsense_is_dropped(raw: bytes) -> None:
    world = start(1)
    comm = world.ask("comm_msg", None, raw=raw)
    assert comm.kinds == ["status", "status"] and comm.states == ["busy", "idle"]
    before = len(world.effects)
    world.say(world.ranks[0], "iopub", "comm_open", raw, None)
    assert not [e for e in world.effects[before:] if isinstance(e, ToFront)]
    assert world.logs[-1].level == "warning"


def test_idle_of_something_else_ends_nothing() -> None:
    world = start(2)
    comm = world.ask("comm_open", OPEN)
    stranger = Message({"msg_id": "x"}, {}, {}, b"{}")
    world.say(world.ranks[0], "iopub", "status", {"execution_state": "idle"}, stranger)
    world.say(world.ranks[0], "iopub", "status", {"execution_state": "busy"}, comm.message)
    assert comm.states == ["busy"]
    for _ in range(2):  # an owner that says it twice is one owner
        world.say(world.ranks[0], "iopub", "status", {"execution_state": "idle"}, comm.message)
    assert comm.states == ["busy"]
    world.say(world.ranks[1], "iopub", "status", {"execution_state": "idle"}, comm.message)
    assert comm.states == ["busy", "idle"]


def test_ranks_on_their_way_out_get_nothing_more() -> None:
    world = start(2)
    world.ask("comm_open", OPEN)
    world.settle()
    world.execute("%processes 3")
    while not any(fake.stopping for fake in world.ranks.values()):
        world.survey()
    comm = world.ask("comm_msg", DATA)
    assert sent_to(world, comm) == []
    assert comm.states == ["busy", "idle"]
