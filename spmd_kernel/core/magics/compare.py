"""``%compare EXPR``: one value of each rank, and where they differ.

The ranks do the work (``spmd_kernel/rank/compare.py``); a step of theirs is one silent request, and
only digests come back.  Which ranks take part in a step is decided here, so that no rank ever waits
for another one.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from ..content import Content, execute_content, loads
from ..errors import BadMessage, SpmdError, UsageError
from ..model import Rank
from . import rank
from .arguments import first_word
from .base import Ask, Call, Context, Magic, Say, Steps
from .comparison import LEAVES, Answers, Comparison, Raised

END_SECONDS = 2.0  # ranks that were interrupted may be slow to tidy up
KEY = "_spmd_kernel_compare"  # as in the script

_HELP = f"""\
%compare [--on SPEC] EXPR

Evaluate a Python expression on every rank and compare the values. If they are equal, one line says
what they are; else a table shows the leaves that differ (the first {LEAVES}), which ranks agree, and how
far they are from rank 0 (the lowest rank that has a value): max |difference|, where, and how many
elements differ. EXPR goes to the end of the line; it is evaluated once, and kept nowhere.

What is compared, leaf by leaf:
  arrays, tensors     shape, dtype and the SHA-256 of the elements (numpy, torch, jax). NaN is
                      equal to the same NaN; devices are not compared
  modules, optimizers parameters and buffers by name; state_dict()
  containers          dict, list, tuple, dataclass, pytrees, data frames by column: item by item
  sharded values      (DTensor, jax arrays over processes) each rank's own part, and it says so
  sets                whatever the order
  anything else       its repr without addresses; then it says `compared by repr`

Differences are taken without a collective: rank 0 writes the leaves in question into a private
folder of this machine's temporary directory, the other ranks read them, and it is removed.

  --on SPEC           only these ranks (0; 0,2-3; -1)

Examples:
  %compare model
  %compare loss.item()
  %compare --on 0,2 {{name: p.grad for name, p in model.named_parameters()}}
"""

_HINT = "write `%compare model`: a Python expression, to the end of the line"


def _compare(call: Call, context: Context) -> Steps:
    if not context.settings.compare:
        raise UsageError(f"%compare is for Python; the ranks speak {context.settings.language}")
    spec, expression = _split(call.args.strip())
    ranks = yield from rank.chosen((spec,), context)
    if not expression:
        raise UsageError("%compare needs an expression", _HINT)
    folder: list[str] = []
    try:
        text = yield from _compared(ranks, expression, context, folder)
    except SpmdError:
        yield _ask(ranks, context, ("end", *(folder or [""])), seconds=END_SECONDS)
        raise
    yield _ask(ranks, context, ("end", *(folder or [""])))
    yield Say(text)


def _split(args: str) -> tuple[str, str]:
    """The ranks and the expression, which is left as it is."""
    if args.startswith("--on="):
        spec, _, expression = args[5:].partition(" ")
        return spec, expression.strip()
    if args.startswith("--on "):
        _, rest = first_word(args)
        spec, _, expression = rest.partition(" ")
        return spec, expression.strip()
    return "all", args


def _compared(
    ranks: tuple[Rank, ...], expression: str, context: Context, folder: list[str]
) -> Generator[Ask, Any, str]:
    """The text to show. Raises `UsageError` if no rank has a value."""
    begun = yield from _step(ranks, context, "begin", expression)
    comparison = Comparison(len(context.world), begun)
    if not comparison.values:
        raise UsageError(f"{expression} {comparison.why_none()}", _HINT)
    base, others = comparison.base, comparison.unlike_base()
    if others:
        comparison.published((yield from _step((base,), context, "publish")))
    if place := comparison.folder:
        folder.append(place)
        comparison.differ((yield from _step(others, context, "against", place, LEAVES)))
    if paths := comparison.measurable():
        comparison.given((yield from _step((base,), context, "give", place, paths)))
        comparison.measured((yield from _step(others, context, "measure", place, paths)))
    return comparison.text()


# ---------------------------------------------------------------- one step of the script


def _step(
    ranks: tuple[Rank, ...], context: Context, *arguments: Any
) -> Generator[Ask, Mapping[Rank, Content | None], Answers]:
    answers = yield _ask(ranks, context, arguments)
    return {rank: _read(answers.get(rank)) for rank in ranks}


def _ask(
    ranks: tuple[Rank, ...],
    context: Context,
    arguments: Sequence[Any],
    seconds: float | None = None,
) -> Ask:
    expressions = {"compare": _expression(context.settings.compare, arguments)}
    content = execute_content("", silent=True, user_expressions=expressions)
    return Ask(ranks, "execute_request", content, seconds=seconds)


def _expression(path: str, arguments: Sequence[Any]) -> str:
    """It uses no name that the user may have given another meaning."""
    builtins, module = "__import__('builtins')", f"__import__('sys').modules['{KEY}']"
    given = ", ".join(map(repr, arguments))
    if arguments[0] == "end":
        module = f"__import__('sys').modules.get('{KEY}')"
        return f"(lambda m: m and m.answer({given}))({module})"
    if arguments[0] != "begin":
        return f"{module}.answer({given})"
    source = f"__import__('pathlib').Path({path!r}).read_bytes()"
    code = f"{builtins}.compile({source}, {path!r}, 'exec')"
    loaded = f"{builtins}.exec({code}, {{'__name__': 'compare', '__file__': {path!r}}})"
    return f"({loaded}, {module}.answer({given}, {builtins}.globals()))[1]"


def _read(reply: Content | None) -> Content | Raised:
    if reply is None:
        return Raised("died, or did not answer")
    try:
        return _content(reply)
    except (BadMessage, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Raised(f"answered nonsense: {error}")


def _content(reply: Content) -> Content | Raised:
    result = reply.expression("compare")
    for found in (reply, result):
        if found.text("status") != "ok":
            name = found.text("ename") or found.text("status") or "no result"
            return Raised(f"raised {name}: {found.text('evalue')}".rstrip(": "))
    text = ast.literal_eval(result.plain())
    value = loads(text.encode()) if isinstance(text, str) else None
    if not isinstance(value, dict):
        raise BadMessage("no JSON object")
    return Raised(f"raised {value['error']}") if "error" in value else Content(value)


MAGICS = (
    Magic(
        "compare",
        "line",
        "whether a value is the same on every rank, and where not",
        _HELP,
        _compare,
        words=("--on",),
    ),
)
