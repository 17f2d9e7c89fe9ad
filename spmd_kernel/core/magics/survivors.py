"""What binds ranks together and breaks when one of them is replaced: looked for, and said."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from ..content import execute_content, is_true
from ..errors import UsageError
from ..model import Rank
from ..outputs import OutputPolicy
from .base import ANSWER_SECONDS, Ask, Context, StartReport
from .wording import duration, listed, name_ranks

# Nothing is imported: what a rank has not imported it does not use.
_MODULE = "__import__('sys').modules.get({!r})"
_JAX = _MODULE.format("jax._src.distributed")
_TORCH = _MODULE.format("torch.distributed")
PROBES = {
    "jax": f"getattr(getattr({_JAX}, 'global_state', None), 'client', None) is not None",
    "torch": f"getattr({_TORCH}, 'is_initialized', bool)()",
}
JAX_RULE = "JAX ends them (SIGABRT) once it misses a peer, after 100 s by default"


@dataclass(frozen=True, slots=True)
class Ties:
    """Ranks where jax.distributed is live, where a torch process group is, and that did not answer."""

    jax: tuple[Rank, ...] = ()
    torch: tuple[Rank, ...] = ()
    silent: tuple[Rank, ...] = ()
    python: bool = True  # else nobody was asked


def ties(ranks: tuple[Rank, ...], context: Context) -> Generator[Ask, Any, Ties]:
    """Ask live ranks; one that is busy does not answer in time."""
    if not ranks or context.settings.language != "python":
        return Ties(python=context.settings.language == "python")
    content = execute_content("", silent=True, user_expressions=PROBES)
    answers = yield Ask(ranks, "execute_request", content, seconds=ANSWER_SECONDS)
    alive = serving(context)
    return Ties(
        tuple(rank for rank in ranks if is_true(answers[rank], "jax")),
        tuple(rank for rank in ranks if is_true(answers[rank], "torch")),
        tuple(rank for rank in ranks if answers[rank] is None and rank in alive),
    )


def serving(context: Context) -> tuple[Rank, ...]:
    return tuple(view.rank for view in context.world if view.state in ("idle", "busy"))


def down(context: Context) -> tuple[Rank, ...]:
    """Ranks that do not serve cells: dead, or on their way there since a start was broken off."""
    return tuple(view.rank for view in context.world if view.state not in ("idle", "busy"))


def require_no_jax(found: Ties, named: tuple[Rank, ...]) -> None:
    """Raises `UsageError` when ``named`` cannot be replaced without the others."""
    if found.jax:
        raise UsageError(
            f"{name_ranks(named)} cannot be restarted alone: jax.distributed is live in "
            f"{name_ranks(found.jax)}, and {JAX_RULE}",
            "save what you need of their variables, then `%restart all`",
        )


# ---------------------------------------------------------------- saying


def took(report: StartReport, policy: OutputPolicy, after: str) -> str:
    """Not in grouped mode, where the same run gives the same text."""
    return "" if policy.mode == "grouped" else f" {after} {duration(report.seconds)}"


def back(report: StartReport, after: str, staying: Collection[Rank], found: Ties) -> list[str]:
    """Ranks were started in the place of others: what became of whom, the main thing first."""
    came = [rank for rank in report.ranks if rank not in report.lost]
    again = [rank for rank in report.ranks if rank in report.lost]
    parts = [f"{name_ranks(came)} {_are(came)} back{after}"] if came else []
    if again:
        parts.append(f"{name_ranks(again)} died again at once (%ranks)")
    return [*parts, *memory(report, staying), *details(report), *renewed(report, found)]


def memory(report: StartReport, staying: Collection[Rank]) -> list[str]:
    """``staying``: those that were to keep it."""
    parts = []
    if held := report.kept:
        parts.append(f"{name_ranks(held)} kept {'its' if len(held) == 1 else 'their'} memory")
    if gone := sorted(set(staying).difference(held, report.ranks)):
        parts.append(f"{name_ranks(gone)} died meanwhile (`%restart dead`)")
    return parts


def renewed(report: StartReport, found: Ties) -> list[str]:
    """What the live ranks' environments have got, and what is still of the old world."""
    if not report.kept:
        return []
    if not found.python:
        return ["what was kept has the environment of before: only Python can be told"]
    parts = [
        f"MASTER_PORT is new in every rank's environment, TORCHELASTIC_RESTART_COUNT={report.restarts}"
    ]
    if found.torch:
        parts.append(
            f"process groups must be made anew: destroy_process_group() in {name_ranks(found.torch)}, "
            "then init_process_group() in all"
        )
    if silent := sorted({*found.silent, *report.unheard}.intersection(report.kept)):
        parts.append(
            f"{name_ranks(silent)} did not answer within {ANSWER_SECONDS:.0f} s: "
            f"{'it has' if len(silent) == 1 else 'they have'} the new environment once free"
        )
    return parts


def details(report: StartReport) -> list[str]:
    told = (("set", report.set), ("cleared", report.cleared), ("ran again:", report.replayed))
    return [f"{verb} {listed(items)}" for verb, items in told if items]


def line(parts: Sequence[str]) -> str:
    return " · ".join(parts) + "\n"


def _are(ranks: Collection[Rank]) -> str:
    return "is" if len(ranks) == 1 else "are"
