"""Numbers and paths in DAP bodies, from a rank's to a client's and back, by the names of their keys.

What a value shows (``data`` and ``metadata`` of rich variables) is nobody's number and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from ..errors import UsageError
from ..model import Rank
from .breakpoints import Store
from .ids import Table, Threads
from .sources import Sources

OPAQUE = {"data", "metadata", "result", "value"}
TEXTS = {"stackTrace"}  # tracebacks, whose lines name files


@dataclass(frozen=True, slots=True)
class Reference:
    """What the arguments of a request refer to."""

    rank: Rank
    kind: str  # thread, frame, variable, source
    own: int


class Translator:
    def __init__(self, sources: Sources, store: Store, threads: Threads):
        self._sources = sources
        self._store = store
        numbers = count(1)
        self.threads = threads
        self.frames = Table("frame")
        self.variables = Table("variable", numbers)
        self.explored = Table(
            "variable", numbers
        )  # of no frame: ipykernel's own explorer of globals
        self.files = Table("source")

    def drop(self, rank: Rank) -> None:
        """The rank runs on: what was seen of it is history."""
        self.frames.drop([rank])
        self.variables.drop([rank])

    def lost(self, rank: Rank) -> None:
        self.drop(rank)
        self.explored.drop([rank])
        self.files.drop([rank])

    # ---------------------------------------------------------------- to clients

    def out(self, rank: Rank, body: Any) -> Any:
        """A body that the rank sent, as clients get it."""
        if isinstance(body, list):
            return [self.out(rank, item) for item in body]
        if not isinstance(body, Mapping):
            return body
        return {key: self._member(rank, key, value) for key, value in body.items()}

    def _member(self, rank: Rank, key: str, value: Any) -> Any:
        if key in OPAQUE:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            number = self._numbers.get(key)
            return number(rank, value) if number else value
        if isinstance(value, str):
            if key in ("path", "sourcePath"):
                return self._sources.canonical(rank, value)
            return self._sources.in_text(rank, value) if key in TEXTS else value
        if key in _IDENTIFIED:
            value = self._identified(rank, value, _IDENTIFIED[key])
        if key == "hitBreakpointIds" and isinstance(value, list):
            named = [self._store.named(rank, own) for own in value]
            return [point.id for point in named if point is not None]
        return self.out(rank, value)

    def _identified(self, rank: Rank, value: Any, kind: str) -> Any:
        """Objects whose ``id`` is a number of this kind."""
        if isinstance(value, list):
            return [self._identified(rank, item, kind) for item in value]
        if not isinstance(value, Mapping) or not isinstance(value.get("id"), int):
            return value
        if kind == "breakpoint":
            point = self._store.named(rank, value["id"])
            return {**value, "id": point.id} if point is not None else value
        number = self.frames.out if kind == "frame" else self.threads.out
        return {**value, "id": number(rank, value["id"])}

    @property
    def _numbers(self) -> Mapping[str, Callable[[Rank, int], int]]:
        return {
            "threadId": self.threads.out,
            "frameId": self.frames.out,
            "variablesReference": self.variables.out,
            "sourceReference": self.files.out,
        }

    # ---------------------------------------------------------------- to ranks

    def reference(self, key: str, number: Any) -> Reference | None:
        """What a number under ``key`` refers to; ``None``: nothing. Raises `UsageError` if stale."""
        kind = REFERENCES.get(key)
        if kind is None or not isinstance(number, int) or isinstance(number, bool) or number == 0:
            return None
        if kind == "thread":
            found = self.threads.back(number)
            return Reference(found[0], kind, found[1]) if found else None
        table = {"frame": self.frames, "source": self.files}.get(kind, self.variables)
        if kind == "variable" and number in self.explored:
            kind, table = "explored", self.explored
        rank, own = table.back(number)
        return Reference(rank, kind, own)

    def references(self, arguments: Mapping[str, Any]) -> dict[str, Reference]:
        """By key.  Raises `UsageError` if one is stale, or if they are of different ranks."""
        found = {k: self.reference(k, v) for k, v in arguments.items() if k in REFERENCES}
        known = {key: reference for key, reference in found.items() if reference is not None}
        if len({reference.rank for reference in known.values()}) > 1:
            raise UsageError("the arguments refer to different ranks")
        return known

    def back(
        self, rank: Rank, arguments: Mapping[str, Any], known: Mapping[str, Reference]
    ) -> dict[str, Any]:
        """The arguments as the rank gets them."""
        own: dict[str, Any] = {key: reference.own for key, reference in known.items()}
        source = arguments.get("source")
        if isinstance(source, Mapping):
            own["source"] = self.source(rank, source)
        return {**arguments, **own}

    def source(self, rank: Rank, source: Mapping[str, Any]) -> dict[str, Any]:
        """DAP's Source as the rank has it."""
        told = dict(source)
        if isinstance(path := told.get("path"), str):
            told["path"] = self._sources.own(rank, path)
        reference = self.reference("sourceReference", told.get("sourceReference"))
        if reference is not None:
            told["sourceReference"] = reference.own
        return told


REFERENCES = {
    "threadId": "thread",
    "frameId": "frame",
    "srcFrameId": "frame",
    "variablesReference": "variable",
    "sourceReference": "source",
}
_IDENTIFIED = {
    "stackFrames": "frame",
    "threads": "thread",
    "breakpoints": "breakpoint",
    "breakpoint": "breakpoint",
}
