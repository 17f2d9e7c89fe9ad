"""Which cells are parameters."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.literals import is_literal_assignments


@pytest.mark.parametrize(
    "code",
    [
        "a = 1",
        "# Parameters\nepochs = 3\nprocesses = 4\n",
        "a = 1; b = 'x'",
        "a = b = None",
        "a, b = 1, 2",
        "b: int = 2",
        "b: list[int] | None = None",
        "b: dict[str, 'Anything'] = {}",
        "x = -1.5e3",
        "x = +1 - 2j",
        "t = (1, [2, {3: 'a'}], {4})",
        "s = 'a' 'b'\nb = b'x'\ne = ...",
        "s = '''\n%processes 4\n'''",
        "f = float('nan')\ng = float('-inf')",
        "s = '\\d'",
        "a = (\n  1,\n)",
    ],
)
def test_parameters(code):
    assert is_literal_assignments(code)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "\n# only a comment\n",
        "'''text'''",
        "a",
        "a = b",
        "a = f()",
        "a = f''",
        "a = f'{x}'",
        "a = 1 + 2",
        "a = not True",
        "a = -True",
        "a = -'x'",
        "a = [x for x in ()]",
        "a = [*b]",
        "a = {**b}",
        "a = {'x': f()}",
        "a = lambda: 1",
        "a += 1",
        "a.b = 1",
        "a[0] = 1",
        "a, b.c = 1, 2",
        "a, *b = 1, 2",
        "b: int",
        "b: f() = 1",
        "b: List[int] = []",
        "b: int = x",
        "a.b: int = 1",
        "f = float('1')",
        "f = float(x)",
        "f = g('nan')",
        "import os\na = 1",
        "a = 1\nprint(a)",
        "if True:\n    a = 1",
        "%processes 4\na = 1",
        "a = !ls",
        "a = ",
        "a = '\0'",
        "a = " + "(" * 5000 + ")" * 5000,
        "a = " + "-" * 5000 + "1",
        "a = '" + "x" * 100_000 + "'",
    ],
)
def test_other_cells(code):
    assert not is_literal_assignments(code)


LITERALS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.complex_numbers(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(), inner)
    ),
    max_leaves=10,
)


@given(LITERALS)
def test_every_literal_counts(value):
    source = repr(value)
    try:
        ast.literal_eval(source)
    except ValueError:  # an infinity inside a complex number, say
        return
    assert is_literal_assignments(f"a = {source}\n")


@given(st.text(max_size=60))
def test_never_raises(code):
    is_literal_assignments(code)
