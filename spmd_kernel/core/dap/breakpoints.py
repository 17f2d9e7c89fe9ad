"""Breakpoints as clients set them: by client, path and line, with their conditions.

ipykernel remembers lines alone, and JupyterLab sends back what it was told; so what a breakpoint is
beside its line is kept here.  Each client has its own list for a path, and ranks get all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..magics.wording import name_ranks
from ..model import Rank
from .conditions import NEVER, for_rank, mentions, message_for_rank

EXTRAS = ("condition", "hitCondition", "logMessage")  # DAP: SourceBreakpoint


@dataclass(slots=True)
class Breakpoint:
    """``asked`` is DAP's SourceBreakpoint; ``line`` is where it really is, once a rank said so."""

    asked: dict[str, Any]
    id: int
    line: int
    verified: bool = False
    message: str = ""
    own: dict[Rank, Any] = field(default_factory=dict)  # what each rank calls it

    def for_rank(self, rank: Rank, size: int) -> dict[str, Any] | None:
        """As this rank gets it; ``None``: it can never stop there."""
        sent = dict(self.asked)
        if isinstance(condition := sent.get("condition"), str):
            left = for_rank(condition, rank, size)
            if left is NEVER:
                return None
            sent["condition"] = left
            if not left:
                del sent["condition"]
        if isinstance(message := sent.get("logMessage"), str) and mentions(message):
            sent["logMessage"] = message_for_rank(message, rank, size)
        return sent

    def as_told(self, path: str) -> dict[str, Any]:
        """DAP's Breakpoint."""
        told = {"verified": self.verified, "id": self.id, "source": {"path": path}}
        if self.message:
            told["message"] = self.message
        return {**told, "line": self.line}

    def as_kept(self) -> dict[str, Any]:
        """For debugInfo."""
        return {"line": self.line, **{k: self.asked[k] for k in EXTRAS if self.asked.get(k)}}


class Store:
    def __init__(self) -> None:
        self._by_path: dict[str, dict[str, list[Breakpoint]]] = {}  # path, then client
        self._last_id = -1  # debugpy's own ids begin at 0

    def set(
        self, client: str, path: str, asked: Sequence[Mapping[str, Any]], *, overlay: bool
    ) -> list[Breakpoint]:
        """This client's breakpoints in a file, instead of what it had there.

        ``overlay``: one of which nothing but the line is said is what it was; any of `EXTRAS` (an empty
        one, too) says what it is now.
        """
        before = {b.line: b for b in self._by_path.get(path, {}).get(client, ())}
        made = [self._made(dict(item), before, overlay) for item in asked]
        lists = self._by_path.setdefault(path, {})
        lists[client] = made
        if not made:
            del lists[client]
        if not lists:
            del self._by_path[path]
        return made

    def _made(
        self, item: dict[str, Any], before: Mapping[int, Breakpoint], overlay: bool
    ) -> Breakpoint:
        line = item.get("line")
        line = line if isinstance(line, int) else 0
        old = before.get(line)
        if overlay and old is not None and not any(key in item for key in EXTRAS):
            item |= {key: old.asked[key] for key in EXTRAS if key in old.asked}
        self._last_id += 1
        return Breakpoint(item, self._last_id, line)

    def at(self, path: str) -> list[Breakpoint]:
        """Of all clients."""
        return [b for made in self._by_path.get(path, {}).values() for b in made]

    @property
    def paths(self) -> list[str]:
        return list(self._by_path)

    def drop(self, client: str) -> list[str]:
        """A client left; the paths that it had breakpoints in."""
        had = [path for path, lists in self._by_path.items() if client in lists]
        for path in had:
            self.set(client, path, (), overlay=False)
        return had

    def lost(self, rank: Rank) -> None:
        for made in self._all():
            made.own.pop(rank, None)

    def named(self, rank: Rank, own: Any) -> Breakpoint | None:
        """What a rank calls ``own``."""
        return next((b for b in self._all() if rank in b.own and b.own[rank] == own), None)

    def as_info(self) -> list[dict[str, Any]]:
        return [
            {"source": path, "breakpoints": [b.as_kept() for b in self.at(path)]}
            for path in self._by_path
        ]

    def _all(self) -> Iterator[Breakpoint]:
        for lists in self._by_path.values():
            for made in lists.values():
                yield from made


def settle(
    points: Sequence[Breakpoint], sent: Mapping[Rank, Sequence[Breakpoint]], answers: Answers
) -> None:
    """Work what ranks said of their breakpoints into ``points``.

    ``sent``: which of them each rank got, in the order of its answer.  Verified is what one rank
    verified; the line is that of the lowest such rank; the message names those that did not.
    """
    for point in points:
        point.verified, point.message, point.own = False, "", {}
    bad: dict[int, list[tuple[Rank, str]]] = {}
    for rank, items in sorted(sent.items()):
        told = answers.get(rank)
        for place, point in enumerate(items):
            one = told[place] if told is not None and place < len(told) else None
            if one is None:
                bad.setdefault(point.id, []).append((rank, "no answer"))
                continue
            point.own[rank] = one.get("id")
            if not one.get("verified"):
                bad.setdefault(point.id, []).append((rank, str(one.get("message") or "")))
            elif not point.verified:
                point.verified = True
                line = one.get("line")
                point.line = line if isinstance(line, int) else point.line
    asked = {point.id for items in sent.values() for point in items}
    for point in points:
        if point.id not in asked:
            point.message = "its condition holds on no rank"
        else:
            point.message = _complaint(bad.get(point.id, ()), len(sent))


Answers = Mapping[Rank, Sequence[Mapping[str, Any]] | None]


def _complaint(bad: Iterable[tuple[Rank, str]], size: int) -> str:
    by_text: dict[str, list[Rank]] = {}
    for rank, text in bad:
        by_text.setdefault(text, []).append(rank)
    if size == 1:
        return "; ".join(by_text)
    return "; ".join(
        f"{name_ranks(ranks)}: {text or 'not verified'}" for text, ranks in by_text.items()
    )
