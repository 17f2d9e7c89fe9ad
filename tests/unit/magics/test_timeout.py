"""`%%timeout SECONDS`: what it asks for, and what comes of it in the whole hub."""

from __future__ import annotations

import json

import pytest

from spmd_kernel.core.errors import RankLost, UsageError
from spmd_kernel.core.magics.base import Page, Run
from spmd_kernel.core.model import Interrupt, SetTimer

from ...world import World, start


@pytest.mark.parametrize(
    ("args", "ranks", "seconds"),
    [
        ("60", (0, 1, 2), 60.0),
        ("0.5 --on 0,2  # some", (0, 2), 0.5),
        ("--on=-1 1e3", (2,), 1000.0),
        ("'2'", (0, 1, 2), 2.0),
    ],
)
def test_run(use, world, args, ranks, seconds):
    step = Run(ranks, "x\n", seconds)
    assert use(f"%%timeout {args}", world(*["idle"] * 3), body="x\n") == [step]


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ("", "needs one number of seconds"),
        ("1 2", "needs one number of seconds"),
        ("0", "%%timeout 0: not a number of seconds above 0"),
        ("-5", "above 0"),
        ("nan", "above 0"),
        ("inf", "above 0"),
        ("1m", "above 0"),
        ("5 --on 7", "there is no rank 7"),
        ("5 --in 0", "has no option --in"),
    ],
)
def test_mistakes(use, world, args, what):
    with pytest.raises(UsageError) as raised:
        use(f"%%timeout {args}", world("idle", "idle"), body="x")
    assert what in str(raised.value)
    assert raised.value.hint


def test_dead_ranks_are_refused(use, world):
    with pytest.raises(RankLost, match="rank 1 is dead"):
        use("%%timeout 5", world("idle", "killed"), body="x")


def test_help(use, world):
    (page,) = use("%%timeout --help", world("idle"))
    assert isinstance(page, Page)
    assert "--on SPEC" in page.text


# ---------------------------------------------------------------- in the hub


def is_due(world: World) -> None:
    (key,) = [key for key in world.timers if key[0] == "limit"]
    world.fire(key)


def interrupts(world: World) -> list[tuple[int, ...]]:
    return [effect.ranks for effect in world.effects if isinstance(effect, Interrupt)]


def test_a_cell_in_time_leaves_no_timer():
    world = start(2)
    cell = world.execute("%%timeout 60\nx")
    (timer,) = [e for e in world.effects if isinstance(e, SetTimer) and e.key[0] == "limit"]
    assert timer.at == pytest.approx(world.at + 60)
    assert json.loads(world.ranks[1].inbox[0].content)["code"] == "# %%timeout 60\nx"
    for rank in list(world.ranks.values()):
        world.answer_shell(rank)
    assert cell.reply["status"] == "ok"
    assert not [key for key in world.timers if key[0] == "limit"]
    assert interrupts(world) == []


def test_who_was_still_running_is_named():
    world = start(4)
    cell = world.execute("%%timeout 60\nx")
    next_cell = world.execute("y")
    for number in (0, 2):
        world.answer_shell(world.ranks[number])
    is_due(world)
    assert interrupts(world) == [(1, 3)]
    for number in (1, 3):
        rank = world.ranks[number]
        content = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["line 1"]}
        world.say(rank, "iopub", "error", content, rank.inbox[0])
        world.answer_shell(rank, error=True)
    world.settle()
    text = "the time limit of 60 s ended the cell: ranks 1, 3 were still running"
    folded, said = cell.errors
    assert folded["traceback"] == ["1,3 │ line 1"]
    assert said["ename"] == "TimeLimit"
    assert said["evalue"] == text
    assert said["traceback"][1].startswith("hint: ")
    assert (cell.reply["ename"], cell.reply["evalue"]) == ("TimeLimit", text)
    assert next_cell.reply["status"] == "aborted"
    assert world.hub.timings.last()[-1].interrupted


def test_code_that_swallows_its_interrupt_fails_all_the_same():
    world = start(2)
    cell = world.execute("%%timeout 0.5\nx")
    is_due(world)
    world.settle()
    assert cell.reply["ename"] == "TimeLimit"
    assert cell.reply["evalue"].endswith("0.5 s ended the cell: ranks 0-1 were still running")
    assert len(cell.errors) == 1
    after = world.run("y")
    assert after.reply["status"] == "ok"
    assert after.reply["execution_count"] == 2


def test_a_failure_before_it_is_told():
    world = start(2)
    cell = world.execute("%%timeout 5\nx")
    world.answer_shell(world.ranks[1], error=True)
    is_due(world)
    world.settle()
    assert "rank 0 was still running; rank 1 had failed before: E: why" in cell.reply["evalue"]


def test_one_rank():
    world = start(1)
    cell = world.execute("%%timeout 5\nx")
    is_due(world)
    world.settle()
    assert "rank 0 was still running" in cell.reply["evalue"]


def test_a_rank_that_is_lost_after_it_has_the_last_word():
    world = start(2)
    cell = world.execute("%%timeout 5\nx")
    is_due(world)
    world.die(world.ranks[1])
    world.settle()
    assert cell.reply["ename"] == "RankLost"
    assert [error["ename"] for error in cell.errors] == ["RankLost"]


def test_a_question_is_withdrawn():
    world = start(2)
    cell = world.execute("%%timeout 5\ninput()")
    world.question(world.ranks[0], "?")
    is_due(world)
    assert not world.question_open
    world.settle()
    assert cell.reply["ename"] == "TimeLimit"
