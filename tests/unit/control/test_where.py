from __future__ import annotations

from ...dumps import in_all_reduce
from ...world import World, start
from .asking import checked, now

CODE = "import torch\nall_reduce()"


def where(world: World) -> tuple[str, list[dict[str, object]]]:
    sent = world.control("where")
    assert not sent.replies
    world.look()
    data = checked("where", sent)
    return data["text"], data["ranks"]


def test_while_a_cell_runs() -> None:
    world = start(3)
    world.execute(CODE)
    world.stacks = {rank: in_all_reduce(CODE, rank, line=2) for rank in (0, 1)}
    world.answer_shell(world.ranks[2])
    text, ranks = where(world)
    assert "ranks 0-1: in all_reduce, cell line 2" in text
    assert "rank 2: idle" in text
    assert [entry["state"] for entry in ranks] == ["busy", "busy", "idle"]
    assert ranks[0]["waits_in"] == "all_reduce"


def test_at_rest() -> None:
    world = start(1)
    text, _ = where(world)
    assert text == "rank 0: idle\n"


def test_when_the_system_does_not_answer() -> None:
    world = start(1)
    world.execute("work()")
    sent = world.control("where")
    world.lookouts.clear()
    world.pass_time_until(lambda: bool(sent.replies))
    assert checked("where", sent)["ranks"][0]["state"] == "no answer"


def test_the_status_names_a_rank_that_is_mended_as_busy() -> None:
    """No cell runs, and none could."""
    world = start(2)
    world.hub.cells.held = True
    assert now(world, "status")["state"] == "busy"
    world.hub.cells.held = False
