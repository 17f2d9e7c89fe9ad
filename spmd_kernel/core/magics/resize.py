"""``%processes N --keep``: another number of ranks; those that stay keep memory and number."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from ..errors import UsageError
from ..outputs import OutputPolicy
from .base import ANSWER_SECONDS, Ask, Context, Start, StartReport
from .survivors import JAX_RULE, Ties, details, memory, renewed, serving, ties, took
from .wording import count, name_ranks, spec_of


def resize(
    size: int, env: Mapping[str, str], context: Context, policy: OutputPolicy, devices: str
) -> Generator[Ask | Start, Any, list[str]]:
    """Start and stop what is missing and too many; what to say about it, the main thing first."""
    staying = tuple(rank for rank in serving(context) if rank < size)
    old = len(context.world)
    found = yield from ties(serving(context), context)
    _require_quiet(found, size)
    report: StartReport = yield Start(size, env, keep=True)
    parts = [f"{count(size, 'rank')} ready{took(report, policy, 'in')} on {devices}"]
    parts += _who_is_new(report, old)
    parts += [*memory(report, staying), *details(report)]
    if report.kept:
        parts += [*_threads(old, size, context), *_stale(old), *renewed(report, found)]
    return parts


def _require_quiet(found: Ties, size: int) -> None:
    """Raises `UsageError` where a change of the world would not be noticed, or be fatal."""
    if found.jax:
        raise UsageError(
            f"--keep: jax.distributed is live in {name_ranks(found.jax)}; its world cannot change, "
            f"and {JAX_RULE}",
            f"`jax.distributed.shutdown()` on all ranks first, or `%processes {size} --fresh`",
        )
    if found.silent:
        verb = "is" if len(found.silent) == 1 else "are"
        raise UsageError(
            f"--keep: {name_ranks(found.silent)} {verb} busy: "
            f"no answer within {ANSWER_SECONDS:.0f} s",
            f"press Stop and try again, or `%restart {spec_of(found.silent)}`",
        )


def _who_is_new(report: StartReport, old: int) -> list[str]:
    added = [rank for rank in report.ranks if rank >= old]
    revived = [rank for rank in report.ranks if rank < old]
    told = ((added, "new"), (revived, "back"), (report.stopped, "stopped"))
    return [
        f"{name_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} {what}"
        for ranks, what in told
        if ranks
    ]


def _threads(old: int, size: int, context: Context) -> list[str]:
    """OMP_NUM_THREADS has another default in a world of one; libraries read it once."""
    inherited = "OMP_NUM_THREADS" in context.settings.environ
    if inherited or (old == 1) == (size == 1):
        return []
    return ["what rank 0 has imported keeps its number of threads"]


def _stale(old: int) -> list[str]:
    return [f"what was copied from the environment before (WORLD_SIZE {old}) is stale"]
