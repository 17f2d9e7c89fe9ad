"""Where every rank is, for people and for programs."""

from __future__ import annotations

import json

from spmd_kernel.core.conversation import Talk

from ..dumps import dump, in_all_reduce
from ..world import World, start

CODE = "dist.all_reduce(x)"


def where(world: World) -> tuple[str, dict[str, object]]:
    """As a request that comes while a cell runs does it."""
    hub, got = world.hub, []
    hub.stage.at = world.tick()
    Talk(hub.where(), hub.performer.perform, lambda value, error: got.append(value or error)).step()
    for effect in hub.stage.take():
        world._perform(effect)
    while world.lookouts:
        world.look()
    (found,) = got
    json.dumps(found.data)
    return found.text, found.data


def test_ranks_at_the_same_place_are_told_of_together() -> None:
    world = start(5)
    world.execute(CODE)
    world.at += 12
    world.stacks = {rank: in_all_reduce(CODE, rank) for rank in (0, 2)}
    world.stacks[1] = dump("y", ("lib/a.py", "f"), rank=1, line=3)
    world.answer_shell(world.ranks[4])
    text, data = where(world)
    assert text == (
        "ranks 0, 2: in all_reduce, cell line 1 (busy for 12 s)\n"
        "    cell line 1 in <module>\n"
        "    torch/distributed/distributed_c10d.py:7 in all_reduce\n"
        "rank 1: an earlier cell, line 3 (busy for 12 s)\n"
        "    an earlier cell, line 3 in <module>\n"
        "    lib/a.py:7 in f\n"
        "rank 3: no answer\n"
        "rank 4: idle\n"
    )
    assert [entry["state"] for entry in data["ranks"]] == [  # type: ignore[attr-defined]
        "busy", "busy", "busy", "no answer", "idle",
    ]  # fmt: skip
    assert data["ranks"][0]["waits_in"] == "all_reduce"  # type: ignore[index]


def test_the_magic_tells_of_idle_and_dead_ranks() -> None:
    world = start(3)
    world.die(world.ranks[1])
    assert world.run("%where").text == "ranks 0, 2: idle\nrank 1: dead\n"
    assert "takes no arguments" in world.run("%where 3").reply["evalue"]


def test_a_callback_beside_cells_is_shown() -> None:
    world = start(2)
    world.stacks = {1: dump("y", rank=1)}
    assert "rank 1: an earlier cell, line 1" in world.run("%where").text
