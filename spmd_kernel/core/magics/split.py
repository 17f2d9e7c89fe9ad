"""Our magics out of a cell, before any of it runs.

Line magics count only before the first other statement; the rest of the cell then runs on the new
ranks, each of its lines where it was, so that tracebacks are right.  A cell magic is the first line
that is not blank (line magics of ours may precede).  Elsewhere a magic of ours is an error that
explains; text in strings, in arguments of other magics and in bodies that are not code is not ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from ..errors import UsageError
from .base import Call
from .lexer import Statement, newlines, plain_lines, statements

# Cell magics whose body is the user's Python code; other bodies (%%bash, %%writefile) are text.
PYTHON_BODIES = frozenset({"time", "timeit", "capture", "prun", "debug", "memit", "mprun"})

_MAGIC = re.compile(
    r"(?P<before>\?{0,2})[ \t]*(?P<percents>%%?)(?P<name>[^\W\d]\w*)(?P<after>\?{0,2})"
    r"(?:\s+(?P<args>.*))?",
    re.DOTALL,
)
_CONTINUATION = re.compile(r"[ \t]*\\(?:\r\n|\r|\n)[ \t]*")
_LINE = re.compile(r"[^\r\n]+")


@dataclass(frozen=True, slots=True)
class Plan:
    """``steps`` first, one after the other, then ``rest`` on every rank (empty: nothing to run).

    ``rest_offset``: how many lines of the cell come before the rest.
    """

    steps: tuple[Call, ...]
    rest: str
    rest_offset: int = 0


@dataclass(frozen=True, slots=True)
class _Use:
    """A magic, ours or not, in a statement."""

    name: str  # with its percent signs
    args: str
    help: bool = False

    @property
    def is_cell(self) -> bool:
        return self.name.startswith("%%") and not self.help

    @property
    def bare(self) -> str:
        return self.name.removeprefix("%").removeprefix("%")


def split(code: str, names: Collection[str], language: str = "python") -> Plan:
    """The plan for one cell; ``names`` as in ``MAGICS`` (``%rank``, ``%%rank``). Raises `UsageError`.

    A cell without a magic of ours comes back as it is.
    """
    bare = frozenset(name.lstrip("%") for name in names)
    if not any("%" + name in code for name in bare):
        return Plan((), code)
    return _Splitter(frozenset(names), bare, language == "python").plan(code)


def what_runs(code: str, names: Collection[str], language: str = "python") -> str:
    """The text that ranks get of a cell: with as many lines, but without magics of ours."""
    try:
        plan = split(code, names, language)
    except UsageError:
        return code
    body = plan.steps[-1].body if plan.steps else ""
    return plan.rest or body or code


@dataclass(frozen=True, slots=True)
class _Splitter:
    names: frozenset[str]
    bare: frozenset[str]  # without percent signs
    python: bool

    def plan(self, code: str) -> Plan:
        steps: list[Call] = []
        head = 0  # all before it is magics of ours, comments and blank lines
        for statement in statements(code) if self.python else plain_lines(code):
            use = self._use(code, statement)
            if use is None or use.is_cell or statement.magic is not None or not self._is_ours(use):
                return self._plan_from(code, tuple(steps), head, statement)
            steps.append(self._line_call(use))
            head = statement.end
        return Plan(tuple(steps), "" if steps else code)

    def _plan_from(
        self, code: str, steps: tuple[Call, ...], head: int, statement: Statement
    ) -> Plan:
        """The plan from ``statement`` on, the first that is no line magic of ours."""
        use = self._use(code, statement)
        is_first = not code[head : statement.start].strip()
        is_cell = use is not None and use.is_cell and is_first
        if use and is_cell and self._is_ours(use):
            return Plan((*steps, self._cell_call(code, use, statement)), "")
        if self.python:  # elsewhere we cannot tell what is text
            self._refuse_ours(code[statement.start :], statement.line, is_first)
        if not steps:
            return Plan((), code)
        offset = newlines(code, 0, statement.start)
        if is_cell:  # IPython wants its cell magics to come first, blank lines aside
            return Plan(steps, "\n" * offset + code[statement.start :], offset)
        return Plan(steps, self._blanked(code[:head]) + code[head:], offset)

    # ------------------------------------------------------------ reading

    def _use(self, code: str, statement: Statement) -> _Use | None:
        start = statement.start if statement.magic is None else statement.magic
        if not code.startswith(("%", "?"), start):
            return None
        text = _CONTINUATION.sub(" ", code[start : statement.end].rstrip())
        match = _MAGIC.fullmatch(text)
        asks = match is not None and bool(match["before"] or match["after"])
        if match is None or (asks and match["args"]):
            return _Use(text.split()[0], "") if text.startswith("%%") else None
        return _Use(
            match["percents"] + match["name"], "--help" if asks else match["args"] or "", asks
        )

    def _is_ours(self, use: _Use) -> bool:
        return use.bare in self.bare

    def _line_call(self, use: _Use) -> Call:
        """Of a line magic, or of help on either kind."""
        either = (use.name, "%" + use.bare, "%%" + use.bare)
        name = next(name for name in either if name in self.names)
        if name != use.name and not use.help:
            raise UsageError(
                f"{name} is a cell magic", f"write `{name}` and below it the lines it is for"
            )
        return Call(name, use.args)

    def _cell_call(self, code: str, use: _Use, statement: Statement) -> Call:
        if use.name not in self.names:
            raise UsageError(
                f"%{use.bare} is a line magic", f"write `%{use.bare}` with one percent sign"
            )
        body = code[statement.end :]
        if self.python:
            line = statement.line + newlines(code, statement.start, statement.end)
            self._refuse_ours(body, line, is_first=True, outer=use.name)
        return Call(use.name, use.args, self._body(code[: statement.end], body))

    def _body(self, above: str, body: str) -> str:
        """What is above keeps its lines, so that those of the body count as in the cell."""
        if not body.strip():
            return ""
        if body.lstrip().startswith("%%"):  # as other cell magics must come first
            return "\n" * newlines(above, 0, len(above)) + body
        return self._blanked(above) + body

    def _blanked(self, above: str) -> str:
        """As many lines, with nothing to run in them."""
        if not self.python:
            return "\n" * newlines(above, 0, len(above))
        return _LINE.sub(_as_comment, above)

    # ------------------------------------------------------------ refusing

    def _refuse_ours(self, code: str, line: int, is_first: bool, outer: str = "") -> None:
        """No magic of ours may begin a statement of ``code``, which starts on ``line``.

        ``is_first``: a cell magic may come first in it; ``outer``: the one whose body it is.
        """
        head = 0
        for statement in statements(code):
            use = self._use(code, statement)
            is_first = is_first and not code[head : statement.start].strip()
            where = line + statement.line - 1
            if use and self._is_ours(use):
                if use.is_cell and is_first and outer in self.names - {use.name}:
                    raise _two(use, where, outer)
                raise _misplaced(use, where, statement, outer, swap=is_first)
            if use and use.is_cell and is_first:
                if use.bare not in PYTHON_BODIES:
                    return
                outer = use.name  # its body is code like that around it
            else:
                is_first = False
            head = statement.end


def _two(use: _Use, line: int, outer: str) -> UsageError:
    return UsageError(
        f"{use.name} on line {line} is inside {outer}: one cell has one cell magic of this kernel",
        "`%%timeout SECONDS --on SPEC` limits the time of some ranks",
    )


def _misplaced(use: _Use, line: int, statement: Statement, outer: str, swap: bool) -> UsageError:
    what = f"{use.name} on line {line}"
    if statement.magic is not None:
        return UsageError(f"{what} has no value to assign", "write it on a line of its own")
    if use.is_cell and outer and swap:
        if use.name == outer:
            return UsageError(f"{what} is inside another {outer}", "use one of them")
        return UsageError(
            f"{what} is inside {outer}", f"swap them: `{use.name}` first, `{outer}` below it"
        )
    if use.is_cell:
        return UsageError(
            f"{what} must be the first line of the cell", "move it up, or into a cell of its own"
        )
    if outer:
        return UsageError(f"{what} is inside {outer}", _HINT)
    return UsageError(f"{what} comes after other code", _HINT)


_HINT = "it counts only before the first other statement: move it up, or into a cell of its own"


def _as_comment(match: re.Match[str]) -> str:
    line = match[0]
    text = line.lstrip()
    if not text or text.startswith("#"):
        return line
    return f"{line[: len(line) - len(text)]}# {text}"
