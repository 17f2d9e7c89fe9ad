"""What the script that starts ranks wants, and how it goes on when the user presses Stop."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .content import execute_content
from .errors import Interrupted
from .magics.base import Ask
from .model import LaunchRequest, Rank


@dataclass(frozen=True, slots=True)
class StopRanks:
    """Want: end these ranks; resumed with None when all are gone."""

    ranks: tuple[Rank, ...]
    now: bool = False


@dataclass(frozen=True, slots=True)
class LaunchRanks:
    """Want: start these; resumed with None once all are ready or one is lost."""

    request: LaunchRequest


@dataclass(frozen=True, slots=True)
class Inquire:
    """Want: what any one rank answers; resumed with its `Content`, or None if no rank answers.

    ``seconds``: how long to wait for it; while ranks are at work not even that long.
    """

    msg_type: str
    content: Mapping[str, Any]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CreateSubshell:
    """Want: a subshell of all ranks; resumed with its id."""


@dataclass(frozen=True, slots=True)
class DeleteSubshell:
    """Want: end it on all ranks; resumed with None."""

    subshell_id: str


def silent(ranks: tuple[Rank, ...], code: str, seconds: float | None = None) -> Ask:
    return Ask(ranks, "execute_request", execute_content(code, silent=True), seconds=seconds)


def environment_code(told: Mapping[str, str], gone: list[str]) -> str:
    environ = "__import__('os').environ"
    lines = [f"{environ}.update({told!r})"]
    return "\n".join(lines + [f"{environ}.pop({name!r}, None)" for name in gone])


def carried_through(
    wants: Iterable[Ask | StopRanks],
) -> Generator[Any, Any, tuple[list[Any], Interrupted | None]]:
    """Their results in order, and the user's Stop, if there was one: it breaks none of them off.

    Half of this would leave ranks that disagree on their world.  A Stop hurries the end of ranks,
    and has a question asked once more (it may have hit the rank that was at it).
    """
    results: list[Any] = []
    interrupted: Interrupted | None = None
    for want in wants:
        result, tries = None, 2
        while tries:
            try:
                result, tries = (yield want), 0
            except Interrupted as error:
                interrupted = error
                if isinstance(want, StopRanks):
                    want = replace(want, now=True)
                else:
                    tries -= 1
        results.append(result)
    return results, interrupted
