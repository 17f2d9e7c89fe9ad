"""`%processes`: what it asks for, what it says, what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spmd_kernel.core.content import Content
from spmd_kernel.core.errors import RankLost, UsageError
from spmd_kernel.core.magics.base import Ask, Look, Page, Say, Start, StartReport
from spmd_kernel.core.model import Facts

GB = 10**9
FACTS = Facts(memory_available=8 * GB)


def report(seconds=1.94, ranks=(0, 1, 2, 3), **more):
    return StartReport(seconds, ranks, **more)


def said(steps):
    return "".join(step.text for step in steps if isinstance(step, Say))


def test_starts_ranks_and_says_what_it_did(use, world):
    answer = report(set=("OMP_NUM_THREADS=1",), memory_cleared=True)
    steps = use("%processes 4", world("idle"), FACTS, answer)
    assert steps == [
        Look(),
        Start(4),
        Say(
            "4 ranks ready in 1.9 s on CPU · set OMP_NUM_THREADS=1 "
            "· memory of the 1 old rank cleared\n"
        ),
    ]


@pytest.mark.parametrize(
    ("line", "states", "facts", "answer", "start", "text"),
    [
        (
            "%processes 1",
            ("idle", "idle"),
            FACTS,
            report(0.5, (0,), memory_cleared=True),
            Start(1),
            "1 rank ready in 0.5 s on CPU · memory of the 2 old ranks cleared\n",
        ),
        (
            "%processes 2",
            ("idle",),
            FACTS,
            report(75.4, (0, 1)),
            Start(2),
            "2 ranks ready in 75 s on CPU\n",
        ),
        (
            "%processes 2",
            ("idle",),
            Facts(gpus=("H200", "H200")),
            report(1.0, (0, 1)),
            Start(2),
            "2 ranks ready in 1.0 s on 2 GPUs (H200)\n",
        ),
        (
            "%processes auto",
            ("idle",),
            Facts(gpus=("H200", "A100", "H200")),
            report(1.0, (0, 1, 2)),
            Start(3),
            "3 ranks ready in 1.0 s on 3 GPUs (H200, A100)\n",
        ),
        (
            "%processes auto",
            ("idle",),
            Facts(),
            report(1.0, (0, 1)),
            Start(2),
            "2 ranks ready in 1.0 s on CPU\n",
        ),
        (
            "%processes 2 --fresh",
            ("idle", "killed"),
            FACTS,
            report(1.0, (0, 1), memory_cleared=True),
            Start(2),
            "2 ranks ready in 1.0 s on CPU · memory of the 1 old rank cleared\n",
        ),
        (
            "%processes --fresh",
            ("idle", "idle"),
            FACTS,
            report(1.0, (0, 1)),
            Start(2),
            "2 ranks ready in 1.0 s on CPU\n",
        ),
        (
            "%processes --fresh",
            (),
            FACTS,
            report(1.0, (0,)),
            Start(1),
            "1 rank ready in 1.0 s on CPU\n",
        ),
        (
            "%processes 2 --env A=1 --env='B=x y'  # a comment",
            ("idle",),
            FACTS,
            report(
                1.0,
                (0, 1),
                set=("A=1", "B=x y"),
                cleared=tuple(f"PMI_{i}" for i in range(9)),
                replayed=("parameters",),
            ),
            Start(2, {"A": "1"}),
            "2 ranks ready in 1.0 s on CPU · set A=1, B=x y "
            "· cleared PMI_0, PMI_1, PMI_2, PMI_3, PMI_4, PMI_5 and 3 more "
            "· ran again: parameters\n",
        ),
    ],
)
def test_start(use, world, line, states, facts, answer, start, text):
    steps = use(line, world(*states), facts, answer)
    if "--env='B" in line:
        start = Start(start.size, {**start.env, "B": "x y"})
    assert steps == [Look(), start, Say(text)]


RENEWED = " · MASTER_PORT is new in every rank's environment, TORCHELASTIC_RESTART_COUNT=2"


@pytest.mark.parametrize(
    ("line", "states", "kept", "answer", "text"),
    [
        (
            "%processes 4",
            ("idle", "killed", "busy", "dead"),
            (0, 2),
            report(0.8, (1, 3), kept=(0, 2), restarts=2),
            f"ranks 1, 3 are back after 0.8 s · ranks 0, 2 kept their memory{RENEWED}\n",
        ),
        (
            "%processes 2",
            ("dead", "idle"),
            (1,),
            report(0.8, (0,), kept=(1,), set=("OMP_NUM_THREADS=1",), restarts=2),
            "rank 0 is back after 0.8 s · rank 1 kept its memory · set OMP_NUM_THREADS=1"
            f"{RENEWED}\n",
        ),
        ("%processes 1", ("dead",), (), report(0.8, (0,)), "rank 0 is back after 0.8 s\n"),
    ],
)
def test_the_dead_come_back(use, world, ties, line, states, kept, answer, text):
    asked = [ties(*kept)] if kept else []
    steps = use(line, world(*states), FACTS, *asked, answer)
    assert steps[-2:] == [Start(len(states), keep=True), Say(text)]
    assert [step.ranks for step in steps if isinstance(step, Ask)] == ([kept] if kept else [])


@pytest.mark.parametrize(
    ("line", "states", "text"),
    [
        ("%processes 4", ["idle"] * 4, "already 4 ranks\n"),
        ("%processes 1", ["idle"], "already 1 rank\n"),
        (
            "%processes 2",
            ["idle", "busy"],
            "already 2 ranks · rank 1 is still busy (--fresh restarts all)\n",
        ),
        (
            "%processes 2 --env A=1",
            ["idle", "idle"],
            "already 2 ranks · --env A is for ranks started anew (add --fresh)\n",
        ),
        (
            "%processes --env A=1",
            ["idle"],
            "already 1 rank · --env A is for ranks started anew (add --fresh)\n",
        ),
        (
            "%processes 2 --on-error wait",
            ["idle", "idle"],
            "already 2 ranks · on error the other ranks go on\n",
        ),
    ],
)
def test_nothing_is_lost_when_all_are_there(use, world, line, states, text):
    assert use(line, world(*states), Facts(memory_available=0)) == [Look(), Say(text)]


def test_revived_ranks_get_the_environment_of_their_world(use, world, ties):
    steps = use("%processes 2 --env A=1", world("dead", "idle"), FACTS, ties(1), report(1.0, (0,)))
    assert steps[2] == Start(2, {}, keep=True)
    assert "--env A is for ranks started anew" in said(steps)


@pytest.mark.parametrize(
    ("line", "settings", "size", "note"),
    [
        ("%processes 8", {"pinned": 2}, 2, "SPMD_PROCESSES=2 wins over %processes 8"),
        ("%processes auto", {"pinned": 3}, 3, "SPMD_PROCESSES=3 wins over %processes auto"),
        ("%processes --fresh", {"pinned": 3}, 3, "SPMD_PROCESSES=3 wins over the present 1 rank"),
        ("%processes 8", {"max_processes": 4}, 4, "SPMD_MAX_PROCESSES=4 caps 8"),
        (
            "%processes 9",
            {"pinned": 8, "max_processes": 4},
            4,
            "SPMD_PROCESSES=8 wins over %processes 9 · SPMD_MAX_PROCESSES=4 caps 8",
        ),
    ],
)
def test_the_environment_wins_and_the_magic_says_so(use, world, line, settings, size, note):
    steps = use(line, world("idle", **settings), FACTS, report(1.0, tuple(range(size))))
    assert steps[1] == Start(size)
    assert said(steps) == f"{size} ranks ready in 1.0 s on CPU · {note}\n"


@pytest.mark.parametrize("settings", [{"pinned": 2}, {"max_processes": 2}, {"max_processes": 9}])
def test_an_environment_that_agrees_is_not_mentioned(use, world, settings):
    steps = use("%processes 2", world("idle", **settings), FACTS, report(1.0, (0, 1)))
    assert said(steps) == "2 ranks ready in 1.0 s on CPU\n"


@pytest.mark.parametrize(
    ("states", "text"),
    [
        (("idle", "idle"), "2 ranks · %ranks shows them\n"),
        (("idle", "dead", "dead"), "3 ranks, ranks 1-2 dead · %ranks shows them\n"),
    ],
)
def test_alone_it_says_the_world_size(use, world, states, text):
    (step,) = use("%processes", world(*states))
    assert step.text.startswith(text)
    assert "\nusage: %processes N|auto [--keep|--fresh]" in step.text


@pytest.mark.parametrize("value", ["wait", "stop"])
def test_on_error_alone_only_sets_it(use, world, value):
    context = world("idle", pinned=4)
    (step,) = use(f"%processes --on-error {value}", context)
    assert context.on_error == value
    assert isinstance(step, Say)
    assert step.text.startswith("on error ")


def test_on_error_is_set_once_the_ranks_are_there(use, world):
    context = world("idle")
    with pytest.raises(RankLost):
        use("%processes 2 --on-error stop", context, FACTS, RankLost("rank 1 did not start"))
    assert context.on_error is None
    use("%processes 2 --on-error=stop", context, FACTS, report(1.0, (0, 1)))
    assert context.on_error == "stop"


@pytest.mark.parametrize(
    ("line", "what", "hint"),
    [
        ("%processes 0", "at least 1 rank", "%processes 1"),
        ("%processes -3", "%processes -3: there must be at least 1 rank", "%processes 1"),
        ("%processes 100000", "more than 4096 ranks", "smaller"),
        ("%processes 99999999999999999999", "whole number", "%processes 4"),
        ("%processes four", "whole number of ranks, not 'four'", "%processes 4"),
        ("%processes 2.5", "not '2.5'", "%processes 4"),
        ("%processes ٤", "whole number", "%processes 4"),
        ("%processes ''", "not ''", "%processes 4"),
        ("%processes atuo", "not 'atuo'", "did you mean auto?"),
        ("%processes 2 4", "one number of ranks, not 2 and 4", "%processes N|auto"),
        ("%processes 2 --frehs", "no option --frehs", "did you mean --fresh?"),
        (
            "%processes 2 --zzz",
            "no option --zzz",
            "--fresh, --kernel, --env, --preload, --on-error",
        ),
        ("%processes 2 --keep --fresh", "--keep and --fresh exclude each other", "leave one"),
        ("%processes 2 --keep --preload a", "--keep and --preload exclude each other", "leave one"),
        ("%processes 2 --keep --kernel k", "--keep and --kernel exclude each other", "leave one"),
        ("%processes 2 --fresh=yes", "--fresh takes no value", "--fresh alone"),
        ("%processes 2 --env", "--env needs a value", "--env K=V"),
        ("%processes 2 --env A", "NAME=VALUE, not 'A'", "OMP_NUM_THREADS=2"),
        ("%processes 2 --env 1A=2", "NAME=VALUE", "OMP_NUM_THREADS=2"),
        ("%processes 2 --env =2", "NAME=VALUE", "OMP_NUM_THREADS=2"),
        ("%processes 2 --env A=\0", "NAME=VALUE", "OMP_NUM_THREADS=2"),
        ("%processes 2 --env RANK=2", "each rank has its own RANK", "leave it out"),
        ("%processes 2 --on-error", "--on-error needs a value", "wait|stop"),
        ("%processes 2 --on-error stpo", "wait or stop, not 'stpo'", "did you mean stop?"),
        ("%processes 2 --env A='x", "not closed", "close it"),
        ('%processes 2 --env A="x', "not closed", "close it"),
        ("%processes {n", "{n is not {expression}", "{{"),
        ("%processes {}", "{} is not {expression}", "{{"),
    ],
)
def test_mistakes_touch_nothing(use, world, line, what, hint):
    context = world("idle", "idle")
    with pytest.raises(UsageError) as raised:
        use(line + " --on-error=wait" if "--on-error" not in line else line, context)
    assert what in str(raised.value)
    assert hint in raised.value.hint
    assert context.on_error is None


def test_the_kernel_of_the_ranks_may_be_named(use, world):
    context = world("idle", kernel="python3")
    assert use("%processes 1 --kernel python3", context, FACTS)[1:] == [Say("already 1 rank\n")]
    facts = replace(FACTS, kernels={"other": "python", "ir": "R"})
    steps = use("%processes 1 --kernel other", context, facts, report(1.0, (0,)))
    assert steps[:2] == [Look(kernels=True), Start(1, {}, kernel="other")]
    with pytest.raises(UsageError, match="its language is R, this notebook's is python") as raised:
        use("%processes 1 --kernel ir", context, facts)
    assert "install --kernel ir" in raised.value.hint
    with pytest.raises(UsageError, match="no such kernelspec") as raised:
        use("%processes 1 --kernel othr", context, facts)
    assert "did you mean other?" in raised.value.hint


@pytest.mark.parametrize(
    ("line", "states", "facts", "what", "hint"),
    [
        (
            "%processes 64",
            ("idle",),
            Facts(memory_available=1200 * 10**6),
            "not enough memory for 64 ranks: 2560 MB (40 MB each) at least, 1200 MB available",
            "`%processes 30` fits",
        ),
        ("%processes 2", ("idle",), Facts(memory_available=10**6), "2 ranks: 80 MB", "end other"),
        (
            "%processes 3",
            ("idle", "dead", "dead"),
            Facts(memory_available=79_999_999, rss={0: GB}),
            "not enough memory for ranks 1-2 again: 80 MB",
            "end other programs",
        ),
    ],
)
def test_more_ranks_than_memory(use, world, line, states, facts, what, hint):
    with pytest.raises(UsageError) as raised:
        use(line, world(*states), facts)
    assert what in str(raised.value)
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("line", "states", "facts"),
    [
        ("%processes 2", ("idle",), Facts(memory_available=80 * 10**6)),
        ("%processes 2", ("idle",), Facts(memory_available=10**6, rss={0: 79 * 10**6})),
        ("%processes 9", ("idle",), Facts()),
        ("%processes 9", ["idle"] * 8 + ["dead"], Facts(memory_available=40 * 10**6)),
    ],
)
def test_only_memory_of_ranks_to_start_counts(use, world, ties, line, states, facts):
    asked = [ties(*range(8))] if "dead" in states else []
    steps = use(line, world(*states), facts, *asked, report())
    assert steps[-2].size == int(line.split()[1])


def test_a_rank_that_cannot_start_is_the_error(use, world):
    with pytest.raises(RankLost, match="rank 1 exited with code 3"):
        use("%processes 2", world("idle"), FACTS, RankLost("rank 1 exited with code 3"))


@pytest.mark.parametrize("line", ["%processes --help", "%processes -h", "%processes 4 --help"])
def test_help(use, world, line):
    (step,) = use(line, world("idle"))
    assert isinstance(step, Page)
    assert "--on-error" in step.text


# ---------------------------------------------------------------- values from rank 0


def reply(**results):
    return Content(
        status="ok",
        user_expressions={
            key: {"status": "ok", "data": {"text/plain": repr(value)}, "metadata": {}}
            for key, value in results.items()
        },
    )


def test_values_come_from_rank_0(use, world):
    line = "%processes {n * len(d['}'])} --env A=$name --env B={name}/x"
    answer = {0: reply(**{"0": "3", "1": 'it\'s "4" é'})}
    steps = use(line, world("idle"), answer, FACTS, report())
    ask = steps[0]
    assert isinstance(ask, Ask)
    assert (ask.ranks, ask.msg_type, ask.channel) == ((0,), "execute_request", "shell")
    assert ask.content["silent"] is True
    assert ask.content["store_history"] is False
    scope = {"n": 1, "d": {"}": "abc"}, "name": 7}
    values = [eval(e, scope) for e in ask.content["user_expressions"].values()]
    assert values == ["3", "7"]
    assert steps[2] == Start(3, {"A": 'it\'s "4" é', "B": 'it\'s "4" é/x'})


def test_nothing_is_asked_without_an_expression(use, world):
    line = "%processes 2 --env 'A={n}' --env B={{n}} --env C=$$n --env D=\\{n} --env E=5$"
    steps = use(line, world("idle"), FACTS, report())
    assert steps[1].env == {"A": "{n}", "B": "{n}", "C": "$n", "D": "{n}", "E": "5$"}


@pytest.mark.parametrize(
    ("answer", "error", "what"),
    [
        (None, RankLost, "rank 0 did not answer when asked for {n}"),
        (Content(status="aborted"), UsageError, "{n} failed on rank 0: aborted"),
        (
            Content(
                status="ok",
                user_expressions={
                    "0": {"status": "error", "ename": "NameError", "evalue": "name 'n'"}
                },
            ),
            UsageError,
            "{n} failed on rank 0: NameError: name 'n'",
        ),
        (
            Content(status="error", ename="KeyboardInterrupt", evalue=""),
            UsageError,
            "{n} failed on rank 0: KeyboardInterrupt",
        ),
        (Content(status="ok"), UsageError, "{n} failed on rank 0: no result"),
        (Content(status="ok", user_expressions=[1]), UsageError, "nonsense"),
        (Content(status=5), UsageError, "nonsense"),
        (
            Content(
                status="ok",
                user_expressions={"0": {"status": "ok", "data": {"text/plain": "<object at 1>"}}},
            ),
            UsageError,
            "{n} has no readable value",
        ),
        (
            Content(
                status="ok", user_expressions={"0": {"status": "ok", "data": {"text/plain": "4"}}}
            ),
            UsageError,
            "{n} has no readable value",
        ),
        (reply(**{"0": "four"}), UsageError, "not 'four'"),
    ],
)
def test_values_that_cannot_be_had(use, world, answer, error, what):
    with pytest.raises(error) as raised:
        use("%processes {n}", world("idle"), {0: answer})
    assert what in str(raised.value)
    assert raised.value.hint


@pytest.mark.parametrize("states", [("dead", "idle"), ("busy",), ()])
def test_rank_0_is_only_asked_when_it_can_answer(use, world, states):
    with pytest.raises(RankLost, match=r"\$n needs rank 0, which is (dead|busy)"):
        use("%processes $n", world(*states))


def test_ranks_of_another_language_are_not_asked(use, world):
    with pytest.raises(UsageError, match="the ranks speak R"):
        use("%processes {n}", world("idle", language="R"))
