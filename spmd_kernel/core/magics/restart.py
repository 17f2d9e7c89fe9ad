"""``%restart``: some ranks anew, while the others keep their variables."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..errors import RankLost, UsageError
from ..model import Facts, Rank
from . import spec
from .arguments import expand, words
from .base import Ask, Call, Context, Look, Magic, Say, Start, StartReport, Steps
from .processes import require_memory
from .rank import SPEC_HELP, flat
from .survivors import Ties, back, down, line, require_no_jax, serving, ties, took
from .wording import name_ranks

_USAGE = "%restart SPEC|dead|all"

_HELP = f"""\
{_USAGE}

End some ranks, alive or dead, busy or stuck, and start them anew. The others keep their variables;
a rank that is restarted has none. It counts before the first other statement of a cell; the rest
of the cell runs on every rank.

  dead     the ranks that are dead

{SPEC_HELP}

All ranks get a new MASTER_PORT and TORCHELASTIC_RESTART_COUNT in their environment, so that a new
process group meets nothing of the old one. Make it anew on all ranks:

  if dist.is_initialized():
      dist.destroy_process_group()
  dist.init_process_group("gloo")

Where jax.distributed is live nothing but `all` will do: JAX ends the others (SIGABRT) once it
misses one of them, after 100 s by default.

Examples:
  %restart 3
  %restart dead
  %restart all

Another number of ranks: %processes N --keep. Which ranks there are: %ranks.
"""


def _restart(call: Call, context: Context) -> Steps:
    named = yield from _named(call, context)
    if not named:
        yield Say("no rank is dead\n")
        return
    kept = tuple(rank for rank in serving(context) if rank not in named)
    found = yield from ties(kept, context)
    require_no_jax(found, named)
    facts: Facts = yield Look()
    require_memory(len(named), _with_freed(facts, named), named)
    report: StartReport = yield Start(len(context.world), keep=True, anew=named)
    yield Say(line(_told(report, named, kept, found, context)))


def _named(call: Call, context: Context) -> Generator[Ask, Any, tuple[Rank, ...]]:
    if not context.world:
        raise RankLost("no rank runs", "`%processes N` starts N ranks")
    given = yield from expand(words(call.args), context)
    text = flat(" ".join(given))
    if text == "dead":
        return down(context)
    if not text:
        raise UsageError("%restart needs to know which ranks", f"write {_examples(context)}")
    return spec.parse(text, len(context.world))


def _examples(context: Context) -> str:
    return f"`%restart dead`, `%restart all` or `%restart {len(context.world) - 1}`"


def _with_freed(facts: Facts, named: tuple[Rank, ...]) -> int | None:
    if facts.memory_available is None:
        return None
    return facts.memory_available + sum(facts.rss.get(rank, 0) for rank in named)


def _told(
    report: StartReport,
    named: tuple[Rank, ...],
    kept: tuple[Rank, ...],
    found: Ties,
    context: Context,
) -> list[str]:
    parts = back(report, took(report, context.policy, "after"), kept, found)
    if not report.kept:
        parts.insert(1, "nothing was kept")
    others = [rank for rank in down(context) if rank not in (*named, *report.lost)]
    if others:
        verb = "is" if len(others) == 1 else "are"
        parts.append(f"{name_ranks(others)} {verb} still dead (`%restart dead`)")
    return parts


MAGICS = (
    Magic("restart", "line", "some ranks anew, the others keep their variables", _HELP, _restart,
          words=("dead", "all")),
)  # fmt: skip
