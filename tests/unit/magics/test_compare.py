"""`%compare`: the whole exchange, with the real script on ranks in this process."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from spmd_kernel.core.content import Content
from spmd_kernel.core.errors import Interrupted, RankLost, UsageError
from spmd_kernel.core.magics import MAGICS
from spmd_kernel.core.magics.base import Ask, Call, Page
from spmd_kernel.core.magics.comparison import LEAVES
from spmd_kernel.settings import COMPARE

from .ranks_that_compare import Ranks, compare

FEW = settings(max_examples=40, deadline=None)
RANK_FILES = sorted(COMPARE.parent.glob("*.py"))


@pytest.mark.parametrize("path", RANK_FILES, ids=lambda path: path.name)
def test_ranks_with_an_old_python_can_read_it(path):
    ast.parse(path.read_bytes(), feature_version=(3, 8))


# ---------------------------------------------------------------- equal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "equal on 3 ranks: int 5\n"),
        (None, "equal on 3 ranks: None\n"),
        ("it's", 'equal on 3 ranks: str "it\'s"\n'),
        ({}, "equal on 3 ranks: dict empty\n"),
        ([], "equal on 3 ranks: list empty\n"),
        ({2, "1"}, "equal on 3 ranks: set 2 {'1', 2}\n"),
        (float("nan"), "equal on 3 ranks: float nan\n"),
        (len, "equal on 3 ranks: builtin_function_or_method <built-in function len>"
         " (compared by repr)\n"),
        (np.float32(0.5), "equal on 3 ranks: numpy float32 () 0.5 sha256 "),
        (np.zeros((128, 64), "f4"), "equal on 3 ranks: ndarray float32 (128, 64) sha256 c35020473aed…\n"),
        (np.zeros((0, 3)), "equal on 3 ranks: ndarray float64 (0, 3) sha256 e3b0c44298fc…\n"),
        ({"a": np.zeros(1000), "b": 2}, "equal on 3 ranks: dict, 2 leaves, 8 kB, sha256 "),
    ],
)  # fmt: skip
def test_equal_is_one_line(value, text):
    said = compare(value, value, value)
    assert said.startswith(text)
    assert said.count("\n") == 1


def test_objects_that_differ_in_their_address_only():
    said = compare(object(), object())
    assert said == "equal on 2 ranks: object <object object at 0x…> (compared by repr)\n"
    said = compare([object(), 1], [object(), 1])
    assert said.startswith("equal on 2 ranks: list, 2 leaves, sha256 ")
    assert said.endswith("… (some leaves compared by repr)\n")


def test_the_order_of_a_dict_or_set_does_not_count():
    assert compare({1: 2, 3: 4}, OrderedDict([(3, 4), (1, 2)])).startswith("equal")
    assert compare({"a", "b"}, {"b", "a"}).startswith("equal")


def test_one_rank():
    assert compare(7) == "on 1 rank: int 7\n"


def test_equal_costs_two_small_requests():
    ranks = Ranks(*({"v": {str(i): np.zeros(1000) for i in range(1000)}} for _ in range(4)))
    assert ranks.compare().startswith("equal")
    assert ranks.asked == [(0, 1, 2, 3)] * 2
    assert ranks.traffic < 4 * 400
    assert ranks.folders == []


# ---------------------------------------------------------------- different


def test_who_differs_how_far_and_where():
    one = np.zeros((128, 64), "f4")
    two = one.copy()
    two[3, 7], two[100, 1] = -0.25, 0.125
    three = one.astype("f8")
    said = compare(one, two, one, three)
    assert re.sub(r"[0-9a-f]{12}…", "…", said) == (
        "differs on ranks 0-3: ndarray\n"
        "  ranks 0, 2  ndarray float32 (128, 64) sha256 …\n"
        "  rank 1      ndarray float32 (128, 64) sha256 …"
        "  max |difference| 0.25 at [3, 7], 2 of 8192 elements differ\n"
        "  rank 3      ndarray float64 (128, 64) sha256 …\n"
    )


def test_leaves_of_a_container():
    Point = namedtuple("Point", "x y")

    @dataclass
    class Config:
        rate: float
        names: list
        point: Point

    said = compare(
        {"c": Config(0.1, ["a", "b"], Point(1, 2)), "same": 1},
        {"c": Config(0.3, ["a", "c"], Point(1, 5)), "same": 1},
    )
    assert said == (
        "3 of 6 leaves differ on ranks 0-1: dict\n"
        "['c'].rate      rank 0  float 0.1\n"
        "                rank 1  float 0.3  max |difference| 0.2\n"
        "['c'].names[1]  rank 0  str 'b'\n"
        "                rank 1  str 'c'\n"
        "['c'].point.y   rank 0  int 2\n"
        "                rank 1  int 5      max |difference| 3\n"
    )


def test_leaves_that_some_have_not():
    said = compare({"a": 1, "b": 2}, {"a": 1, "c": 3}, {"a": 1, "b": 2})
    assert said == (
        "2 leaves differ on ranks 0-2: dict\n"
        "['b']  ranks 0, 2  int 2\n"
        "       rank 1      not there\n"
        "['c']  ranks 0, 2  not there\n"
        "       rank 1      int 3\n"
    )


def test_one_of_many():
    assert compare([1, 2, 3], [1, 2, 4]).startswith("1 of 3 leaves differs on ranks 0-1: list\n")


def test_the_first_leaves_of_many():
    ranks = [{f"k{i:03}": i * (1 + (r and i >= 10 * r)) for i in range(300)} for r in range(3)]
    said = compare(*ranks)
    assert said.startswith("290 of 300 leaves differ on ranks 0-2: dict\n")
    assert said.endswith(f"\n… and {290 - LEAVES} more\n")
    assert re.findall(r"k\d+", said) == [f"k{i:03}" for i in range(10, 10 + LEAVES)]
    ten, twenty = said.split("['k010']")[1].split("['k020']")
    assert "ranks 0, 2" in ten.splitlines()[0]
    assert "ranks 1-2" in twenty.splitlines()[1]


def test_many_ranks_that_all_differ():
    said = compare(*({"x": np.full(3, r)} for r in range(64)))
    assert len(said.splitlines()) == 1 + 8 + 1
    assert "ranks 8-63  other values" in said
    assert said.endswith("max |difference| 63 (rank 63)\n")


def test_nothing_of_the_contents_goes_through_the_kernel():
    one = {str(i): np.random.default_rng(i).random(10_000) for i in range(50)}
    two = {name: value + 1e-9 for name, value in one.items()}
    ranks = Ranks({"v": one}, {"v": two})
    assert "50 of 50 leaves differ" in ranks.compare()
    assert ranks.folders and ranks.traffic < 40_000


@pytest.mark.parametrize(
    ("base", "mine", "text"),
    [
        ([1.0, 2.0], [1.0, 2.5], "max |difference| 0.5 at [1], 1 of 2 elements differ"),
        ([np.inf, 1], [np.inf, 2], "max |difference| 1 at [1], 1 of 2 elements differ"),
        ([np.inf, 1], [-np.inf, 1], "max |difference| inf at [0], 1 of 2 elements differ"),
        ([np.nan, 1], [np.nan, 2], "max |difference| 1 at [1], 1 of 2 elements differ"),
        ([1, np.nan], [np.nan, np.nan],
         "1 NaN on one side only, the first at [0], 1 of 2 elements differ"),
        ([1.0, 0], [np.nan, 3], "max |difference| 3 at [1], 1 NaN on one side only, "
         "the first at [0], 2 of 2 elements differ"),
        ([0.0, 1], [-0.0, 1], "equal but for signs of zero or payloads of NaN"),
        ([True, False], [True, True], "max |difference| 1 at [1], 1 of 2 elements differ"),
        ([1 + 1j, 0], [1 - 1j, 0], "max |difference| 2 at [0], 1 of 2 elements differ"),
        (np.array([2**63 - 1, 5]), np.array([-(2**63), 5]),
         f"max |difference| {2**64 - 1} at [0], 1 of 2 elements differ"),
        (np.array([0, 255], "u1"), np.array([255, 255], "u1"), "max |difference| 255 at [0]"),
        (np.array([1, 2], ">i4"), np.array([1, -2], ">i4"), "max |difference| 4 at [1]"),
        (np.array([1], "f2"), np.array([1.5], "f2"), "max |difference| 0.5 at [0]"),
        (np.array(3.0), np.array(4.0), "max |difference| 1\n"),
        (np.longdouble([1]), np.longdouble([3]), "max |difference| 2 at [0]"),
        (np.array(["a", "b"]), np.array(["a", "c"]), "the first at [1], 1 of 2 elements differ"),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), np.array(["2020-01-02", "NaT"], "M8[D]"),
         "the first at [0], 1 of 2 elements differ"),
        (np.array([(1, 2.0)], "i4,f8"), np.array([(1, 3.0)], "i4,f8"), "the first at [0]"),
        (np.array([[1], "x"], object), np.array([[1], "y"], object), "compared by repr"),
        (list(range(50)), [*range(49), -1], "max |difference| 50 at [49], 1 of 50"),
        ([0.5] * 50, [0.5] * 49 + [float("nan")], "1 NaN on one side only, the first at [49]"),
        (np.eye(4)[::2, ::-1], np.eye(4)[1::2, ::-1], "at [0, 2], 4 of 8 elements differ"),
        (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 0]), ".mask"),
        (1 + 1j, 2 + 1j, "max |difference| 1\n"),
        (10**30, 10**30 + 1, "max |difference| 1\n"),
    ],
)  # fmt: skip
def test_difference(base, mine, text):
    if isinstance(base, list) and len(base) == 2:
        base, mine = np.array(base), np.array(mine)
    assert text in compare(base, mine)


ARRAYS = npst.arrays(
    npst.scalar_dtypes(), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
)


@FEW
@given(ARRAYS, st.data())
def test_an_array_is_equal_to_its_copy_and_to_nothing_else(value, data):
    assert compare(value, value.copy("K"), np.array(value, order="F")).startswith("equal")
    other = data.draw(npst.arrays(value.dtype, value.shape))
    same = other.tobytes() == value.tobytes()
    assert compare(value, other).startswith("equal" if same else "differs")


@FEW
@given(npst.arrays(st.sampled_from(["f4", "f8", "i8", "u8", "c16"]), (2, 3)), st.data())
def test_the_difference_is_numpys(value, data):
    other = data.draw(npst.arrays(value.dtype, value.shape))
    said = compare(value, other)
    wide = object if value.dtype.kind in "iu" else "c16" if value.dtype.kind == "c" else "f8"
    with np.errstate(all="ignore"):
        unequal = (value != other) & ~(np.isnan(value) & np.isnan(other))
        distances = abs(value.astype(wide) - other.astype(wide))[unequal & ~np.isnan(value + other)]
    if found := re.search(r"max \|difference\| (\S+) at", said):
        if len(distances) and not any(d != d for d in distances):
            assert float(found[1]) == pytest.approx(float(max(distances)), rel=1e-5)
    elif "equal but" not in said and not said.startswith("equal"):
        assert np.isnan(value + other).any()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=10,
)


@FEW
@given(JSON, JSON)
def test_any_containers(one, two):
    assert compare(one, one).startswith("equal")
    said = compare(one, two)
    if repr(one) == repr(two):
        assert said.startswith("equal")
    else:
        assert "differ" in said


def test_what_frameworks_make():
    inner = Path(__file__).with_name("frameworks_of_compare.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(inner)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        pytest.skip("torch or jax is not there")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr


# ---------------------------------------------------------------- failures


def test_ranks_that_raise():
    ranks = Ranks({"v": 1}, {}, {"v": 1}, {"v": 2}, {})
    said = ranks.compare()
    assert said == (
        "differs on ranks 0, 2-3: int\n"
        "  ranks 0, 2  int 1\n"
        "  rank 3      int 2  max |difference| 1\n"
        "ranks 1, 4 raised NameError: name 'v' is not defined\n"
    )


def test_rank_0_has_no_value():
    ranks = Ranks({}, {"v": 1.0}, {"v": 1.5})
    assert "rank 2  float 1.5  max |difference| 0.5\nrank 0 raised NameError" in ranks.compare()


def test_all_raise():
    with pytest.raises(UsageError) as raised:
        Ranks({}, {}).compare("v + 1")
    assert str(raised.value) == "v + 1 raised NameError: name 'v' is not defined on ranks 0-1"


@pytest.mark.parametrize("expression", ["1 +", "x = 1", "!ls", "import os"])
def test_no_expression(expression):
    with pytest.raises(UsageError, match=r"raised SyntaxError: .* on ranks 0-1"):
        Ranks({}, {}).compare(expression)


def test_odd_objects():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    assert "whose repr raises RuntimeError" in compare(Odd(), Odd())
    inside = [1]
    inside.append(inside)
    assert compare(inside, inside).startswith("equal on 2 ranks: list, 2 leaves")
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match="RecursionError"):
        compare(deep, deep)
    while deep:  # else its end is a recursion, too
        deep = deep.pop()


@pytest.mark.parametrize(
    ("step", "dead", "rows"),
    [
        ("begin", 1, "rank 2 ndarray float64 (2,) sha256 … max"),
        ("publish", 0, ""),
        ("against", 1, "rank 2 ndarray float64 (2,) sha256 … max"),
        ("give", 0, "rank 1 ndarray float64 (2,) sha256 … rank 2"),
        ("measure", 2, "rank 1 ndarray float64 (2,) sha256 … max"),
        ("end", 0, "rank 1 ndarray float64 (2,) sha256 … max"),
    ],
)
def test_a_rank_that_dies_on_the_way(step, dead, rows):
    ranks = Ranks(*({"v": np.full(2, number)} for number in (0.0, 1.0, 2.0)))
    ranks.lost = {step: {dead}}
    said = re.sub("\\s+", " ", re.sub(r"[0-9a-f]{12}…", "…", ranks.compare()))
    assert said.startswith("differs on ranks ")
    assert rows in said
    assert (f"rank {dead} died, or did not answer" in said) is (step != "end")


def test_a_rank_that_does_not_see_the_files_of_rank_0(monkeypatch):
    ranks = Ranks({"v": 1}, {"v": 2})
    plain = ranks._evaluate

    def elsewhere(rank, expression):
        return plain(rank, expression.replace("/spmd-compare", "/nothing") if rank else expression)

    monkeypatch.setattr(ranks, "_evaluate", elsewhere)
    assert ranks.compare() == (
        "differs on ranks 0-1: int\nrank 1 cannot read the files of rank 0: where is not known\n"
    )


def test_leaves_that_the_disk_does_not_take(monkeypatch):
    full = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: full)
    said = compare([np.zeros(10), np.zeros(1000)], [np.ones(10), np.ones(1000)])
    assert "[0]  rank 0  ndarray float64 (10,)" in said and "max |difference| 1 at [0]" in said
    assert said.endswith("too large for the temporary directory: difference not taken\n")


def test_a_stop_leaves_nothing_behind(world):
    ranks = Ranks({"v": np.zeros(2)}, {"v": np.ones(2)})
    view = world("idle", "idle", compare=str(COMPARE))
    steps = MAGICS["%compare"].run(Call("%compare", "v"), view)
    answer = None
    for _ in range(3):  # begin, publish, against
        answer = ranks.ask(steps.send(answer))
    assert ranks.folders[0].exists()
    last = steps.throw(Interrupted("stopped by the user"))
    assert isinstance(last, Ask) and last.seconds
    ranks.ask(last)
    assert not ranks.folders[0].exists() and not ranks.scripts
    with pytest.raises(Interrupted):
        steps.send({})


@pytest.mark.parametrize("answer", [None, Content(), Content(user_expressions=5),
    Content(status="ok", user_expressions={"compare": {"status": "ok", "data": {"text/plain": "2"}}}),
    Content(status="ok", user_expressions={"compare": {"status": "ok", "data": {"text/plain": "'2'"}}}),
    Content(status="error", ename="KeyboardInterrupt", evalue=""),
])  # fmt: skip
def test_ranks_that_answer_nonsense(use, world, answer):
    view = world("idle", "idle", compare="x")
    with pytest.raises(UsageError, match=r"(died|nonsense|raised).* on ranks 0-1"):
        use("%compare v", view, dict.fromkeys((0, 1), answer), {})


# ---------------------------------------------------------------- the line


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("{1: 'a'}[v] # 'it\"s", (0, 1, 2)),
        ("--on 0,2 {1: 'a'}[v]", (0, 2)),
        ("--on=-1 {1: 'a'}[v]", (2,)),
        ("v if v else -h", (0, 1, 2)),
        ("$v {v} ?", (0, 1, 2)),
    ],
)
def test_the_expression_is_left_as_it_is(use, world, line, ranks):
    view = world("idle", "idle", "idle", compare="x")
    with pytest.raises(UsageError):
        use(f"%compare {line}", view, {}, {})
    steps = MAGICS["%compare"].run(Call("%compare", line), view)
    ask = next(steps)
    assert isinstance(ask, Ask) and ask.ranks == ranks
    expression = line.removeprefix("--on 0,2 ").removeprefix("--on=-1 ")
    assert repr(expression) in ask.content["user_expressions"]["compare"]
    assert ask.content["silent"] and not ask.content["store_history"] and not ask.content["code"]


def test_names_of_the_user_are_in_nobodys_way():
    names = dict.fromkeys(("compile", "exec", "open", "globals", "str", "print", "map"), 5)
    assert Ranks({**names}, {**names}).compare("exec") == "equal on 2 ranks: int 5\n"


def test_the_users_future_is_not_ours():
    assert (
        Ranks({}, {}).compare("(lambda x: 5).__annotations__").startswith("equal on 2 ranks: dict")
    )


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("%compare", "needs an expression"),
        ("%compare --on 0", "needs an expression"),
        ("%compare --on 9 v", "there is no rank 9"),
        ("%compare --on x v", "'x' is neither"),
    ],
)
def test_mistakes(use, world, line, what):
    with pytest.raises(UsageError, match=what):
        use(line, world("idle", "idle", compare="x"))


def test_dead_ranks_and_other_languages(use, world):
    with pytest.raises(RankLost, match="rank 1 is dead"):
        use("%compare v", world("idle", "killed", compare="x"))
    with pytest.raises(UsageError, match="the ranks speak R"):
        use("%compare v", world("idle", language="R"))


@pytest.mark.parametrize("line", ["%compare ?", "%compare --help"])
def test_help(use, world, line):
    (page,) = use(line, world("idle"))
    assert isinstance(page, Page) and "SHA-256" in page.text
