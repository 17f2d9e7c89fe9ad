"""Where the statements of a Python cell begin, IPython's own syntax included.

`tokenize` cannot tell: it is made for pure Python, differs between Python versions, and the ranks'
Python need not be ours.  This lexer knows just enough: strings (nested ones in f- and t-strings as
in PEP 701, too), comments, brackets, continued lines, and the lines that IPython takes as text
(``!ls it's``, ``%magic (``, ``x = !ls``).  Whatever it reads, it ends, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

ESCAPES = "%!?,;/"  # at the start of a statement: the line is IPython's, not Python

_EOL = r"(?:\r\n|\r|\n)"
_NEWLINE = re.compile(_EOL)
_BLANK = re.compile(rf"(?:[ \t\f]*+(?:\#[^\r\n]*+|\\)?{_EOL})*+[ \t\f]*+")
_CONTINUED_LINE = re.compile(rf"(?:[^\r\n]*?\\{_EOL})*[^\r\n]*+{_EOL}?")
_CODE = re.compile(
    rf"""
    (?P<prefix>[rRbBuUfFtT]{{0,3}})(?P<quote>\"\"\"|'''|"|')
    | \w++
    | \#[^\r\n]*+
    | \\{_EOL}
    | (?P<newline>{_EOL})
    | (?:\*\*|//|>>|<<|[-+*/%@&|^<>!=])=
    | (?P<assign>=)
    | (?P<open>[(\[{{])
    | (?P<close>[)\]}}])
    | (?P<colon>:)
    """,
    re.VERBOSE,
)
_ASSIGNED_ESCAPE = re.compile(r"[ \t]*(?:!|(?=%[ \t]*[^\W\d]))")
_STRING_REST = {
    '"': re.compile(rf'(?:[^"\\\r\n]++|\\(?:{_EOL}|.))*+"?', re.DOTALL),
    "'": re.compile(rf"(?:[^'\\\r\n]++|\\(?:{_EOL}|.))*+'?", re.DOTALL),
    '"""': re.compile(r'(?:[^"\\]++|\\.|"(?!""))*+(?:""")?', re.DOTALL),
    "'''": re.compile(r"(?:[^'\\]++|\\.|'(?!''))*+(?:''')?", re.DOTALL),
}
_FORMAT_TEXT = {
    quote: re.compile(
        rf"(?P<end>{quote}{'' if len(quote) == 3 else f'|(?={_EOL})'})"
        rf"|\\N\{{[\w -]*\}}|\\(?:{_EOL}|[^{{}}])|\{{\{{|(?P<field>\{{)",
        re.DOTALL,
    )
    for quote in _STRING_REST
}
_FORMAT_SPEC = re.compile(r"(?P<field>\{)|(?P<end>\})")
_FIELD, _SPEC = "field", "spec"  # open on the stack, beside brackets and the quotes of f-strings


@dataclass(frozen=True, slots=True)
class Statement:
    """A logical line: ``start`` is its first character, ``end`` comes after its newline.

    ``line`` counts from 1.  ``magic`` is where the line magic of ``x = %magic`` starts, if it is one.
    """

    start: int
    end: int
    line: int
    magic: int | None = None


def statements(code: str) -> Iterator[Statement]:
    """The logical lines of ``code``; lazily, so that a caller can stop at a cell magic."""
    position, line = 0, 1
    while True:
        start = end_of(_BLANK, code, position)
        if start == len(code) or code[start] == "#":
            return
        line += newlines(code, position, start)
        position, magic = _end(code, start)
        yield Statement(start, position, line, magic)
        line += newlines(code, start, position)


def plain_lines(code: str) -> Iterator[Statement]:
    """The lines of a cell in a language that we cannot read, blank ones and comments left out."""
    position, line = 0, 1
    while position < len(code):
        end = end_of(_CONTINUED_LINE, code, position)
        text = code[position:end]
        start = position + len(text) - len(text.lstrip())
        if text.strip() and not text.lstrip().startswith(("#", "//")):
            yield Statement(start, end, line)
        line += newlines(code, position, end)
        position = end


def newlines(code: str, start: int, end: int) -> int:
    return len(_NEWLINE.findall(code, start, end))


def end_of(pattern: re.Pattern[str], code: str, position: int) -> int:
    match = pattern.match(code, position)
    return position if match is None else match.end()


def _end(code: str, start: int) -> tuple[int, int | None]:
    """Where the logical line from ``start`` ends, and where its assigned magic starts."""
    if code[start] in ESCAPES:
        return end_of(_CONTINUED_LINE, code, start), None
    position, stack, assigned = start, list[str](), False
    while position < len(code):
        if stack and (stack[-1] in _FORMAT_TEXT or stack[-1] == _SPEC):
            position = _format_text(code, position, stack)
            continue
        match = _CODE.search(code, position)
        if match is None:
            break
        position = match.end()
        if match["newline"] and not stack:
            return position, None
        if match["assign"] and not stack and not assigned:
            assigned = True
            if escape := _ASSIGNED_ESCAPE.match(code, position):
                magic = escape.end() if code[escape.end() - 1] != "!" else None
                return end_of(_CONTINUED_LINE, code, position), magic
        position = _nest(code, match, stack)
    return len(code), None


def _nest(code: str, match: re.Match[str], stack: list[str]) -> int:
    """Open or close what ``match`` opens or closes; the position to go on from."""
    top = stack[-1] if stack else ""
    quote, opened, closed = match["quote"], match["open"], match["close"]
    if quote and set(match["prefix"]) & set("fFtT"):
        stack.append(quote)
    elif quote:
        return end_of(_STRING_REST[quote], code, match.end())
    elif opened:
        stack.append(opened)
    elif closed and (top in "([{" or (closed == "}" and top == _FIELD)):
        del stack[-1:]
    elif match["colon"] and top == _FIELD:
        stack[-1] = _SPEC
    return match.end()


def _format_text(code: str, position: int, stack: list[str]) -> int:
    """Go on in the text of an f-string or in a format specification, up to its field or its end."""
    match = _FORMAT_TEXT.get(stack[-1], _FORMAT_SPEC).search(code, position)
    if match is None:
        return len(code)
    if match["end"] is not None:
        stack.pop()
    elif match["field"]:
        stack.append(_FIELD)
    return match.end()
