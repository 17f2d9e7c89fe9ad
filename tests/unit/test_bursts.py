"""Questions that were sent in one go with a cell come after it; others do not wait for it."""

from __future__ import annotations

from typing import Any

import pytest

from ..world import Sent, World, start


def date(ms: float) -> str:
    return f"2026-01-01T00:00:00.{round(ms * 1000):06}Z"


def execute(world: World, ms: float, code: str = "work()", **options: Any) -> Sent:
    return world.ask("execute_request", {"code": code, "silent": False, **options}, date=date(ms))


def ask(world: World, ms: float, kind: str = "kernel_info", **options: Any) -> Sent:
    content = {"code": "x", "cursor_pos": 1}
    return world.ask(f"{kind}_request", content, date=date(ms), **options)


def pass_time(world: World, seconds: float) -> None:
    until = world.at + seconds
    while due := [key for key, at in world.timers.items() if at <= until]:
        world.fire(min(due, key=lambda key: world.timers[key]))
    world.at = until


def replies(world: World) -> list[str]:
    return [
        e.msg_type
        for e in world.effects
        if getattr(e, "channel", "") == "shell" and hasattr(e, "parent")
    ]


def test_they_come_after_the_cell_in_order() -> None:
    world = start(2, subshells=True)
    world.effects.clear()
    cell = execute(world, 1)
    questions = [ask(world, 1.5), ask(world, 2, "comm_info"), ask(world, 2.8, "inspect")]
    assert not any(q.effects for q in questions), "not even busy"
    world.settle()
    assert cell.reply["status"] == "ok"
    assert all(q.states == ["busy", "idle"] and q.reply["status"] == "ok" for q in questions)
    assert replies(world) == [
        "execute_reply", "kernel_info_reply", "comm_info_reply", "inspect_reply"
    ]  # fmt: skip
    assert not world.timers


@pytest.mark.parametrize("ending", ["an error", "a death", "an abortion"])
def test_however_the_cell_ends(ending: str) -> None:
    world = start(2, subshells=True)
    first = execute(world, 0) if ending == "an abortion" else None
    cell = execute(world, 1 if first is None else 0.5)
    question = ask(world, 1.2)
    if ending == "a death":
        world.die(world.ranks[0])
        world.die(world.ranks[1])
    else:
        for fake in world.ranks.values():
            world.answer_shell(fake, error=True)
    world.settle()
    assert cell.reply["status"] == ("error" if first is None else "aborted")
    assert question.reply["status"] == "ok"


def test_they_wait_for_a_second_and_no_longer() -> None:
    world = start(2, subshells=True)
    execute(world, 1)
    question = ask(world, 1.5)
    pass_time(world, 0.9)
    assert not question.effects
    pass_time(world, 0.2)
    assert question.reply["status"] == "ok"
    assert ask(world, 2).reply["status"] == "ok", "nor does what is sent now"


def test_a_cell_of_many_is_waited_for_alone() -> None:
    world = start(1, subshells=True)
    execute(world, 1)
    first = ask(world, 1.1)
    execute(world, 1.2)
    second = ask(world, 1.3)
    world.answer_shell(world.ranks[0])
    assert first.reply["status"] == "ok" and not second.effects
    world.answer_shell(world.ranks[0])
    assert second.reply["status"] == "ok"


def test_what_has_waited_to_be_read_was_sent_before_the_cell_began() -> None:
    world = start(1, subshells=True)
    cell = execute(world, 1)
    world.at -= 0.0008  # a tick later it is read
    question = ask(world, 7)
    assert not question.effects
    world.settle()
    assert cell.reply["status"] == question.reply["status"] == "ok"


@pytest.mark.parametrize(
    "how",
    [
        {"ms": 3.0},  # it has had the time to hear that the cell has begun
        {"ms": 0.5},  # another clock
        {"ms": 1.5, "client": b"other"},
        {"ms": 1.5, "channel": "control"},
        {"ms": 1.5, "kind": "usage", "channel": "control"},
    ],
)
def test_others_are_answered_beside_the_cell(how: dict[str, Any]) -> None:
    world = start(1, subshells=True)
    execute(world, 1)
    assert ask(world, **how).states[:1] == ["busy"]


@pytest.mark.parametrize("when", ["", "yesterday", "2026-01-01T00:00:00", 7, None])
def test_dates_that_say_nothing(when: Any) -> None:
    world = start(1, subshells=True)
    for sent in (when, date(1)):
        world.ask("execute_request", {"code": "work()", "silent": False}, date=sent)
        other = date(1) if sent is when else when
        assert world.ask("kernel_info_request", {}, date=other).reply["status"] == "ok"


def test_a_subshell_has_no_part_in_it() -> None:
    world = start(1, subshells=True)
    made = world.ask("create_subshell_request", {}, channel="control")
    world.settle()
    shell = made.reply["subshell_id"]
    execute(world, 1)
    assert ask(world, 1.2, subshell_id=shell).reply["status"] == "ok"
    world.ask("execute_request", {"code": "x", "silent": False}, date=date(5), subshell_id=shell)
    assert ask(world, 5.2).reply["status"] == "ok"


def test_the_kernel_shuts_down_meanwhile() -> None:
    world = start(2, subshells=True)
    execute(world, 1)
    question = ask(world, 1.5)
    world.ask("shutdown_request", {"restart": False}, channel="control")
    world.settle()
    assert question.reply["status"] == "ok"
    assert not world.timers
