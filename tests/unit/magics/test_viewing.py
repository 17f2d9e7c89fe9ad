"""How outputs are shown: the options of ``%processes``, and ``%output``."""

from __future__ import annotations

import pytest

from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.magics.base import Look, Say, Start, StartReport
from spmd_kernel.core.model import Facts
from spmd_kernel.core.outputs import OutputPolicy

HIDES = "only outputs of rank 1 are shown, and errors (--show all)"


def text_of(steps):
    assert isinstance(steps[-1], Say)
    return steps[-1].text


def test_the_settings_alone_touch_no_rank(world, use):
    context = world("idle", "idle")
    steps = use("%processes --output grouped --show -1 --log-dir logs", context, Facts())
    assert steps[:-1] == [Look(folder="logs")]
    assert text_of(steps) == (
        "outputs are shown rank by rank at the cell's end · "
        f"{HIDES} · text of each rank also in logs/rank-N.log\n"
    )
    assert context.policy == OutputPolicy("grouped", (1,), "logs")
    use("%processes --output live --show all --log-dir=", context, Facts())
    assert context.policy == OutputPolicy()


def test_they_hold_until_others_are_named_and_are_told_of(world, use):
    context = world("idle", "idle")
    use("%processes --show 1 --log-dir logs", context, Facts())
    steps = use("%processes 2", context, Facts())
    assert text_of(steps) == f"already 2 ranks · {HIDES}\n"
    assert context.policy == OutputPolicy(show=(1,), log_dir="logs")


def test_a_view_of_ranks_that_are_gone_ends(world, use):
    context = world("idle", "idle", "idle")
    use("%processes --show 1-2", context, Facts())
    steps = use("%processes 2", context, Facts(), StartReport(0.5, (0, 1)))
    assert text_of(steps).endswith(" · outputs of all ranks are shown\n")
    assert context.policy.show is None


def test_the_view_is_one_of_the_new_world(world, use):
    context = world("idle")
    steps = use("%processes 4 --show 3", context, Facts(), StartReport(0.5, (0, 1, 2, 3)))
    assert Start(4) in steps
    assert context.policy.show == (3,)


@pytest.mark.parametrize(
    ("line", "facts", "message"),
    [
        ("%processes 2 --show 2", Facts(), "no rank 2"),
        ("%processes --show 5", Facts(), "no rank 5"),
        ("%processes 3 --log-dir /root/x", Facts(unwritable="Permission denied"), "/root/x: Perm"),
    ],
)
def test_what_makes_no_sense_changes_nothing(line, facts, message, world, use):
    context = world("idle", "idle")
    with pytest.raises(UsageError, match=message) as caught:
        use(line, context, facts)
    assert caught.value.hint
    assert context.policy == OutputPolicy()


def test_an_unknown_mode_is_refused_before_anything_else(world, use):
    with pytest.raises(UsageError, match="live or grouped") as caught:
        use("%processes 2 --output group", world("idle"))
    assert "grouped" in caught.value.hint


def test_the_environment_wins_and_says_so(world, use):
    context = world("idle", "idle", output="grouped")
    context.policy = OutputPolicy("grouped")
    steps = use("%processes --output live", context, Facts())
    assert text_of(steps) == "SPMD_OUTPUT=grouped wins over --output live\n"
    assert context.policy.mode == "grouped"
    steps = use("%processes --output grouped", context, Facts())
    assert text_of(steps) == "outputs are shown rank by rank at the cell's end\n"


def test_grouped_text_has_no_times(world, use):
    context = world("idle")
    texts = set()
    for seconds in (0.5, 1.5):
        report = StartReport(seconds, (0, 1))
        texts.add(text_of(use("%processes 2 --output grouped", context, Facts(), report)))
    (text,) = texts
    assert text.startswith("2 ranks ready on CPU")


def test_output_shows_what_a_rank_said(world, use):
    context = world("idle", "killed", "idle")
    context.words = {0: "zero\n", 1: "its last\n"}
    assert use("%output 1", context) == [Say("its last\n")]
    assert use("%output -1", context) == [Say("rank 2 said nothing\n")]
    assert use("%output 0-1", context) == [
        Say("── rank 0 ──\nzero\n"),
        Say("── rank 1 ──\nits last\n"),
    ]


@pytest.mark.parametrize("line", ["%output", "%output 0 1", "%output 9", "%output x"])
def test_output_of_no_rank(line, world, use):
    with pytest.raises(UsageError) as caught:
        use(line, world("idle", "idle"))
    assert caught.value.hint
