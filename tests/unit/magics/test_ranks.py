"""`%ranks`."""

from __future__ import annotations

import pytest

from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.magics.base import Look, RankView, Say
from spmd_kernel.core.magics.ranks import table
from spmd_kernel.core.model import Facts

MB = 10**6


def test_table():
    world = (
        RankView(0, 4101, "idle", 0.123, start="fork"),
        RankView(1, 4102, "busy", start="spawn"),
        RankView(2, 99103, "dead", 12.5, "killed by SIGSEGV (signal 11)"),
        RankView(3, None, "starting"),
    )
    facts = Facts(rss={0: 61_900_000, 1: 1234 * MB, 2: 5}, cpu={0: 1.234, 1: 1000, 2: 7})
    assert table(world, facts) == (
        "rank    pid  start  state     last cell       CPU      RSS  exit cause\n"
        "   0   4101  fork   idle         0.12 s     1.2 s    61 MB\n"
        "   1   4102  spawn  busy              -  1000.0 s  1234 MB\n"
        "   2  99103  -      dead        12.50 s         -        -  killed by SIGSEGV (signal 11)\n"
        "   3      -  -      starting          -         -        -\n"
    )


def test_gpu_memory_where_there_is_a_driver():
    world = (RankView(0, 41, "idle"), RankView(1, 42, "idle"), RankView(2, 43, "dead", cause="why"))
    facts = Facts(rss={0: MB}, cpu={0: 2.0, 1: 3.0}, gpu_memory={0: 81_559 * MB, 2: MB})
    assert table(world, facts) == (
        "rank  pid  start  state  last cell    CPU   RSS       GPU  exit cause\n"
        "   0   41  -      idle           -  2.0 s  1 MB  81559 MB\n"
        "   1   42  -      idle           -  3.0 s     -         -\n"
        "   2   43  -      dead           -      -     -         -  why\n"
    )


def test_64_ranks_are_a_line_each():
    world = tuple(RankView(rank, 10_000 + rank, "idle", rank / 10) for rank in range(64))
    head, *rows = table(world, Facts(rss=dict.fromkeys(range(64), 40 * MB))).splitlines()
    assert [int(row.split()[0]) for row in rows] == list(range(64))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(head) < 80


def test_it_looks_and_says(use, world):
    look, say = use("%ranks", world("idle"), Facts(rss={0: 50 * MB}))
    assert look == Look(usage=True)
    assert isinstance(say, Say)
    assert "50 MB" in say.text


def test_arguments_are_refused(use, world):
    with pytest.raises(UsageError, match="takes no arguments"):
        use("%ranks 3", world("idle"))
