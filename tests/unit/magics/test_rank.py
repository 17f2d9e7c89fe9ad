"""`%%rank SPEC`, `%rank SPEC EXPR`, and the SPEC itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.content import Content
from spmd_kernel.core.errors import RankLost, UsageError
from spmd_kernel.core.magics import spec
from spmd_kernel.core.magics.base import Ask, Page, Run
from spmd_kernel.core.magics.wording import name_ranks, spec_of


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0", (0,)),
        ("0,2-3", (0, 2, 3)),
        (" 3 , 0-1 ", (0, 1, 3)),
        ("-1", (3,)),
        ("-2--1", (2, 3)),
        ("0--1", (0, 1, 2, 3)),
        ("-4-1", (0, 1)),
        ("1-1", (1,)),
        ("all", (0, 1, 2, 3)),
    ],
)
def test_spec(text, ranks):
    assert spec.parse(text, 4) == ranks


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no ranks are named"),
        ("  ", "no ranks are named"),
        ("9", "there is no rank 9: ranks are 0-3"),
        ("4", "there is no rank 4: ranks are 0-3"),
        ("-5", "there is no rank -5: ranks are 0-3"),
        ("0-9", "there is no rank 9"),
        ("0-999999999", "there is no rank 999999999"),
        ("3-1", "3-1 runs backwards, from rank 3 to 1"),
        ("-1-0", "-1-0 runs backwards, from rank 3 to 0"),
        ("0,0", "rank 0 is named twice in '0,0'"),
        ("3,-1", "rank 3 is named twice in '3,-1'"),
        ("0-2,1", "rank 1 is named twice"),
        ("all,2", "rank 2 is named twice"),
        ("0,", "a rank is missing beside a comma"),
        (",0", "a rank is missing beside a comma"),
        ("0 1", "'0 1' is neither a rank nor a range of ranks"),
        ("0-", "'0-' is neither"),
        ("x", "'x' is neither"),
        ("1.5", "'1.5' is neither"),
        ("٣", "neither"),
        ("9" * 5000, "neither"),
    ],
)
def test_spec_mistakes(text, what):
    with pytest.raises(UsageError) as raised:
        spec.parse(text, 4)
    assert what in str(raised.value)
    assert raised.value.hint.endswith("write `0`, `0,3`, `0-3`, `-1` or `all`")
    assert "ranks are 0-3" in str(raised.value) + raised.value.hint


def test_a_world_of_one_has_its_own_hint():
    with pytest.raises(UsageError, match="there is no rank 1: there is only rank 0") as raised:
        spec.parse("1", 1)
    assert "%processes N" in raised.value.hint


@given(st.sets(st.integers(0, 200), min_size=1))
def test_spec_round_trip(ranks):
    assert spec.parse(spec_of(ranks), 201) == tuple(sorted(ranks))
    assert spec.parse(name_ranks(ranks).partition(" ")[2], 201) == tuple(sorted(ranks))


@given(st.integers(1, 50), st.data())
def test_negative_numbers_count_from_the_end(size, data):
    first = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(first, size - 1))
    assert spec.parse(f"{first - size}-{last - size}", size) == tuple(range(first, last + 1))


@given(st.text("0123456789-,al \t", max_size=12), st.integers(1, 9))
def test_any_spec_is_ranks_of_the_world_or_explained(text, size):
    try:
        ranks = spec.parse(text, size)
    except UsageError as refused:
        ranks, error = (), refused
    if ranks:
        assert set(ranks) <= set(range(size))
    else:
        assert error.hint


# ---------------------------------------------------------------- the magics


@pytest.mark.parametrize(
    ("args", "ranks"), [("0", (0,)), ("0, 2-3  # some", (0, 2, 3)), ("all", (0, 1, 2, 3))]
)
@pytest.mark.parametrize("body", ["print(1)\n", ""])
def test_cell(use, world, args, ranks, body):
    assert use(f"%%rank {args}", world(*["idle"] * 4), body=body) == [Run(ranks, body)]


def test_line(use, world):
    code = "{1: 'a'}[x] # 'it\"s"
    assert use(f"%rank 0,2  {code}", world(*["idle"] * 4)) == [Run((0, 2), code)]


@pytest.mark.parametrize("value", ["1", "-1", "1,0", "[1, 0]", "(1,)", "{0, 1}", "0-1"])
def test_expression(use, world, value):
    result = {"status": "ok", "data": {"text/plain": repr(value)}}
    answer = {0: Content(status="ok", user_expressions={"0": result})}
    steps = use("%rank {f(2)} {x}", world("idle", "idle"), answer)
    assert isinstance(steps[0], Ask)
    assert steps[1] == Run((0, 1) if "0" in value else (1,), "{x}")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("%rank", "no ranks are named"),
        ("%rank 0", "%rank needs code after the ranks"),
        ("%rank 9 x", "there is no rank 9"),
        ("%rank 0, 1 x", "a rank is missing beside a comma"),
        ("%%rank", "no ranks are named"),
        ("%%rank # 0", "no ranks are named"),
        ("%%rank 0 1", "'0 1' is neither"),
        ("%%rank 9", "there is no rank 9: ranks are 0-1"),
        ("%%rank '", "not closed"),
    ],
)
def test_mistakes(use, world, line, what):
    with pytest.raises(UsageError) as raised:
        use(line, world("idle", "idle"))
    assert what in str(raised.value)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("spec_text", "what"),
    [
        ("1", "rank 1 is dead: killed by SIGKILL (signal 9)"),
        ("all", "ranks 1-3 are dead: killed by SIGKILL (signal 9)"),
        ("3", "rank 3 is dead"),
    ],
)
def test_dead_ranks_are_refused(use, world, spec_text, what):
    with pytest.raises(RankLost) as raised:
        use(f"%%rank {spec_text}", world("idle", "killed", "killed", "dead"), body="x")
    assert str(raised.value) == what
    assert "`%restart dead`" in raised.value.hint


def test_the_living_beside_the_dead_are_not(use, world):
    assert use("%%rank 0", world("idle", "killed"), body="x") == [Run((0,), "x")]


def test_no_rank_at_all(use, world):
    with pytest.raises(RankLost, match="no rank runs"):
        use("%%rank 0", world())


@pytest.mark.parametrize("line", ["%rank --help", "%%rank ?"])
def test_help(use, world, line):
    (step,) = use(line, world("idle"))
    assert isinstance(step, Page)
    assert "0,2-3" in step.text


def test_a_subtraction_is_no_call_for_help(use, world):
    assert use("%rank 0 x --help", world("idle")) == [Run((0,), "x --help")]
