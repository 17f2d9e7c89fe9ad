"""`%timing`: what the hub measures, and how it is shown."""

from __future__ import annotations

import json

import pytest

from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.magics.base import Say
from spmd_kernel.core.magics.timing import table
from spmd_kernel.core.model import Signalled
from spmd_kernel.core.timings import CELLS, RANKS, Stopwatch, Timing, Timings

from ...world import World, start


def timing(*seconds, count=1, code="x = 1", **more):
    stopwatch = Stopwatch(dict(enumerate(seconds)), world_size=more.pop("size", len(seconds)))
    for name, value in more.items():
        setattr(stopwatch, name, value)
    return stopwatch.timing(count, code)


def test_table():
    cells = [
        timing(0.1234, 0.5, count=3, code="\n  import torch\nx"),
        timing(12.3456, 1.0, count=None, failed={1}),
        timing(1234.5, 1.0, count=12, interrupted=True, failed={0, 1}, code="y" * 99),
        timing(0.25, count=13, size=2),
        timing(1, 1, count=14, failed={0, 1}),
    ]
    assert table(cells) == (
        "cell  code                              0      1    min  median    max  slowest\n"
        " [3]  import torch                  0.123  0.500  0.123   0.312  0.500   rank 1\n"
        " [ ]  x = 1                         12.35   1.00   1.00    6.67  12.35   rank 0"
        "  failed: rank 1\n"
        "[12]  yyyyyyyyyyyyyyyyyyyyyyyyyyy…   1234   1.00   1.00     618   1234   rank 0"
        "  interrupted\n"
        "[13]  x = 1                         0.250      -  0.250   0.250  0.250   rank 0"
        "  only rank 0\n"
        "[14]  x = 1                          1.00   1.00   1.00    1.00   1.00   rank 0  failed\n"
    )


def test_one_rank_needs_no_summary():
    assert table([timing(0.5)]) == "cell  code       0\n [1]  x = 1  0.500\n"


@pytest.mark.parametrize(("size", "columns"), [(8, True), (9, False), (64, False)])
def test_beyond_8_ranks_there_is_the_summary(size, columns):
    head, row = table([timing(*range(size))]).splitlines()
    assert ("7" in head.split()) is columns
    assert row.endswith(f"rank {size - 1}")
    assert len(row) < 120


def test_a_world_that_was_smaller():
    head, one, two = table([timing(1.5), timing(1.5, 2.5)]).splitlines()
    assert one.split()[4:7] == ["1.50", "-", "1.50"]
    assert "only" not in one
    assert len(head) <= len(two)


def test_control_characters_do_not_break_the_table():
    assert len(table([timing(1, 2, code="a\tb\x1b[31m\u2028")]).splitlines()) == 2


@pytest.mark.parametrize("line", ["%timing", "%timing 2", "%timing 500  # all"])
def test_the_last_ones(use, world, line):
    view = world("idle")
    view.timings = tuple(timing(n, count=n) for n in range(1, 31))
    (say,) = use(line, view)
    assert isinstance(say, Say)
    rows = {"%timing": 10, "%timing 2": 2}.get(line, 30)
    assert len(say.text.splitlines()) == 1 + rows
    assert "[30]" in say.text


def test_nothing_yet(use, world):
    assert use("%timing", world("idle")) == [Say("no cell has run on ranks yet\n")]


@pytest.mark.parametrize("args", ["0", "-1", "x", "1 2", "1.5", "٣"])
def test_mistakes(use, world, args):
    with pytest.raises(UsageError, match="not a number of cells"):
        use(f"%timing {args}", world("idle"))


# ---------------------------------------------------------------- measured


def serve(world: World, rank: int, seconds: float, error: bool = False) -> None:
    world.at += seconds
    world.answer_shell(world.ranks[rank], error)


def last(world: World) -> Timing:
    return world.hub.timings.last()[-1]


def test_from_the_request_to_the_first_sign_of_the_end():
    world = start(3)
    world.execute("step()\nmore")
    serve(world, 1, 1.0)
    serve(world, 0, 2.0)
    serve(world, 2, 4.0, error=True)
    world.settle()
    seen = last(world)
    assert (seen.count, seen.code, seen.ranks) == (1, "step()", (0, 1, 2))
    assert seen.seconds == pytest.approx({1: 1.0, 0: 3.0, 2: 7.0}, abs=0.1)
    spread = (seen.least, seen.median, seen.most)
    assert spread == pytest.approx((1.0, 3.0, 7.0), abs=0.1)
    assert (seen.slowest, seen.failed, seen.interrupted) == (2, (2,), False)


def test_an_idle_that_was_lost_costs_no_time():
    world = start(2)
    world.execute("x")
    for rank in world.ranks.values():
        world.say(rank, "shell", "execute_reply", {"status": "ok"}, rank.inbox.popleft())
    world.settle()  # by a fence, half a second later
    assert last(world).most < 0.1


def test_the_rounds_of_one_cell_add_up():
    world = start(2)
    world.execute("%rank 1 a\nb")
    serve(world, 1, 5.0)
    serve(world, 0, 1.0)
    serve(world, 1, 1.0)
    world.settle()
    assert last(world).seconds == pytest.approx({0: 1.0, 1: 7.0}, abs=0.1)
    assert len(world.hub.timings.last()) == 1


def test_a_subset_a_death_and_a_stop():
    world = start(2)
    world.run("%%rank 1\nx")
    assert (last(world).ranks, last(world).world_size) == ((1,), 2)
    world.execute("x")
    world.feed(Signalled(world.tick(), 2))
    world.settle()
    assert last(world).interrupted
    world.execute("x")
    world.die(world.ranks[1])
    world.settle()
    assert last(world).failed == (1,)
    assert last(world).seconds.keys() == {0, 1}


def test_what_ran_nowhere_or_silently_is_not_there():
    world = start(2)
    for code in ("%ranks", "%timing", "%processes 2", "%rank 9 x"):
        world.run(code)
    world.run("x", silent=True)
    assert world.hub.timings.last() == ()


def test_it_is_shown():
    world = start(2)
    world.run("abc = 1")
    cell = world.run("%timing")
    assert cell.reply["status"] == "ok"
    assert " [1]  abc = 1" in cell.text


def test_memory_is_bounded():
    timings = Timings()
    for count in range(1000):
        stopwatch = Stopwatch(dict.fromkeys(range(RANKS + 1), 0.5), world_size=RANKS + 1)
        timings.add(stopwatch, count, "x" * 10**6)
    kept = timings.last()
    assert [cell.count for cell in kept] == list(range(1000 - CELLS, 1000))
    assert all(len(cell.code) <= 200 and not cell.seconds for cell in kept)


def test_structured():
    timings = Timings()
    timings.add(Stopwatch({0: 1.0, 1: 3.0}, {1}, False, 4), 7, "x\ny")
    assert json.loads(json.dumps(timings.as_json())) == [
        {
            "execution_count": 7,
            "code": "x",
            "ranks": [0, 1],
            "world_size": 4,
            "seconds": {"0": 1.0, "1": 3.0},
            "min": 1.0,
            "median": 2.0,
            "max": 3.0,
            "slowest": 1,
            "failed": [1],
            "interrupted": False,
        }
    ]
