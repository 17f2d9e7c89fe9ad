"""Requests that ranks answer, through the whole hub: asked, merged, answered whatever dies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spmd_kernel.core.model import Message, ToRank

from ..world import Sent, World, start


def pending(world: World, rank: int, kind: str) -> Message:
    fake = world.ranks[rank]
    message = next(m for m in (*fake.inbox, *fake.control) if m.msg_type == kind)
    (fake.inbox if message in fake.inbox else fake.control).remove(message)
    return message


def reply(world: World, rank: int, kind: str, **content: Any) -> None:
    request = pending(world, rank, f"{kind}_request")
    channel = "control" if kind == "usage" else "shell"
    world.say(world.ranks[rank], channel, f"{kind}_reply", content, request)


def complete(world: World, code: str, cursor: int | None = None) -> Sent:
    position = len(code) if cursor is None else cursor
    return world.ask("complete_request", {"code": code, "cursor_pos": position})


def asked(world: World, kind: str) -> list[tuple[int, ...]]:
    return [e.ranks for e in world.effects if isinstance(e, ToRank) and e.message.msg_type == kind]


@pytest.mark.parametrize("kind", ["complete", "inspect", "is_complete", "history"])
def test_the_lowest_rank_answers_for_all(kind: str) -> None:
    world = start(3)
    query = world.ask(f"{kind}_request", {"code": "pri", "cursor_pos": 3})
    assert asked(world, f"{kind}_request") == [(0,)]
    assert query.states == ["busy"]
    request = world.ranks[0].inbox[0]
    assert json.loads(request.content) == {"code": "pri", "cursor_pos": 3}
    reply(world, 0, kind, status="ok", odd=[1])
    assert query.reply == {"status": "ok", "odd": [1]}
    assert query.kinds == ["status", f"{kind}_reply", "status"]


@pytest.mark.parametrize(
    ("kind", "empty"),
    [
        ("complete", {"matches": [], "cursor_start": 3, "cursor_end": 3, "metadata": {}}),
        ("inspect", {"found": False, "data": {}, "metadata": {}}),
        ("is_complete", {"status": "unknown"}),
        ("history", {"history": []}),
    ],
)
def test_one_that_dies_hands_on_and_the_last_leaves_an_empty_answer(kind: str, empty: Any) -> None:
    world = start(3)
    first = world.ask(f"{kind}_request", {"code": "pri", "cursor_pos": 3})
    world.die(world.ranks[0])
    assert not first.replies
    reply(world, 1, kind, status="ok", by=1)
    assert first.reply == {"status": "ok", "by": 1}
    second = world.ask(f"{kind}_request", {"code": "pri", "cursor_pos": 3})
    world.die(world.ranks[1])
    world.die(world.ranks[2])
    assert second.reply == {"status": "ok", **empty}
    third = world.ask(f"{kind}_request", {"code": "pri", "cursor_pos": 3})
    assert third.reply == {"status": "ok", **empty}


def test_our_magics_come_before_what_the_rank_knows() -> None:
    world = start(2)
    query = complete(world, "x = 1\n%pro")
    theirs = ["%processes", "%prun", 5]
    reply(world, 0, "complete", status="ok", matches=theirs, cursor_start=6, cursor_end=10)
    answer = query.reply
    assert answer["matches"] == ["%processes", "%prun"]
    assert (answer["cursor_start"], answer["cursor_end"]) == (6, 10)


def test_what_the_rank_would_put_elsewhere_is_left_out() -> None:
    world = start(2)
    query = complete(world, "%processes --on-error=")
    reply(world, 0, "complete", status="ok", matches=["odd"], cursor_start=22, cursor_end=22)
    answer = query.reply
    assert answer["matches"] == ["--on-error=wait", "--on-error=stop"]
    assert (answer["cursor_start"], answer["cursor_end"]) == (11, 22)


def test_the_word_after_a_blank_is_empty() -> None:
    world = start(2)
    query = complete(world, "%processes \n", 11)
    reply(world, 0, "complete", status="error", matches=[], cursor_start=11)
    answer = query.reply
    assert answer["status"] == "ok", "ours need no rank"
    assert "auto" in answer["matches"]
    assert (answer["cursor_start"], answer["cursor_end"]) == (11, 11)


def test_our_magics_complete_without_any_rank() -> None:
    world = start(1)
    world.die(world.ranks[0])
    answer = complete(world, "%%ra").reply
    assert answer["matches"] == ["%%rank"]
    assert (answer["cursor_start"], answer["cursor_end"]) == (0, 4)


def test_ordinary_words_are_the_ranks_alone() -> None:
    world = start(2)
    query = complete(world, "pri")
    reply(world, 0, "complete", status="ok", matches=["print"], cursor_start=0, cursor_end=3)
    assert query.reply == {
        "status": "ok", "matches": ["print"], "cursor_start": 0, "cursor_end": 3
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "cursor"),
    [("%processes?", 11), ("%processes 3", 4), ("x\n%processes 3\ny", 2), ("  %processes", 12)],
)
def test_help_of_our_magics_is_ours(code: str, cursor: int) -> None:
    world = start(2)
    query = world.ask("inspect_request", {"code": code, "cursor_pos": cursor})
    answer = query.reply
    assert answer["found"] and "%processes N" in answer["data"]["text/plain"]
    assert not asked(world, "inspect_request")


@pytest.mark.parametrize(
    ("code", "cursor"),
    [("%timeit?", 8), ("x = 5 %processes", 16), ("%processes\nprint", 16), ("", 0)],
)
def test_other_help_is_the_ranks(code: str, cursor: int) -> None:
    world = start(2)
    query = world.ask("inspect_request", {"code": code, "cursor_pos": cursor})
    reply(world, 0, "inspect", status="ok", found=True, data={"text/plain": "theirs"})
    assert query.reply["data"] == {"text/plain": "theirs"}


def test_usage_is_that_of_all_ranks_together() -> None:
    world = start(3)
    query = world.ask("usage_request", {}, channel="control")
    for rank in range(3):
        memory = {"kernel_memory": 10 + rank} if rank else {"kernel_memory": "unknown"}
        reply(world, rank, "usage", hostname="h", pid=rank, kernel_cpu=0.5, cpu_count=2, **memory)
    assert query.reply == {
        "hostname": "h", "pid": 0, "kernel_cpu": 1.5, "cpu_count": 2, "kernel_memory": 23
    }  # fmt: skip
    assert query.replies[0].channel == "control"


def test_usage_does_not_wait_for_a_rank_that_is_stuck() -> None:
    world = start(2)
    query = world.ask("usage_request", {}, channel="control")
    reply(world, 1, "usage", kernel_cpu=2)
    world.ranks[0].control.clear()
    (key,) = [key for key in world.timers if key[0] == "ask"]
    assert world.timers[key] == pytest.approx(world.at + 5, abs=0.1)
    world.fire(key)
    assert query.reply == {"kernel_cpu": 2}


def test_usage_without_ranks() -> None:
    world = start(1)
    world.die(world.ranks[0])
    assert world.ask("usage_request", {}, channel="control").reply == {}


def test_kernel_info_answers_while_a_cell_runs_and_promises_what_we_keep() -> None:
    world = start(2)
    world.execute("work()")
    for channel in ("shell", "control"):
        info = world.ask("kernel_info_request", {}, channel=channel)
        assert info.reply["status"] == "ok"
        assert info.reply["debugger"] is True
        assert info.reply["supported_features"] == ["debugger"]
        assert info.replies[0].channel == channel


def test_connect_tells_our_ports() -> None:
    world = start(1, front={"shell_port": 5})
    assert world.ask("connect_request", {}).reply == {"status": "ok", "shell_port": 5}


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_what_we_do_not_know_is_an_error_reply(channel: str) -> None:
    world = start(1)
    query = world.ask("odd_request", {}, channel=channel)
    assert query.reply["status"] == "error"
    assert query.reply["ename"] == "UsageError"
    assert "odd_request is not supported" in query.reply["evalue"]
    assert query.replies[0].msg_type == "odd_reply"
    assert query.kinds == ["status", "odd_reply", "status"]


@pytest.mark.parametrize("kind", ["complete", "inspect", "history", "comm_info"])
@pytest.mark.parametrize("raw", [b"", b"[]", b'{"code": 5, "target_name": 5}'])
def test_nonsense_is_an_error_reply(kind: str, raw: bytes) -> None:
    world = start(1)
    query = world.ask(f"{kind}_request", None, raw=raw)
    if kind == "history" and raw.startswith(b"{"):
        world.settle()
        assert query.reply["status"] == "ok"
    else:
        assert query.reply["ename"] == "BadMessage"
    assert query.states == ["busy", "idle"]


@pytest.mark.parametrize("kind", ["complete", "inspect", "is_complete", "history", "comm_info"])
def test_contents_of_the_sender_s_fault_are_answered_with_one_line_of_log(kind: str) -> None:
    world = start(2)
    query = world.ask(f"{kind}_request", None, raw=b"[1, 2]")
    assert query.reply["status"] == "error"
    assert [log.level for log in world.logs] == ["warning"]
    assert "\n" not in world.logs[0].text
    assert query.states == ["busy", "idle"]


@pytest.mark.parametrize("kind", ["status", "a\nline of its own", ""])
def test_what_is_no_answer_is_dropped_from_stdin_with_one_line(kind: str) -> None:
    world = start(2)
    sent = world.ask(kind, {}, channel="stdin")
    world.settle()
    assert not sent.of("status") and not world.ranks[0].inbox
    (log,) = world.logs
    assert log.level == "warning" and "stdin" in log.text and "\n" not in log.text


def test_ranks_hear_who_asked_last_on_control_and_need_not_answer() -> None:
    world = start(2)
    query = world.ask("kernel_info_request", {}, channel="control")
    assert query.reply["status"] == "ok"
    (told,) = [e for e in world.effects if isinstance(e, ToRank) and e.channel == "control"]
    assert told.ranks == (0, 1) and told.message.header == query.message.header
    for _ in range(50):
        world.ask("kernel_info_request", {}, channel="control")
    assert len(asked(world, "kernel_info_request")) < 10, "a rank may be stopped"
    world.settle()
    assert query.kinds == ["status", "kernel_info_reply", "status"]
