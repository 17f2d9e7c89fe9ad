"""Where statements begin; Python's own tokenizer says."""

from __future__ import annotations

import io
import sysconfig
import tokenize
from pathlib import Path

import pytest

from spmd_kernel.core.magics.lexer import plain_lines, statements

SKIPPED = {
    tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER, tokenize.ENCODING,
}  # fmt: skip
LIBRARY = Path(sysconfig.get_path("stdlib"))
MODULES = [
    "_pydecimal.py", "argparse.py", "ast.py", "base64.py", "doctest.py", "enum.py", "inspect.py",
    "pydoc.py", "string.py", "textwrap.py", "tokenize.py", "traceback.py", "turtle.py", "typing.py",
]  # fmt: skip


def lines_of_tokenize(code):
    """The first line of each logical line."""
    lines, fresh = [], True
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type not in SKIPPED and fresh:
            lines.append(token.start[0])
            fresh = False
        elif token.type == tokenize.NEWLINE:
            fresh = True
    return lines


@pytest.mark.parametrize("name", MODULES)
def test_as_tokenize_reads_the_standard_library(name):
    code = (LIBRARY / name).read_text(encoding="utf-8")
    expected = lines_of_tokenize(code)
    assert len(expected) > 20
    assert [statement.line for statement in statements(code)] == expected


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("a\nb", [1, 2]),
        ("f'{d['(']}'\nb", [1, 2]),  # PEP 701, which Python 3.11 does not know
        ("f'{'\\n'.join(x)}'\nb", [1, 2]),
        ("f'{\nx\n}'\nb", [1, 4]),
        ("f'{x # it's (\n}'\nb", [1, 3]),
        ("f'{f'{f'{1}'}'}'\nb", [1, 2]),
        ("f'{x:'>10}'\nb", [1, 2]),
        ("f'{x!r:{w}.{p}}' '('\nb", [1, 2]),
        ("t'{x[':']}' '('\nb", [1, 2]),
        ("f'{(lambda: 1)()}'\nb", [1, 2]),
        ("f'\\N{LEFT PARENTHESIS}'\nb", [1, 2]),
        ("f'{{('\nb", [1, 2]),
        ("f'\\{x}'\nb", [1, 2]),
        ("f'}'\nb", [1, 2]),
        ("f'''{x\n}\n'''\nb", [1, 4]),
        ("'open\nb", [1, 2]),
        ("f'open\nb", [1, 2]),
        ("'a\\\nb'\nc", [1, 3]),
        ("'''open\nb", [1]),
        ("(\nb", [1]),
        ("a)\nb", [1, 2]),
        ("a\r\nb\rc", [1, 2, 3]),
        ("!it's (\nb", [1, 2]),
        ("!a \\\n it's\nb", [1, 3]),
        ("x = !it's (\nb", [1, 2]),
        ("x = %it's (\nb", [1, 2]),
        ("x = y = !'(\nb", [1, 2]),
        ("x == (\nb)\nc", [1, 3]),
        ("  # c\n\n\f\n  a # c\n# c", [4]),
    ],
)
def test_statements(code, lines):
    assert [statement.line for statement in statements(code)] == lines


@pytest.mark.parametrize(
    "unit", ["(", "f'{", "'", "\\\n", "a\n", "'''", "# \n", "f'''{f\"{", "}", "="]
)
def test_long_cells_are_read_in_one_go(unit):
    """Neither recursion nor backtracking: a quadratic lexer would not end within the time limit."""
    code = unit * 100_000
    ends = [statement.end for statement in statements(code)]
    assert ends == sorted(ends)
    assert ends == [] or ends[-1] <= len(code)


def test_plain_lines():
    found = [(s.line, s.start) for s in plain_lines("\n  a \\\n b\n# c\n// c\n c")]
    assert found == [(2, 3), (6, 20)]
