"""What a control command is: a script, as a magic is, with schemas of its arguments and its answer.

``spmd_request`` on control carries ``{"command": NAME, "arguments": {…}}``; the ``spmd_reply`` is
``{"status": "ok", "command": NAME, "data": {…}}``, or ``{"status": "error", "ename", "evalue",
"traceback", "hint"}``.  A command is served at once, whatever the ranks are doing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..cell import Cell
from ..content import Content
from ..conversation import Script
from ..journal import Journal
from ..magics.base import Context, RankView
from ..model import Buffer, Rank, Settings
from .schema import Schema

__all__ = ["Alone", "Command", "Desk", "Raw", "Schema"]

# ---------------------------------------------------------------- wants and results


@dataclass(frozen=True, slots=True)
class Alone:
    """Want: run a script while no cell runs, in its turn among the cells; resumed with its result.

    While a cell runs or waits to run it is a `UsageError`, unless ``wait``; ``first``: then before
    the cells that wait.
    """

    script: Script
    wait: bool = False
    first: bool = False


@dataclass(frozen=True, slots=True)
class Raw:
    """Data that is JSON already, and buffers for the reply."""

    data: bytes
    buffers: tuple[Buffer, ...] = ()


# ---------------------------------------------------------------- what a command may see


class Desk(Protocol):
    """The hub, for commands."""

    @property
    def at(self) -> float:
        """Seconds of the kernel's monotonic clock."""

    @property
    def settings(self) -> Settings: ...

    @property
    def state(self) -> str:
        """``starting`` (the first ranks), ``idle``, ``busy`` or ``closing``."""

    @property
    def world(self) -> tuple[RankView, ...]: ...

    @property
    def context(self) -> Context:
        """For scripts that magics are made of."""

    @property
    def cell(self) -> Cell | None:
        """The one that runs."""

    @property
    def queued(self) -> int:
        """Cells that wait for the running one."""

    @property
    def count(self) -> int:
        """The number of the last cell that was counted."""

    @property
    def kernel_info(self) -> Mapping[str, Any]:
        """Of a rank; empty until there was one."""

    @property
    def journal(self) -> Journal: ...

    def stopped(self, rank: Rank) -> str | None:
        """Why the debugger has stopped it."""

    def busy_since(self, rank: Rank) -> float | None:
        """When its part of the cell began."""

    def waiting(self, msg_id: str) -> bool:
        """It is a cell that has not begun."""

    def where(self) -> Script:
        """Returns a `where.Where`."""

    @property
    def question(self) -> Mapping[str, Any] | None:
        """What ranks want a person to answer, as ``status`` tells it."""

    def answer(self, value: str, msg_id: str | None) -> tuple[Rank, ...]:
        """The ranks that waited for it. Raises `UsageError`."""

    def busy(self) -> tuple[Rank, ...]:
        """Ranks that are at work for a client."""

    def interrupt(self, ranks: tuple[Rank, ...] | None) -> None:
        """Those of ``ranks`` that are at work; ``None``: as Stop does."""

    def make_way(self, ranks: tuple[Rank, ...]) -> None:
        """End the running cell: kill those of ``ranks`` that run it, interrupt the others."""


# ---------------------------------------------------------------- the command itself


@dataclass(frozen=True, slots=True)
class Command:
    """``play`` returns the data: JSON values, or `Raw`.

    ``arguments``: a schema by name; ``data``: the schema of the answer.  ``acts``: it changes
    something.  ``needs_ranks``: it waits for the first ranks, as a cell does.
    """

    name: str
    summary: str
    play: Callable[[Content, Desk], Script]
    data: Schema
    arguments: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    example: Mapping[str, Any] = field(default_factory=dict)
    acts: bool = False
    needs_ranks: bool = False

    @property
    def schema(self) -> Schema:
        """Of all arguments together."""
        return {
            "type": "object",
            "properties": dict(self.arguments),
            "required": list(self.required),
            "additionalProperties": False,
        }
