"""Our magics out of a cell; IPython itself says where a magic is one."""

from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.magics import MAGICS
from spmd_kernel.core.magics.base import Call
from spmd_kernel.core.magics.split import PYTHON_BODIES, Plan, split, what_runs

BARE = {magic.name for magic in MAGICS.values()}
FOUR = Call("%processes", "4")


@pytest.mark.parametrize(
    ("code", "steps", "rest", "offset"),
    [
        ("%processes 4", (FOUR,), "", 0),
        ("%processes 4\n", (FOUR,), "", 0),
        ("\n\n  %processes 4  \n", (FOUR,), "", 0),
        ("%processes", (Call("%processes"),), "", 0),
        ("%processes\t4", (FOUR,), "", 0),
        ("%processes 4\r\nx = 1\r\n", (FOUR,), "# %processes 4\r\nx = 1\r\n", 1),
        ("%processes 4\nx = 1\n1/0", (FOUR,), "# %processes 4\nx = 1\n1/0", 1),
        ("# first\n\n%processes 4\n\nx", (FOUR,), "# first\n\n# %processes 4\n\nx", 4),
        ("  %processes 4\n  x", (FOUR,), "  # %processes 4\n  x", 1),
        ("%processes 4 # four\n# end", (Call("%processes", "4 # four"),), "", 0),
        (
            "%processes 4\n# c\n%ranks\n\nx",
            (FOUR, Call("%ranks")),
            "# %processes 4\n# c\n# %ranks\n\nx",
            4,
        ),
        (
            "%processes 4 \\\n   --env A=1\nx",
            (Call("%processes", "4 --env A=1"),),
            "# %processes 4 \\\n   # --env A=1\nx",
            2,
        ),
        ("%rank 0 x = {1: '#'}\ny", (Call("%rank", "0 x = {1: '#'}"),), None, 1),
        ("%processes 4\n!ls it's", (FOUR,), "# %processes 4\n!ls it's", 1),
        ("%processes 4\n%time x", (FOUR,), "# %processes 4\n%time x", 1),
        ("%processes 4\n'''\n%processes 4\n'''", (FOUR,), None, 1),
        # cell magics, ours and others
        ("%%rank 0\nx\n", (Call("%%rank", "0", "# %%rank 0\nx\n"),), "", 0),
        ("\n%%rank 0,2-3\nx", (Call("%%rank", "0,2-3", "\n# %%rank 0,2-3\nx"),), "", 0),
        ("%%rank 0", (Call("%%rank", "0"),), "", 0),
        ("%%rank 0\n\n  \n", (Call("%%rank", "0"),), "", 0),
        ("%%rank 0\n# c", (Call("%%rank", "0", "# %%rank 0\n# c"),), "", 0),
        ("%%rank 0\n%%time\nx", (Call("%%rank", "0", "\n%%time\nx"),), "", 0),
        ("%%rank 0\n%%bash\n%processes 4", (Call("%%rank", "0", "\n%%bash\n%processes 4"),), "", 0),
        (
            "%processes 4\n\n%%rank 0\nx",
            (FOUR, Call("%%rank", "0", "# %processes 4\n\n# %%rank 0\nx")),
            "",
            0,
        ),
        ("%processes 4\n\n%%time\nx", (FOUR,), "\n\n%%time\nx", 2),
        ("%processes 4\n%%bash\n%ranks", (FOUR,), "\n%%bash\n%ranks", 1),
        # help
        ("%processes?", (Call("%processes", "--help"),), "", 0),
        ("%processes??", (Call("%processes", "--help"),), "", 0),
        ("?%processes", (Call("%processes", "--help"),), "", 0),
        ("??%rank", (Call("%rank", "--help"),), "", 0),
        ("%%rank?", (Call("%%rank", "--help"),), "", 0),
        ("?%%rank\nx", (Call("%%rank", "--help"),), "# ?%%rank\nx", 1),
        ("%%processes?", (Call("%processes", "--help"),), "", 0),
        ("%processes --help", (Call("%processes", "--help"),), "", 0),
        ("%processes 4?", (Call("%processes", "4?"),), "", 0),
    ],
)
def test_plan(code, steps, rest, offset):
    plan = split(code, MAGICS)
    assert plan.steps == steps
    assert plan.rest_offset == offset
    if rest is not None:
        assert plan.rest == rest


@pytest.mark.parametrize(
    "code",
    [
        "",
        "x = 1",
        "# %processes 4",
        "'%processes 4'",
        "'''\n%processes 4\n'''",
        'r"""\\"""\n%processes 4',
        'f"""{x!r:>{w}}\n%processes 4\n{{"""',
        'f"{d["("]}" """\n%processes 4"""',
        "f'{x:'\n'''\n%processes 4'''"[5:],
        "x = (5\n%processes\n)",
        "x = 5 \\\n%processes",
        "x = {'a': [1,\n%processes 4\n]}",
        "x %processes",
        "x; %processes 4",
        "if x: %processes 4",
        "% processes 4",
        "%processes4",
        "%processes.x",
        "%process 4",
        "%time %processes 4",
        "!%processes 4",
        "?%processes 4",
        "x = '%processes'?",
        "%%bash\n%processes 4",
        "%%writefile cell.py\n%%rank 0\n%processes 4",
        "%%time\n%%bash\n%processes 4",
        "%%html\n<p>it's (\n%processes 4",
        "!echo \\\n%processes 4",
        "%%time\nx = '''\n%processes 4'''",
        "%%ranked 0\nx",
    ],
)
def test_what_is_not_ours_is_untouched(code):
    assert split(code, MAGICS) == Plan((), code)


@pytest.mark.parametrize(
    ("code", "what", "hint"),
    [
        ("x = 1\n%processes 4", "%processes on line 2 comes after other code", "move it up"),
        ("x\n%processes?", "%processes on line 2 comes after other code", "move it up"),
        ("'''doc'''\n%processes 4", "line 2 comes after", "move it up"),
        ("%time x\n%processes 4", "line 2 comes after", "first other statement"),
        ("!echo it's (\n%processes 4", "line 2 comes after", "move it up"),
        ("x = !echo it's (\n%processes 4", "line 2 comes after", "move it up"),
        ("x = %time f('\n%processes 4", "line 2 comes after", "move it up"),
        ("x = 'it\n%processes 4", "line 2 comes after", "move it up"),
        ("x = f'it{{\n%processes 4", "line 2 comes after", "move it up"),
        ("%processes 4\nx\n\n%ranks", "%ranks on line 4 comes after", "move it up"),
        ("if x:\n    %processes 4", "line 2 comes after other code", "move it up"),
        ("x = %ranks", "%ranks on line 1 has no value to assign", "line of its own"),
        ("y = 1\nx = % rank 0 y", "", ""),
        ("%%time\n%processes 4", "%processes on line 2 is inside %%time", "move it up"),
        ("%%time\nx\n%ranks", "%ranks on line 3 is inside %%time", "move it up"),
        ("%%rank 0\n%processes 4", "%processes on line 2 is inside %%rank", "move it up"),
        ("%%rank 0\n%%time\n%ranks", "%ranks on line 3 is inside %%time", "move it up"),
        (
            "%%time\n%%rank 0\nx",
            "%%rank on line 2 is inside %%time",
            "swap them: `%%rank` first, `%%time` below it",
        ),
        ("\n%%capture out\n\n%%rank 0\nx", "%%rank on line 4 is inside %%capture", "swap them"),
        ("%%timeout 5\n%%rank 0\nx", "%%rank on line 2 is inside %%timeout: one cell", "--on SPEC"),
        ("%%rank 0\n%%timeout 5\nx", "%%timeout on line 2 is inside %%rank: one cell", "--on SPEC"),
        ("%%time\n%%capture\n%%rank 0", "%%rank on line 3 is inside %%capture", "swap them"),
        ("%%rank 0\n%%rank 1\nx", "%%rank on line 2 is inside another %%rank", "one of them"),
        ("%%rank 0\n%%time\n%%rank 1", "line 3 is inside %%time", "swap"),
        ("x\n%%rank 0\ny", "%%rank on line 2 must be the first line of the cell", "move it up"),
        ("# c\n%%rank 0\ny", "%%rank on line 2 must be the first line of the cell", "move it up"),
        ("%processes 4\n# c\n%%rank 0", "%%rank on line 3 must be the first", "move it up"),
        ("%%rank 0\nx\n%%rank 1", "%%rank on line 3 must be the first", "own"),
        ("%%processes 4\nx", "%processes is a line magic", "one percent sign"),
        ("%processes 4 \\\n--fresh\nx\n%ranks", "%ranks on line 4", "move it up"),
        ("%%rank 0 \\\n\nx\n%ranks", "%ranks on line 4 is inside %%rank", "move it up"),
    ],
)
def test_elsewhere_an_error_explains(code, what, hint):
    if not what:
        assert split(code, MAGICS) == Plan((), code)
        return
    with pytest.raises(UsageError) as raised:
        split(code, MAGICS)
    assert what in str(raised.value)
    assert hint in raised.value.hint


def test_a_cell_magic_written_as_a_line():
    with pytest.raises(UsageError, match="%%only is a cell magic"):
        split("%only 3", ["%%only"])


@pytest.mark.parametrize(
    ("code", "steps", "rest"),
    [
        ("%processes 4\nx <- 1", (FOUR,), "\nx <- 1"),
        ("# c\n// c\n%processes 4\n\nx", (FOUR,), "\n\n\n\nx"),
        ("%%rank 0\nx <- 1", (Call("%%rank", "0", "\nx <- 1"),), ""),
        ("%processes?", (Call("%processes", "--help"),), ""),
        ("x <- '\n%processes 4'", (), "x <- '\n%processes 4'"),
        ("x\n%processes 4", (), "x\n%processes 4"),
        ("%%time\n%%rank 0", (), "%%time\n%%rank 0"),
    ],
)
def test_other_languages_are_read_line_by_line(code, steps, rest):
    plan = split(code, MAGICS, "R")
    assert (plan.steps, plan.rest) == (steps, rest)


# ---------------------------------------------------------------- against IPython itself

PIECES = [
    "x = 1", "%processes 4", "%processes 4 \\", "  %processes 4", "    %ranks", "%rank 0 x", "%ranks?",
    "?%processes", "%%rank 0", "%%time", "%%bash", "  %%time", "x = %ranks", "x = % ranks", "x = !ls it's (",
    "x =%time f('", "a = b = !ls", "!echo it's [", "%time f('", "%%timeit it's", ", f it's", "?x", "x?", "; f a",
    '"""', "'''", 'f"""', "rb'''", '"', "'", "(", ")", "[", "]", "{", "}", ":", "\\", "'\\", "# it's (", "#\"\"\"",
    "if x:", "    pass", "def f(a=1,", "  b=2):", "x \\", "f'{x}'", "f\"{d['(']}\"", "f'{x:%}'", "rf'\\{x}'",
    "f'{{'", "f'{x!r:>{w}}'", "f'''{", "}'''", "'\\''", "r'\\'", "f'\\N{DASH}'", "x: int = 3", "x[%processes", "x != y",
    "x %processes", "x = 5 %\\", "f(a=!b)", "%", "%%", "!", "", "  ", "\t", "\f", "é = 'ü'", "x;%processes 4",
]  # fmt: skip


def cells(pieces):
    lines = st.lists(st.sampled_from(pieces), max_size=9).map("\n".join)
    joined = st.lists(st.sampled_from([*pieces, "\n", "\n", "\n", " "]), max_size=14).map("".join)
    return lines | joined


CELLS = cells(PIECES)


def plan_or_error(code, language="python"):
    try:
        return split(code, MAGICS, language)
    except UsageError as error:
        return error


def magics_seen_by_ipython(code):
    """Names of our magics that IPython would run in this cell; None: it cannot read the cell."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(TransformerManager().transform_cell(code))
    except (SyntaxError, ValueError, IndexError):
        return None
    seen = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name(id="get_ipython")), attr=attr),
                args=[ast.Constant(value=str(name)), *more],
            ):
                seen += _named(attr, name, more)
    return seen


def _named(attr, name, more):
    if attr == "run_cell_magic" and name in PYTHON_BODIES:
        body = magics_seen_by_ipython(more[1].value)
        assume(body is not None)
        return body
    if attr == "run_line_magic":  # "%rank": `%%rank` that is not the first line
        name = name.removeprefix("%")
    return [name] if name in BARE else []


@settings(max_examples=300, deadline=None)
@example("f'{x:%}'\n%processes 4")
@given(cells([piece for piece in PIECES if not {"?", "\t", "\f"} & set(piece)]))
def test_ours_exactly_where_ipython_sees_a_magic(code):
    """But for odd blanks around names, and its help on the likes of `x = [%ranks?`."""
    seen = magics_seen_by_ipython(code)
    assume(seen is not None)
    plan = plan_or_error(code)
    if seen:
        assert isinstance(plan, UsageError) or plan.steps
    else:
        assert plan == Plan((), code)


@settings(deadline=None)
@given(CELLS, st.sampled_from(["python", "R"]))
def test_lines_stay_where_they_are(code, language):
    plan = plan_or_error(code, language)
    assume(isinstance(plan, Plan))
    for text in (plan.rest, *(call.body for call in plan.steps)):
        if text:
            assert text.count("\n") == code.count("\n")
            assert text.rstrip().endswith(code.rpartition("\n")[2].strip())
    if plan.steps and plan.rest:
        kept = code.split("\n")[plan.rest_offset :]
        assert [line.strip() for line in plan.rest.split("\n")[plan.rest_offset :]] == [
            line.strip() for line in kept
        ]


@settings(deadline=None)
@given(CELLS)
def test_rest_holds_no_magic_of_ours(code):
    """What runs on the ranks never asks them for a magic that they do not have."""
    plan = plan_or_error(code)
    if isinstance(plan, Plan) and plan.steps:
        assert not magics_seen_by_ipython(plan.rest)


@given(st.text(max_size=80))
def test_any_text_is_split_or_refused(code):
    for language in ("python", "R"):
        for cell in (code, "%processes 4\n" + code, "%%rank 0\n" + code):
            plan = plan_or_error(cell, language)
            assert isinstance(plan, Plan) or plan.hint


@given(st.text(max_size=60).filter(lambda text: not set("\"'\\\0\r{}") & set(text)))
def test_strings_are_untouched(text):
    for quote in ('"""', "'''"):
        for prefix in ("", "r", "f", "Rb"):
            code = f"x = {prefix}{quote}{text}\n%processes 4\n{quote}\n"
            assert split(code, MAGICS) == Plan((), code)


@pytest.mark.parametrize(
    ("code", "ran"),
    [
        ("x = 1", "x = 1"),
        ("%time x", "%time x"),
        ("%%rank 0\nx", "# %%rank 0\nx"),
        ("%processes 2\n\n%%timeout 5\nx", "# %processes 2\n\n# %%timeout 5\nx"),
        ("%processes 2\nx", "# %processes 2\nx"),
        ("%processes 2", "%processes 2"),  # nothing
        ("x\n%processes 2", "x\n%processes 2"),  # an error
    ],
)
def test_the_text_that_ranks_get(code: str, ran: str) -> None:
    assert what_runs(code, MAGICS) == ran
