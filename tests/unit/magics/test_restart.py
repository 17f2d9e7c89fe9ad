"""`%restart`: whom it restarts, what it refuses, what it says."""

from __future__ import annotations

import pytest

from spmd_kernel.core.content import Content
from spmd_kernel.core.errors import RankLost, UsageError
from spmd_kernel.core.magics.base import Ask, Look, Page, Say, Start, StartReport
from spmd_kernel.core.magics.survivors import PROBES
from spmd_kernel.core.model import Facts
from spmd_kernel.core.outputs import OutputPolicy

FACTS = Facts(memory_available=8 * 10**9)
RENEWED = "MASTER_PORT is new in every rank's environment, TORCHELASTIC_RESTART_COUNT=5"


def report(*ranks, **more):
    return StartReport(0.94, ranks, restarts=5, **more)


@pytest.mark.parametrize(
    ("line", "states", "named", "kept", "text"),
    [
        (
            "%restart 3",
            ["idle"] * 4,
            (3,),
            (0, 1, 2),
            f"rank 3 is back after 0.9 s · ranks 0-2 kept their memory · {RENEWED}\n",
        ),
        (
            "%restart 0, 2",
            ["idle", "idle", "busy"],
            (0, 2),
            (1,),
            f"ranks 0, 2 are back after 0.9 s · rank 1 kept its memory · {RENEWED}\n",
        ),
        (
            "%restart dead",
            ["idle", "killed", "starting", "idle"],
            (1, 2),
            (0, 3),
            f"ranks 1-2 are back after 0.9 s · ranks 0, 3 kept their memory · {RENEWED}\n",
        ),
        (
            "%restart 1",
            ["idle", "killed", "dead"],
            (1,),
            (0,),
            f"rank 1 is back after 0.9 s · rank 0 kept its memory · {RENEWED} "
            "· rank 2 is still dead (`%restart dead`)\n",
        ),
        ("%restart 0", ["idle"], (0,), (), "rank 0 is back after 0.9 s · nothing was kept\n"),
        (
            "%restart all  # a comment",
            ["idle", "dead"],
            (0, 1),
            (),
            "ranks 0-1 are back after 0.9 s · nothing was kept\n",
        ),
    ],
)
def test_ranks_come_back_and_the_others_stay(use, world, ties, line, states, named, kept, text):
    asked = [ties(*kept)] if kept else []
    steps = use(line, world(*states), *asked, FACTS, report(*named, kept=kept))
    assert steps[-3:] == [Look(), Start(len(states), keep=True, anew=named), Say(text)]
    assert [step.ranks for step in steps[:-3]] == ([kept] if kept else [])


def test_the_ranks_may_be_an_expression(use, world, ties):
    value = {0: Content(status="ok", user_expressions={
        "0": {"status": "ok", "data": {"text/plain": "'[1, 2]'"}, "metadata": {}}
    })}  # fmt: skip
    steps = use("%restart {bad}", world(*["idle"] * 3), value, ties(0), FACTS, report(1, 2))
    assert steps[-2] == Start(3, keep=True, anew=(1, 2))


def test_what_is_asked_imports_nothing_and_is_true_of_this_process():
    import sys

    before = set(sys.modules)
    assert [eval(probe, {}) for probe in PROBES.values()] == [False, False]
    assert set(sys.modules) == before

    class Live:
        global_state = type("State", (), {"client": object()})
        is_initialized = staticmethod(lambda: True)

    names = ("jax._src.distributed", "torch.distributed")
    assert not set(names) & before
    try:
        sys.modules |= dict.fromkeys(names, Live)
        assert [eval(probe, {}) for probe in PROBES.values()] == [True, True]
    finally:
        for name in names:
            del sys.modules[name]


def test_the_question_is_silent_and_has_an_end(use, world, ties):
    ask, *_ = use("%restart 1", world("idle", "idle"), ties(0), FACTS, report(1))
    assert isinstance(ask, Ask) and ask.seconds == 5.0
    assert ask.content["silent"] and ask.content["code"] == ""


def test_nobody_is_dead(use, world):
    assert use("%restart dead", world("idle", "busy")) == [Say("no rank is dead\n")]


def test_live_jax_refuses_all_but_all(use, world, ties):
    with pytest.raises(UsageError) as raised:
        use("%restart 1", world(*["idle"] * 4), ties(0, 2, 3, jax=(0, 3)))
    assert "rank 1 cannot be restarted alone: jax.distributed is live in ranks 0, 3" in str(
        raised.value
    )
    assert "SIGABRT" in str(raised.value) and "100 s" in str(raised.value)
    assert "`%restart all`" in raised.value.hint
    with pytest.raises(UsageError, match="rank 1 cannot be restarted alone"):
        use("%processes 2", world("idle", "dead"), FACTS, ties(0, jax=(0,)))
    use("%restart all", world("idle", "dead"), FACTS, report(0, 1))


def test_process_groups_and_silent_ranks_are_told_of(use, world, ties):
    answer = report(
        3, kept=(0, 1, 2), unheard=(1,), set=("OMP_NUM_THREADS=1",), replayed=("epochs",)
    )
    found = ties(0, 1, 2, torch=(0, 2), silent=(1,))
    text = use("%restart 3", world(*["idle"] * 4), found, FACTS, answer)[-1].text
    assert "set OMP_NUM_THREADS=1 · ran again: epochs" in text
    assert "destroy_process_group() in ranks 0, 2, then init_process_group() in all" in text
    assert text.endswith("rank 1 did not answer within 5 s: it has the new environment once free\n")


def test_who_died_meanwhile(use, world, ties):
    answer = report(2, 3, kept=(1,), lost=(3,))
    text = use("%restart 2-3", world(*["idle"] * 4), ties(0, 1), FACTS, answer)[-1].text
    assert text.startswith(
        "rank 2 is back after 0.9 s · rank 3 died again at once (%ranks) "
        "· rank 1 kept its memory · rank 0 died meanwhile (`%restart dead`)"
    )


def test_an_answer_that_makes_no_sense_is_a_no(use, world, ties):
    found = ties(0)
    found[0]["user_expressions"] = {"jax": 5, "torch": {"data": []}}
    assert isinstance(use("%restart 1", world("idle", "idle"), found, FACTS, report(1))[-1], Say)


def test_other_languages_are_asked_nothing(use, world):
    answer = report(1, kept=(0,))
    steps = use("%restart 1", world("idle", "idle", language="julia"), FACTS, answer)
    assert "MASTER_PORT" not in steps[-1].text and "only Python can be told" in steps[-1].text
    assert steps[:2] == [Look(), Start(2, keep=True, anew=(1,))]


def test_grouped_output_has_no_seconds(use, world):
    context = world("idle")
    context.policy = OutputPolicy(mode="grouped")
    assert use("%restart 0", context, FACTS, report(0))[-1] == Say(
        "rank 0 is back · nothing was kept\n"
    )


@pytest.mark.parametrize(
    ("line", "what", "hint"),
    [
        ("%restart", "needs to know which ranks", "`%restart dead`, `%restart all` or `%restart 1`"),
        ("%restart 7", "there is no rank 7: ranks are 0-1", "write"),
        ("%restart ded", "'ded' is neither a rank", "ranks are 0-1"),
        ("%restart 0,0", "named twice", "ranks are 0-1"),
        ("%restart dead,0", "'dead' is neither a rank", "ranks are 0-1"),
    ],
)  # fmt: skip
def test_mistakes_touch_nothing(use, world, line, what, hint):
    with pytest.raises(UsageError) as raised:
        use(line, world("idle", "idle"))
    assert what in str(raised.value) and hint in raised.value.hint


def test_where_no_rank_runs(use, world):
    with pytest.raises(RankLost, match="no rank runs"):
        use("%restart all", world())


def test_memory_of_those_that_go_counts_as_free(use, world, ties):
    little = Facts(memory_available=10**6, rss={1: 39 * 10**6, 0: 10**9})
    assert use("%restart 1", world("idle", "idle"), ties(0), little, report(1))
    with pytest.raises(UsageError, match="not enough memory for rank 1 again"):
        use("%restart 1", world("idle", "idle"), ties(0), Facts(memory_available=10**6))


def test_help(use, world):
    (step,) = use("%restart --help", world("idle"))
    assert isinstance(step, Page) and "%restart SPEC|dead|all" in step.text
