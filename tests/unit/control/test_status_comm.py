"""The comm target spmd.status: whom it tells what, and how often."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from spmd_kernel.core.model import Facts, ToFront, ToRank
from spmd_kernel.core.status_comms import MOST, TIMER, changes

from ...world import Sent, World, start
from .asking import pushed


def open_comm(world: World, comm_id: str = "s", **data: Any) -> Sent:
    content = {"comm_id": comm_id, "target_name": "spmd.status", "data": data}
    return world.ask("comm_open", content)


def test_who_opens_it_gets_all_and_no_rank_hears_of_it() -> None:
    world = start(2)
    before = len(world.effects)
    sent = open_comm(world)
    assert sent.kinds == ["status", "comm_msg", "status"]
    assert not [e for e in world.effects[before:] if isinstance(e, ToRank)]
    (data,) = pushed(world)
    assert data["kind"] == "full"
    assert [entry["rank"] for entry in data["status"]["ranks"]] == [0, 1]
    assert "rss" not in data["status"]["ranks"][0]
    assert world.ask("comm_info_request", {}).reply["comms"] == {
        "s": {"target_name": "spmd.status"}
    }
    assert world.ask("comm_info_request", {"target_name": "t"}).reply["comms"] == {}


def test_a_stop_in_the_debugger_is_a_change() -> None:
    world = start(2)
    world.debugged("initialize")
    world.debugged("attach")
    world.quiet()
    open_comm(world)
    world.at += 1
    world.execute("f()")
    world.stop(world.ranks[1])
    world.at += 1
    world.fire(TIMER)
    world.at += 1
    world.tell_event(world.ranks[1])
    *_, change = pushed(world)
    (entry,) = change["status"]["ranks"]
    assert (entry["rank"], entry["state"], entry["stopped"]) == (1, "busy", "breakpoint")


def test_nothing_happens_when_nothing_changes() -> None:
    world = start(2)
    open_comm(world)
    world.settle()
    assert TIMER not in world.timers
    for _ in range(5):
        world.at += 1
        world.ask("kernel_info_request", {})
    world.settle()
    assert len(pushed(world)) == 1 and not world.timers


def test_a_change_is_told_at_once_and_the_next_one_half_a_second_later() -> None:
    world = start(2)
    open_comm(world)
    world.at += 1
    cell = world.execute("work()")
    _, begun = pushed(world)
    assert begun["kind"] == "change"
    assert begun["status"]["state"] == "busy"
    assert begun["status"]["running"]["msg_id"] == cell.message.msg_id
    assert [entry["state"] for entry in begun["status"]["ranks"]] == ["busy", "busy"]
    assert "settings" not in begun["status"]
    told_at = world.at
    world.settle()
    *_, ended = pushed(world)
    assert len(pushed(world)) == 3
    assert ended["status"]["state"] == "idle" and ended["status"]["running"] is None
    assert ended["now"] >= told_at + 0.499


def test_a_flood_of_output_is_not_looked_at() -> None:
    world = start(1)
    open_comm(world)
    world.at += 1
    cell = world.execute("work()")
    looks = 0
    real = world.hub.status_comms._snapshot

    def counted() -> Any:
        nonlocal looks
        looks += 1
        return real()

    world.hub.status_comms._snapshot = counted
    for _ in range(1000):
        world.say(
            world.ranks[0], "iopub", "stream", {"name": "stdout", "text": "x\n"}, cell.message
        )
    assert looks == 0


def test_a_rank_that_dies_is_told_of_with_its_cause() -> None:
    world = start(2)
    open_comm(world)
    world.at += 1
    world.die(world.ranks[1])
    (entry,) = pushed(world)[-1]["status"]["ranks"]
    assert (entry["rank"], entry["state"]) == (1, "dead")
    assert "SIGKILL" in entry["cause"]


def test_a_smaller_world() -> None:
    world = start(3)
    open_comm(world)
    world.run("%processes 1")
    assert pushed(world)[-1]["status"]["ranks"][-1]["rank"] == 0
    sizes = [data["status"]["size"] for data in pushed(world) if "size" in data["status"]]
    assert sizes[-1] == 1


def test_closed_it_is_silent() -> None:
    world = start(1)
    open_comm(world)
    sent = world.ask("comm_close", {"comm_id": "s", "data": {}})
    assert sent.kinds == ["status", "status"]
    world.run("x")
    assert len(pushed(world)) == 1 and TIMER not in world.timers
    assert world.ask("comm_info_request", {}).reply["comms"] == {}


def test_closed_while_a_change_is_due_leaves_no_timer() -> None:
    world = start(1)
    open_comm(world)
    world.execute("x")
    assert TIMER in world.timers
    world.ask("comm_close", {"comm_id": "s", "data": {}})
    assert TIMER not in world.timers
    open_comm(world, "t")
    world.settle()
    assert pushed(world, "t")[-1]["status"]["state"] == "idle"


def test_several_clients_are_told_in_the_names_of_their_own_requests() -> None:
    world = start(1)
    first = open_comm(world, "a")
    world.at += 1
    second = open_comm(world, "b")
    world.at += 1
    world.run("x")
    assert len(pushed(world, "a")) >= 2 and len(pushed(world, "b")) >= 2
    assert first.of("comm_msg") and second.of("comm_msg")
    assert all(b'"a"' in effect.content for effect in first.of("comm_msg"))


def test_a_message_asks_for_all_again() -> None:
    world = start(1)
    open_comm(world)
    sent = world.ask("comm_msg", {"comm_id": "s", "data": {}})
    assert sent.kinds == ["status", "comm_msg", "status"]
    assert [data["kind"] for data in pushed(world)] == ["full", "full"]


def test_while_the_first_ranks_start() -> None:
    world = World(2)
    world.survey()
    open_comm(world)
    (data,) = pushed(world)
    assert data["status"]["state"] == "starting"
    world.settle()
    assert pushed(world)[-1]["status"]["state"] == "idle"


def test_resources_only_for_who_asks() -> None:
    world = start(1)
    open_comm(world, "plain")
    open_comm(world, "rich", resources=True)
    world.settle()
    world.facts = Facts(rss={0: 5_000})
    cell = world.execute("work()")
    for _ in range(6):
        (timer,) = [key for key in world.timers if key == TIMER]
        world.fire(timer)
        world.survey()
        world.facts = Facts(rss={0: world.facts.rss[0] + 1000})
    sizes = [
        d["status"]["ranks"][0]["rss"] for d in pushed(world, "rich") if "ranks" in d["status"]
    ]
    assert sizes[-5:] == [6000, 7000, 8000, 9000, 10000]
    times = [data["now"] for data in pushed(world, "rich")[1:]]
    assert all(b - a >= 0.499 for a, b in pairwise(times))
    assert len(pushed(world, "plain")) == 2, "that the cell began"
    world.settle()
    assert cell.finished and not world.timers


def test_pages_that_close_nothing_do_not_add_up() -> None:
    world = start(1)
    opened = [open_comm(world, f"c{number}") for number in range(MOST + 3)]
    closed = [
        json.loads(e.content)["comm_id"]
        for e in world.effects
        if isinstance(e, ToFront) and e.msg_type == "comm_close"
    ]
    assert closed == ["c0", "c1", "c2"]
    assert len(world.ask("comm_info_request", {}).reply["comms"]) == MOST
    assert opened[0].kinds[-1] == "comm_close"


def test_other_targets_are_the_ranks_affair() -> None:
    world = start(1)
    open_comm(world, "s")
    content = {"comm_id": "s", "target_name": "t", "data": {}}
    other = world.ask("comm_open", content)
    assert [m.msg_id for m in world.ranks[0].inbox] == [other.message.msg_id]
    assert world.ask("comm_info_request", {}).reply["comms"] == {"s": {"target_name": "t"}}
    world.settle()


def test_changes_name_what_differs() -> None:
    old = {"a": 1, "b": 2, "ranks": [{"rank": 0, "x": 1}, {"rank": 1, "x": 1}]}
    new = {"a": 1, "b": 3, "ranks": [{"rank": 0, "x": 1}, {"rank": 1, "x": 2}]}
    assert changes(old, old) == {}
    assert changes(old, new) == {"b": 3, "ranks": [{"rank": 1, "x": 2}]}
