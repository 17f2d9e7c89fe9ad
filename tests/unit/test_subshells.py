"""Subshells of clients: one thread in every rank, cells beside those of the main shell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spmd_kernel.core.model import Interrupt, Message, Signalled, Stop, ToRank

from ..world import FakeRank, Sent, World, start

OPEN = {"comm_id": "k", "target_name": "t", "data": {}}
DATA = {"comm_id": "k", "data": {"n": 1}}


def create(world: World) -> str:
    created = world.ask("create_subshell_request", {}, channel="control")
    world.settle()
    assert created.reply["status"] == "ok"
    return str(created.reply["subshell_id"])


def opened(size: int) -> tuple[World, str]:
    world = start(size, subshells=True)
    return world, create(world)


def execute(world: World, subshell: str, code: str = "x", **content: Any) -> Sent:
    return world.execute(code, header={"subshell_id": subshell}, **content)


def busy(fake: FakeRank) -> list[str]:
    return [subshell for subshell, inbox in fake.subshells.items() if inbox]


def head(fake: FakeRank) -> Message:
    (subshell,) = busy(fake)
    return fake.subshells[subshell][0]


def serve(world: World, rank: int, error: bool = False) -> None:
    fake = world.ranks[rank]
    (subshell,) = busy(fake)
    world.answer_subshell(fake, subshell, error)


def prints(world: World, fake: FakeRank, text: str, parent: Message | None = None) -> None:
    content = {"name": "stdout", "text": text}
    world.say(fake, "iopub", "stream", content, parent or head(fake))


# ---------------------------------------------------------------- their life


def test_one_of_a_client_is_one_in_every_rank() -> None:
    world, subshell = opened(3)
    assert [len(fake.subshells) for fake in world.ranks.values()] == [2, 2, 2]
    assert subshell in world.ranks[0].subshells, "at world size 1 the rank's own id"
    assert subshell not in world.ranks[1].subshells
    listed = world.ask("list_subshell_request", {}, channel="control")
    assert listed.reply == {"status": "ok", "subshell_id": [subshell]}
    deleted = world.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")
    assert not deleted.replies
    world.settle()
    assert deleted.reply == {"status": "ok"}
    assert [len(fake.subshells) for fake in world.ranks.values()] == [1, 1, 1]
    listed = world.ask("list_subshell_request", {}, channel="control")
    assert listed.reply["subshell_id"] == []


@pytest.mark.parametrize(
    "lacks",
    [{"supported_features": []}, {"supported_features": 5}, {"implementation": "bash"}],
)
def test_only_what_every_rank_has_is_announced(lacks: dict[str, Any]) -> None:
    world = start(2, subshells=True)
    asked = world.ask("kernel_info_request", {})
    assert "kernel subshells" in asked.reply["supported_features"]
    info = world.hub.group.slots[1].info
    world.hub.group.slots[1].info = {**info, **lacks}
    asked = world.ask("kernel_info_request", {})
    assert "kernel subshells" not in asked.reply["supported_features"]
    created = world.ask("create_subshell_request", {}, channel="control")
    assert created.reply["status"] == "error"
    for rank in (0, 1):
        world.die(world.ranks[rank])
    created = world.ask("create_subshell_request", {}, channel="control")
    assert "no rank is alive" in created.reply["evalue"]


def test_an_unknown_one_is_answered_as_ipykernel_does() -> None:
    world = start(2, subshells=True)
    for kind in ("execute", "complete", "kernel_info"):
        asked = world.ask(f"{kind}_request", {"code": "x"}, subshell_id="no")
        assert asked.kinds == ["status", f"{kind}_reply", "status"]
        assert asked.states == ["busy", "idle"]
        assert asked.reply["ename"] == "UnknownSubshellError"
        assert asked.reply["evalue"] == "Unknown subshell_id 'no'"
    comm = world.ask("comm_msg", DATA, subshell_id="no")
    assert comm.kinds == ["status", "status"] and comm.states == ["busy", "idle"]
    content = {"subshell_id": "no"}
    deleted = world.ask("delete_subshell_request", content, channel="control")
    assert deleted.reply["status"] == "error"
    assert deleted.reply["evalue"] == "Unknown subshell_id 'no'"


@pytest.mark.parametrize("code", ["%restart 1", "%restart all", "%processes 3 --keep"])
def test_ranks_that_come_later_have_it_too(code: str) -> None:
    world, subshell = opened(2)
    world.run(code)
    cell = execute(world, subshell)
    assert all(len(fake.subshells) == 2 and busy(fake) for fake in world.ranks.values())
    world.settle()
    assert cell.reply["status"] == "ok"


def test_cells_wait_for_ranks_that_are_being_started() -> None:
    world, subshell = opened(2)
    world.execute("%processes 2 --fresh")
    while not world.ranks[0].stopping:
        world.survey()
    cell = execute(world, subshell)
    assert not cell.states
    world.settle()
    assert cell.reply["status"] == "ok"
    listed = world.ask("list_subshell_request", {}, channel="control")
    assert listed.reply["subshell_id"] == [subshell], "JupyterLab goes on to use it"


def test_a_rank_that_takes_long_joins_later() -> None:
    world = start(2, subshells=True)
    created = world.ask("create_subshell_request", {}, channel="control")
    world.answer_control(world.ranks[0])
    assert not created.replies
    (key,) = [key for key in world.timers if key[0] == "subshell"]
    world.fire(key)
    subshell = created.reply["subshell_id"]
    cell = execute(world, subshell)
    assert not cell.states, "every rank runs every cell"
    world.answer_control(world.ranks[1])
    assert cell.states == ["busy"]
    assert all(busy(fake) for fake in world.ranks.values())


def test_a_rank_that_refuses_is_named() -> None:
    world = start(2, subshells=True)
    created = world.ask("create_subshell_request", {}, channel="control")
    world.answer_control(world.ranks[0])
    request = world.ranks[1].control.popleft()
    world.say(world.ranks[1], "control", "create_subshell_reply", {"status": "error"}, request)
    cell = execute(world, created.reply["subshell_id"])
    assert cell.reply["ename"] == "RankLost" and "rank 1" in cell.reply["evalue"]


def test_nobody_can_create_one() -> None:
    world = start(1, subshells=True)
    created = world.ask("create_subshell_request", {}, channel="control")
    request = world.ranks[0].control.popleft()
    world.say(world.ranks[0], "control", "create_subshell_reply", {"status": "error"}, request)
    assert created.reply["status"] == "error"
    dying = world.ask("create_subshell_request", {}, channel="control")
    world.die(world.ranks[0])
    assert dying.reply["status"] == "error"


def test_what_a_rank_creates_too_late_it_deletes() -> None:
    world = start(2, subshells=True)
    created = world.ask("create_subshell_request", {}, channel="control")
    world.answer_control(world.ranks[0])
    world.fire(next(key for key in world.timers if key[0] == "subshell"))
    content = {"subshell_id": created.reply["subshell_id"]}
    deleted = world.ask("delete_subshell_request", content, channel="control")
    world.settle()
    assert deleted.reply == {"status": "ok"}
    assert [len(fake.subshells) for fake in world.ranks.values()] == [1, 1]


def test_one_that_is_deleted_finishes_what_it_is_at() -> None:
    """A rank that is told so earlier serves no shell until the thread has ended."""
    world, subshell = opened(2)
    cell = execute(world, subshell)
    opening = world.ask("comm_open", OPEN, subshell_id=subshell)
    deleted = world.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")
    late = execute(world, subshell)
    assert late.reply["ename"] == "UnknownSubshellError"
    for _ in range(2):
        assert not any(fake.control for fake in world.ranks.values())
        serve(world, 0)
        serve(world, 1)
    assert cell.reply["status"] == "ok" and opening.states == ["busy", "idle"]
    world.settle()
    assert deleted.reply == {"status": "ok"}


# ---------------------------------------------------------------- their cells


def test_a_cell_runs_beside_that_of_the_main_shell() -> None:
    world, subshell = opened(2)
    main = world.execute("work()")
    cell = execute(world, subshell, "print()")
    for fake in world.ranks.values():
        assert head(fake).msg_id == cell.message.msg_id
        prints(world, fake, "same\n")
        world.answer_subshell(fake, *busy(fake))
    assert cell.reply["status"] == "ok" and not main.replies
    assert cell.text == "same\n"
    assert all(e.parent["subshell_id"] == subshell for e in cell.effects), "ranks know other ids"
    assert cell.replies[0].channel == "shell" and cell.replies[0].idents == (b"client",)
    world.settle()
    assert main.reply["status"] == "ok"


def test_two_subshells_run_at_once_and_each_one_by_one() -> None:
    world, first = opened(2)
    second = create(world)
    cells = [execute(world, subshell) for subshell in (first, second, first)]
    assert [cell.states for cell in cells] == [["busy"], ["busy"], []]
    world.settle()
    assert [cell.reply["status"] for cell in cells] == ["ok"] * 3


def test_cells_at_work_at_once_have_numbers_of_their_own() -> None:
    world, subshell = opened(2)
    main = world.execute("work()")
    beside = [execute(world, subshell) for _ in range(2)]
    world.settle()
    after = world.run("x")
    numbers = [cell.reply["execution_count"] for cell in (main, *beside, after)]
    assert numbers == [1, 2, 3, 4]
    shown = [json.loads(cell.of("execute_input")[0].content) for cell in (main, *beside, after)]
    assert [content["execution_count"] for content in shown] == numbers
    assert [fake.count for fake in world.ranks.values()] == [4, 4]


def test_ranks_that_counted_in_another_order_are_set_right() -> None:
    world, subshell = opened(2)
    world.execute("work()")
    execute(world, subshell)
    world.answer_shell(world.ranks[0])
    serve(world, 1)
    serve(world, 0)
    world.answer_shell(world.ranks[1])
    world.ranks[1].count = 7
    world.settle()
    assert [fake.count for fake in world.ranks.values()] == [2, 2]


def test_an_error_ends_the_queue_of_its_own_shell() -> None:
    world, subshell = opened(2)
    main = [world.execute("work()") for _ in range(2)]
    beside = [execute(world, subshell) for _ in range(2)]
    serve(world, 0, error=True)
    serve(world, 1)
    assert [cell.reply["status"] for cell in beside] == ["error", "aborted"]
    world.settle()
    assert [cell.reply["status"] for cell in main] == ["ok", "ok"]


def test_stop_leaves_subshells_alone() -> None:
    """SIGINT reaches the main thread of a process, and no other."""
    world, subshell = opened(2)
    world.execute("work()")
    cell = execute(world, subshell)
    queued = execute(world, subshell)
    world.feed(Signalled(world.tick(), 2))
    assert not cell.replies and not queued.replies
    world.settle()
    assert queued.reply["status"] == "ok"


def test_a_death_ends_the_cell_and_interrupts_nobody() -> None:
    world, subshell = opened(3)
    cell = execute(world, subshell)
    world.die(world.ranks[2])
    assert not [effect for effect in world.effects if isinstance(effect, Interrupt)]
    serve(world, 0)
    world.fire(("on-error", cell.message.msg_id))
    world.fire(("overdue", cell.message.msg_id))
    assert cell.reply["status"] == "error" and "rank 2 died" in cell.reply["evalue"]
    assert "rank 2 died" in cell.errors[0]["evalue"]
    assert "rank 1 is still at work" in cell.errors[1]["evalue"]
    assert not [effect for effect in world.effects if isinstance(effect, Stop)]
    prints(world, world.ranks[1], "late\n")
    world.settle()
    assert cell.text == "1 │ late\n"


def test_a_rank_that_is_stopped_ends_its_part() -> None:
    world, subshell = opened(2)
    cell = execute(world, subshell)
    world.execute("%processes 1")
    while not world.ranks[0].stopping:
        world.survey()
    for fake in list(world.ranks.values()):
        world.die(fake)
    assert cell.reply["ename"] == "RankLost" and "was stopped" in cell.reply["evalue"]
    assert cell.states == ["busy", "idle"]


def test_shutdown_ends_all_cells() -> None:
    world, subshell = opened(2)
    cells = [execute(world, subshell) for _ in range(2)]
    world.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")
    world.ask("shutdown_request", {"restart": False}, channel="control")
    assert [cell.reply["status"] for cell in cells] == ["aborted", "aborted"]
    world.settle()
    assert world.exits == [0]


def test_output_after_the_end_reaches_its_cell() -> None:
    world, subshell = opened(2)
    cell = execute(world, subshell)
    requests = [head(fake) for fake in world.ranks.values()]
    world.settle()
    prints(world, world.ranks[1], "late\n", requests[1])
    world.settle()
    assert cell.text == "1 │ late\n"
    assert cell.of("stream")[0].parent == cell.message.header


def test_magics_that_look_work_and_those_that_start_ranks_do_not() -> None:
    world, subshell = opened(2)
    world.execute("work()")
    looked = execute(world, subshell, "%ranks")
    while not looked.replies:
        world.survey()
    assert looked.reply["status"] == "ok" and "busy" in looked.text
    one = execute(world, subshell, "%%rank 1\nx")
    assert not busy(world.ranks[0]) and busy(world.ranks[1])
    world.settle()
    assert one.reply["status"] == "ok"
    for code in ("%processes 3", "%restart 0", "%%timeout 5\nx"):
        refused = execute(world, subshell, code)
        world.settle()
        assert refused.reply["ename"] == "UsageError", code
        assert "subshell" in refused.reply["evalue"]
    assert len(world.launches) == 1


def test_an_idle_that_was_lost_is_asked_for_in_the_subshell() -> None:
    world, subshell = opened(2)
    cell = execute(world, subshell)
    for fake in world.ranks.values():
        (key,) = busy(fake)
        request = fake.subshells[key].popleft()
        reply = {"status": "ok", "execution_count": 1}
        world.say(fake, "shell", "execute_reply", reply, request)
    world.fire(("fence", cell.message.msg_id))
    assert all(head(fake).msg_type == "kernel_info_request" for fake in world.ranks.values())
    world.settle()
    assert cell.reply["status"] == "ok" and "lost under load" in cell.text


# ---------------------------------------------------------------- questions of cells


def test_two_shells_ask_one_after_the_other_and_each_its_own_client() -> None:
    world, subshell = opened(1)
    fake = world.ranks[0]
    world.execute("input()", client=b"main")
    execute(world, subshell, "input()", client=b"beside")
    world.question(fake, "a")
    world.question(fake, "a", parent=head(fake))

    def shown() -> list[bytes]:
        return [
            effect.idents[0]
            for effect in world.effects
            if getattr(effect, "msg_type", "") == "input_request"
        ]

    assert shown() == [b"main"]
    world.feed(Signalled(world.tick(), 2))
    assert shown() == [b"main", b"beside"], "no SIGINT reaches it: its question stands"
    world.answer("yes")
    assert fake.answers == ["yes"]


# ---------------------------------------------------------------- comms


def test_a_comm_message_goes_to_the_subshell_of_its_owners() -> None:
    world, subshell = opened(3)
    for rank in (1, 2):
        world.say(world.ranks[rank], "iopub", "comm_open", OPEN, None)
    main = world.execute("work()")
    comm = world.ask("comm_msg", DATA, buffers=(b"\0",), subshell_id=subshell)
    assert not busy(world.ranks[0])
    for rank in (1, 2):
        request = head(world.ranks[rank])
        assert request.content == comm.message.content and request.buffers == (b"\0",)
        world.say(world.ranks[rank], "iopub", "comm_msg", DATA, request)
    serve(world, 1)
    assert comm.states == ["busy"]
    serve(world, 2)
    assert comm.states == ["busy", "idle"] and not main.replies
    assert all(effect.parent == comm.message.header for effect in comm.effects)


def test_a_rank_without_the_subshell_serves_comms_in_its_main_shell() -> None:
    world = start(2, subshells=True)
    created = world.ask("create_subshell_request", {}, channel="control")
    world.answer_control(world.ranks[0])
    world.fire(next(key for key in world.timers if key[0] == "subshell"))
    comm = world.ask("comm_open", OPEN, subshell_id=created.reply["subshell_id"])
    assert busy(world.ranks[0]) and not world.ranks[0].inbox
    assert world.ranks[1].inbox[0].msg_id == comm.message.msg_id
    sent = [e for e in world.effects if isinstance(e, ToRank) and e.message.msg_type == "comm_open"]
    assert sorted(e.ranks for e in sent) == [(0,), (1,)]


@pytest.mark.parametrize("beside", [False, True])
def test_what_is_served_without_a_word_is_found_out_when_the_cell_ends(beside: bool) -> None:
    """As ipykernel does with the comms of an async cell, in the shell that it likes."""
    world, subshell = opened(2)
    world.execute("await reply")
    comm = world.ask("comm_open", OPEN, subshell_id=subshell if beside else None)
    for fake in world.ranks.values():
        if beside:
            fake.subshells[busy(fake)[0]].clear()
        else:
            fake.inbox.pop()
    deleted = world.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")
    assert not deleted.replies or not beside
    for rank in (0, 1):
        assert comm.states == ["busy"]
        world.answer_shell(world.ranks[rank])
        world.answer_shell(world.ranks[rank])
        if beside:
            serve(world, rank)
    assert comm.states == ["busy", "idle"]
    world.settle()
    assert deleted.reply == {"status": "ok"}


def test_one_at_work_in_a_subshell_is_not_interrupted() -> None:
    world, subshell = opened(2)
    world.ask("comm_open", OPEN, subshell_id=subshell)
    world.feed(Signalled(world.tick(), 2))
    assert not [effect for effect in world.effects if isinstance(effect, Interrupt)]
