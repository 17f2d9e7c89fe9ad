"""When a cell says that it hangs, and when it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spmd_kernel.core.model import Dump, Pulse

from ..dumps import C10D, dump, in_all_reduce
from ..world import Sent, World, start

CODE = "x = 1\ndist.all_reduce(x)"
NOTEBOOK = {"metadata": {"cellId": "a"}}


class Watched(World):
    def until(self, seconds: float) -> None:
        end = self.at + seconds
        while due := [key for key, at in self.timers.items() if at <= end + 0.01]:
            self.fire(min(due, key=lambda key: self.timers[key]))
            while self.lookouts:
                self.look()
        self.at = max(self.at, end)

    def wait(self, *ranks: int) -> None:
        for rank in ranks:
            self.stacks[rank] = in_all_reduce(CODE, rank, line=2)
            self.pulses[rank] = Pulse(10, 1.0)


def begin(size: int = 2, code: str = CODE, **content: Any) -> tuple[Watched, Sent]:
    """In a notebook, unless ``allow_stdin`` says otherwise."""
    world = Watched(size)
    world.settle()
    world.effects.clear()
    return world, world.execute(code, **content)


def notices(cell: Sent) -> list[str]:
    """What the display says, one state after the other."""
    shown = cell.of("display_data", "update_display_data")
    assert [e.msg_type for e in shown[:1]] in ([], ["display_data"])
    assert all(effect.msg_type == "update_display_data" for effect in shown[1:])
    contents = [json.loads(effect.content) for effect in shown]
    assert len({content["transient"]["display_id"] for content in contents}) <= 1
    return [content["data"]["text/plain"] for content in contents]


def test_a_peer_that_has_finished() -> None:
    world, cell = begin(4, cell_id="a")
    world.wait(0)
    for rank in (1, 2, 3):
        world.answer_shell(world.ranks[rank])
    world.until(7.0)
    assert notices(cell) == []
    world.until(1.0)
    (text,) = notices(cell)
    assert text.startswith(
        "ranks 1-3 finished · rank 0 has been in all_reduce, cell line 2, for 5 s"
    )
    assert "hint: " in text
    world.until(30)
    assert len(notices(cell)) < 6  # renewed, ever more seldom


@pytest.mark.parametrize("fate", ["failed", "had no part in this cell"])
def test_other_peers_that_will_not_come(fate: str) -> None:
    code = CODE if fate == "failed" else f"%%rank 0\n{CODE}"
    world, cell = begin(2, code, cell_id="a")
    if fate == "failed":
        world.wait(0)
        world.answer_shell(world.ranks[1], error=True)
    else:
        world.stacks[0] = in_all_reduce(f"# %%rank 0\n{CODE}", line=3)
        world.pulses[0] = Pulse(1, 1.0)
    world.until(9)
    assert f"rank 1 {fate}" in notices(cell)[0]


def test_all_wait_for_each_other() -> None:
    world, cell = begin(2, cell_id="a")
    for rank, function in enumerate(("send", "recv")):
        world.stacks[rank] = dump(CODE, (C10D, function), line=2, rank=rank)
        world.pulses[rank] = Pulse(10, 1.0)
    world.until(9)
    assert "rank 0 has been in send" in notices(cell)[0]
    assert "rank 1 has been in recv" in notices(cell)[0]
    assert "same order" in notices(cell)[0]


def test_work_of_one_rank_is_no_hang() -> None:
    world, cell = begin(2, cell_id="a")
    world.wait(1)
    world.stacks[0] = dump(CODE, ("numpy/linalg.py", "svd"), line=1)
    world.until(300)
    assert notices(cell) == []
    looks = [effect for effect in world.effects if isinstance(effect, Dump)]
    assert len(looks) < 20  # ever more seldom


@pytest.mark.parametrize(
    "moves", [Pulse(30, 1.0), None], ids=["the main thread moves", "nothing is known"]
)
def test_a_loop_of_collectives_is_no_hang(moves: Pulse | None) -> None:
    world, cell = begin(2, cell_id="a")
    world.wait(0, 1)
    world.until(4)
    for _ in range(5):
        for rank in (0, 1):
            if moves is None:
                world.pulses.clear()
            else:
                last = world.pulses[rank]
                world.pulses[rank] = Pulse(last.switches + moves.switches, last.cpu)
        world.until(5)
    assert notices(cell) == []


def test_backward_on_one_rank_is_a_hang_only_if_it_computes_nothing() -> None:
    for cpu, hangs in ((0.0, True), (1.0, False)):
        world, cell = begin(2, cell_id="a")
        world.answer_shell(world.ranks[1])
        world.stacks[0] = dump(CODE, ("torch/autograd/graph.py", "_engine_run_backward"), line=2)
        world.pulses[0] = Pulse(10, 1.0)
        for _ in range(10):
            world.until(1)
            world.pulses[0] = Pulse(10, world.pulses[0].cpu + cpu)
        assert bool(notices(cell)) is hangs


def test_a_notice_that_proved_wrong_is_emptied() -> None:
    world, cell = begin(2, cell_id="a")
    world.wait(0)
    world.answer_shell(world.ranks[1])
    world.until(8)
    world.settle()
    assert cell.reply["status"] == "ok"
    assert notices(cell)[-1] == ""
    assert cell.kinds[-1] == "status"


def test_a_notice_is_emptied_when_the_ranks_go_on_and_comes_back_in_its_place() -> None:
    world, cell = begin(2, cell_id="a")
    world.wait(0)
    world.answer_shell(world.ranks[1])
    world.until(8)
    world.stacks[0] = dump(CODE, line=1)
    world.until(20)
    assert notices(cell)[-1] == ""
    world.wait(0)
    world.until(60)
    assert "all_reduce" in notices(cell)[-1]


def test_a_terminal_is_told_by_a_line_once() -> None:
    for options in ({}, {"allow_stdin": False}):
        world, cell = begin(2, **options)
        world.wait(0)
        world.answer_shell(world.ranks[1])
        world.until(60)
        assert cell.text.count("has been in all_reduce") == 1
        assert notices(cell) == []


def test_one_rank_is_not_watched() -> None:
    world, _ = begin(1)
    world.wait(0)
    world.until(60)
    assert not [effect for effect in world.effects if isinstance(effect, Dump)]


def test_after_stop_there_is_nothing_to_explain() -> None:
    world, cell = begin(2, cell_id="a")
    world.wait(0)
    world.answer_shell(world.ranks[1])
    world.until(3)
    world.ask("interrupt_request", {}, channel="control")
    world.until(0.5)
    world.settle()
    assert notices(cell) == []


def test_the_watch_is_a_setting() -> None:
    world = start(2)
    text = world.run("%processes --watch off").text
    assert text == "no watch\n"
    assert world.hub.stage.policy.watch == 0
    assert "after 2.5 s" in world.run("%processes --watch 2.5").text
    for bad in ("0", "0.5", "x", "-3", "1e3"):
        reply = world.run(f"%processes --watch={bad}").reply
        assert reply["ename"] == "UsageError" and "--watch 10" in str(reply)
    assert world.hub.stage.policy.watch == 2.5
    pinned = start(2, watch=9.0)
    assert "SPMD_WATCH=9 wins" in pinned.run("%processes --watch 3").text
    assert pinned.hub.stage.policy.watch == 9


def test_a_kernel_that_shuts_down_while_it_looks_watches_no_longer() -> None:
    world, _ = begin(2, cell_id="a")
    world.wait(0, 1)
    world.fire(next(key for key in world.timers if isinstance(key, tuple) and key[0] == "watch"))
    assert world.lookouts
    world.ask("shutdown_request", {"restart": False}, channel="control")
    world.look()
    assert not [key for key in world.timers if isinstance(key, tuple) and key[0] == "watch"]
    world.settle()
    assert world.exits == [0]
