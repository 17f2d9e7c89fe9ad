"""The line of a magic: words quoted as in a shell, ``{expr}`` and ``$name`` from rank 0, options.

Single quotes keep everything, double quotes keep spaces, ``$$``, ``{{`` and ``}}`` are a literal
sign, ``#`` at the start of a word begins a comment.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ..content import Content, execute_content
from ..errors import BadMessage, RankLost, UsageError
from .base import Ask, Context, Magic, Option
from .lexer import end_of


@dataclass(frozen=True, slots=True)
class Expression:
    """Python to evaluate on rank 0; ``shown`` is how the user wrote it."""

    source: str
    shown: str


Word = tuple[str | Expression, ...]

_BLANKS = re.compile(r"\s*")
_PIECE = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<double>\{\{|\}\}|\$\$)
    | '(?P<single>[^']*)'
    | \\(?P<escaped>.)
    | (?P<quote>")
    | \$(?P<name>[^\W\d]\w*)
    | (?P<brace>\{)
    | (?P<unclosed>')
    | (?P<text>[^\s'"\\${}]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _Scanner:
    """Word by word through ``text``."""

    text: str
    position: int = 0

    def word(self) -> Word | None:
        """The next word; ``None`` at the end or at a comment. Raises `UsageError`."""
        self.position = end_of(_BLANKS, self.text, self.position)
        if self.position == len(self.text) or self.text[self.position] == "#":
            return None
        pieces: list[str | Expression] = []
        quoted = False
        while match := _PIECE.match(self.text, self.position):
            if match["space"] and not quoted:
                break
            self.position = match.end()
            if match["quote"]:
                quoted = not quoted
            elif match["unclosed"] and not quoted:
                raise _unclosed("'")
            else:
                pieces += self._pieces(match, quoted)
        if quoted:
            raise _unclosed('"')
        return tuple(pieces)

    def _pieces(self, match: re.Match[str], quoted: bool) -> list[str | Expression]:
        if match["brace"]:
            return [self._braced(match.start())]
        if name := match["name"]:
            return [Expression(name, match[0])]
        if match["double"]:
            return [match[0][0]]
        if match["single"] is not None and quoted:  # in double quotes the others are text
            self.position = match.start() + 1
            return ["'"]
        for group in ("single", "escaped"):
            if match[group] is not None:
                return [match[group]]
        return [match[0]]

    def _braced(self, start: int) -> Expression:
        """``{expr}``: up to the first brace that makes it an expression, as it may hold braces."""
        end = start
        while (end := self.text.find("}", end + 1)) > 0:
            source = self.text[start + 1 : end]
            if _is_expression(source):
                self.position = end + 1
                return Expression(source.strip(), self.text[start : end + 1])
        raise UsageError(
            f"{self.text[start:].split()[0]} is not {{expression}}",
            "a brace as such is written {{ or stands in 'single quotes'",
        )


def _unclosed(quote: str) -> UsageError:
    return UsageError(f"a quotation mark {quote} is not closed", f"close it, or write \\{quote}")


def _is_expression(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(f"({source})", mode="eval")
        return bool(source.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def words(text: str) -> list[Word]:
    """The words of a line, without its comment. Raises `UsageError`."""
    scanner = _Scanner(text)
    return list(iter(scanner.word, None))


def first_word(text: str) -> tuple[Word | None, str]:
    """The first word and the raw text after it. Raises `UsageError`."""
    scanner = _Scanner(text)
    return scanner.word(), scanner.text[scanner.position :].strip()


# ---------------------------------------------------------------- expressions on rank 0


def expand(words: Sequence[Word], context: Context) -> Generator[Ask, Any, list[str]]:
    """The words with their expressions' values; asks rank 0 only if there is one.

    Raises `UsageError` if an expression fails there, `RankLost` if rank 0 cannot be asked.
    """
    wanted = {piece.source: piece for word in words for piece in word if type(piece) is Expression}
    values: dict[str, str] = {}
    if wanted:
        _require_rank_0(next(iter(wanted.values())), context)
        answers = yield Ask((0,), "execute_request", _request(list(wanted)))
        values = _answered(answers.get(0), list(wanted.values()))
    return ["".join(p if isinstance(p, str) else values[p.source] for p in word) for word in words]


def _require_rank_0(expression: Expression, context: Context) -> None:
    if context.settings.language != "python":
        raise UsageError(
            f"{expression.shown} cannot be evaluated: the ranks speak {context.settings.language}",
            "write the value itself",
        )
    states = {view.rank: view.state for view in context.world}
    if (state := states.get(0, "dead")) != "idle":
        raise RankLost(f"{expression.shown} needs rank 0, which is {state}", _WRITE_VALUE)


def _request(sources: list[str]) -> dict[str, Any]:
    """``format`` makes any value text."""
    expressions = {str(i): f"'{{}}'.format((\n{source}\n))" for i, source in enumerate(sources)}
    return execute_content("", silent=True, user_expressions=expressions)


def _answered(reply: Content | None, expressions: list[Expression]) -> dict[str, str]:
    if reply is None:
        raise RankLost(f"rank 0 did not answer when asked for {expressions[0].shown}", _WRITE_VALUE)
    try:
        return _values(reply, expressions)
    except BadMessage as error:
        what = f"{expressions[0].shown}: rank 0 answered nonsense: {error}"
        raise UsageError(what, _WRITE_VALUE) from None


def _values(reply: Content, expressions: list[Expression]) -> dict[str, str]:
    if reply.text("status") != "ok":
        raise UsageError(f"{expressions[0].shown} failed on rank 0: {_error(reply)}", _HINT)
    return {
        expression.source: _value(reply.expression(str(i)), expression)
        for i, expression in enumerate(expressions)
    }


def _value(result: Content, expression: Expression) -> str:
    if result.text("status") != "ok":
        raise UsageError(f"{expression.shown} failed on rank 0: {_error(result)}", _HINT)
    try:
        value = ast.literal_eval(result.plain())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        value = None
    if not isinstance(value, str):
        raise UsageError(f"{expression.shown} has no readable value on rank 0", _WRITE_VALUE)
    return value


def _error(reply: Content) -> str:
    name, value = reply.text("ename") or reply.text("status") or "no result", reply.text("evalue")
    return f"{name}: {value}" if value else name


_WRITE_VALUE = "write the value itself"
_HINT = "{expr} and $name are Python on rank 0; a sign as such is written {{, $$, or in '…'"

# ---------------------------------------------------------------- options


@dataclass(slots=True)
class Arguments:
    """``values`` has the values of each option given; those of a flag are empty strings."""

    positional: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)

    def last(self, option: str) -> str | None:
        return self.values[option][-1] if option in self.values else None


def parse(words: Sequence[str], magic: Magic) -> Arguments:
    """Options of ``magic`` from positional arguments. Raises `UsageError`, with a near name."""
    known = {option.name: option for option in magic.options}
    arguments, left = Arguments(), iter(words)
    for word in left:
        if not word.startswith("--"):
            arguments.positional.append(word)
            continue
        name, equals, value = word.partition("=")
        if name not in known:
            raise UsageError(
                f"{magic.token} has no option {name}",
                did_you_mean(name, known, f"options are {', '.join(known)}"),
            )
        value = _option_value(known[name], value if equals else None, left)
        arguments.values.setdefault(name, []).append(value)
    return arguments


def _option_value(option: Option, value: str | None, left: Iterator[str]) -> str:
    if not option.metavar:
        if value is not None:
            raise UsageError(f"{option.name} takes no value", f"write {option.name} alone")
        return ""
    if value is None:
        value = next(left, "--")
        if value.startswith("--"):  # the next option, or nothing
            raise UsageError(
                f"{option.name} needs a value", f"write {option.name} {option.metavar}"
            )
    if option.values and value not in option.values:
        raise UsageError(
            f"{option.name} is {' or '.join(option.values)}, not {value!r}",
            did_you_mean(value, option.values, f"write {option.name} {option.metavar}"),
        )
    return value


def did_you_mean(word: str, known: Collection[str], otherwise: str) -> str:
    near = get_close_matches(word, known, 1)
    return f"did you mean {near[0]}?" if near else otherwise
