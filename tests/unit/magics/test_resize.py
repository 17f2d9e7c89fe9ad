"""`%processes N --keep`: what it refuses, starts, stops and says."""

from __future__ import annotations

import pytest

from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.magics.base import Look, Say, Start, StartReport
from spmd_kernel.core.model import Facts

FACTS = Facts(memory_available=8 * 10**9)


def renewed(count=3):
    return f"MASTER_PORT is new in every rank's environment, TORCHELASTIC_RESTART_COUNT={count}"


def report(*ranks, **more):
    return StartReport(1.94, ranks, restarts=3, **more)


def stale(old):
    return f"what was copied from the environment before (WORLD_SIZE {old}) is stale"


@pytest.mark.parametrize(
    ("line", "states", "answer", "text"),
    [
        (
            "%processes 4 --keep",
            ["idle", "idle"],
            report(2, 3, kept=(0, 1)),
            "4 ranks ready in 1.9 s on CPU · ranks 2-3 are new · ranks 0-1 kept their memory "
            f"· {stale(2)} · {renewed()}\n",
        ),
        (
            "%processes 2 --keep",
            ["idle"] * 4,
            report(kept=(0, 1), stopped=(2, 3)),
            "2 ranks ready in 1.9 s on CPU · ranks 2-3 are stopped · ranks 0-1 kept their memory "
            f"· {stale(4)} · {renewed()}\n",
        ),
        (
            "%processes 2 --keep",
            ["idle", "killed", "idle", "dead"],
            report(1, kept=(0,), stopped=(2, 3)),
            "2 ranks ready in 1.9 s on CPU · rank 1 is back · ranks 2-3 are stopped "
            f"· rank 0 kept its memory · {stale(4)} · {renewed()}\n",
        ),
        (
            "%processes 2 --keep",
            ["idle"],
            report(1, kept=(0,), set=("OMP_NUM_THREADS=1",)),
            "2 ranks ready in 1.9 s on CPU · rank 1 is new · rank 0 kept its memory "
            "· set OMP_NUM_THREADS=1 · what rank 0 has imported keeps its number of threads "
            f"· {stale(1)} · {renewed()}\n",
        ),
    ],
)
def test_it_keeps_what_it_can(use, world, ties, line, states, answer, text):
    alive = [rank for rank, state in enumerate(states) if state == "idle"]
    steps = use(line, world(*states), FACTS, ties(*alive), answer)
    assert steps[0] == Look() and steps[1].ranks == tuple(alive)
    assert steps[2:] == [Start(int(line.split()[1]), keep=True), Say(text)]


def test_with_nobody_alive_nothing_is_asked_and_nothing_is_stale(use, world):
    steps = use("%processes 2 --keep", world("dead"), FACTS, report(0, 1))
    assert steps[1:] == [
        Start(2, keep=True),
        Say("2 ranks ready in 1.9 s on CPU · rank 1 is new · rank 0 is back\n"),
    ]


def test_the_present_number_is_as_without(use, world):
    for line in ("%processes 2 --keep", "%processes --keep"):
        assert use(line, world("idle", "idle"), FACTS)[1:] == [Say("already 2 ranks\n")]


def test_variables_are_for_everybody(use, world, ties):
    steps = use("%processes 2 --keep --env A=1", world("idle"), FACTS, ties(0), report(1))
    assert steps[2] == Start(2, {"A": "1"}, keep=True)


def test_process_groups_are_told_of(use, world, ties):
    found, answer = ties(0, 1, torch=(0, 1)), report(2, kept=(0, 1))
    text = use("%processes 3 --keep", world("idle", "idle"), FACTS, found, answer)[-1].text
    assert "process groups must be made anew: destroy_process_group() in ranks 0-1" in text


def test_refused_while_a_rank_is_busy(use, world, ties):
    with pytest.raises(UsageError) as raised:
        use("%processes 4 --keep", world(*["idle"] * 3), FACTS, ties(0, 1, 2, silent=(2,)))
    assert "--keep: rank 2 is busy" in str(raised.value)
    assert "`%restart 2`" in raised.value.hint


def test_refused_while_jax_is_live(use, world, ties):
    with pytest.raises(UsageError) as raised:
        use("%processes 1 --keep", world(*["idle"] * 2), FACTS, ties(0, 1, jax=(0, 1)))
    assert "jax.distributed is live in ranks 0-1" in str(raised.value)
    assert "jax.distributed.shutdown()" in raised.value.hint
    assert "`%processes 1 --fresh`" in raised.value.hint


def test_memory_only_for_the_new(use, world, ties):
    facts = Facts(memory_available=80 * 10**6)
    assert use("%processes 10 --keep", world(*["idle"] * 8), facts, ties(*range(8)), report(8, 9))
    with pytest.raises(UsageError, match="not enough memory for 3 ranks"):
        use("%processes 11 --keep", world(*["idle"] * 8), facts)
