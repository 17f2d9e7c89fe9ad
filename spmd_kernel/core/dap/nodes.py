"""Variables that are of no rank: the same name on several of them, folded.

`Folded` has a value on each of its ranks, and its children are theirs, folded by name; `Split` shows the
different values of one name, a row for each; `Everywhere` is the scope of one frame on all ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..magics.wording import name_ranks, shortened
from ..model import Rank
from ..outputs.labels import rank_ranges

ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
MASK = "0x…"
LONGEST = 200  # characters of one of several values in a row
ABSENT = "(not defined)"


@dataclass(frozen=True, slots=True)
class Folded:
    refs: Mapping[Rank, int]  # each rank's own variablesReference

    @property
    def ranks(self) -> tuple[Rank, ...]:
        return tuple(self.refs)


@dataclass(frozen=True, slots=True)
class Split:
    groups: tuple[Group, ...]

    @property
    def ranks(self) -> tuple[Rank, ...]:
        return tuple(rank for group in self.groups for rank in group.ranks)


@dataclass(frozen=True, slots=True)
class Everywhere:
    rank: Rank
    frame: int  # its own id of the frame

    @property
    def ranks(self) -> tuple[Rank, ...]:
        return (self.rank,)


Node = Folded | Split | Everywhere


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks on which a name has the same value, as far as it shows."""

    ranks: tuple[Rank, ...]
    value: str
    type: str
    refs: Mapping[Rank, int]


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    groups: tuple[Group, ...]

    @property
    def value(self) -> str:
        return folded_text([(group.ranks, group.value) for group in self.groups])

    @property
    def type(self) -> str:
        return " | ".join(dict.fromkeys(group.type for group in self.groups if group.type))

    @property
    def node(self) -> Node | None:
        """What expands below it."""
        if len(self.groups) > 1:
            return Split(self.groups)
        refs = self.groups[0].refs
        return Folded(refs) if refs else None


def folded_text(values: Sequence[tuple[Iterable[Rank], str]]) -> str:
    """``0-2: 20 | 3: 22``; one value for all stands alone."""
    if len(values) == 1:
        return values[0][1]
    return " | ".join(f"{rank_ranges(r)}: {shortened(text, LONGEST)}" for r, text in values)


def fold(found: Mapping[Rank, Sequence[Mapping[str, Any]]]) -> list[Row]:
    """The variables of several ranks by name, in the order in which the first one has them."""
    names: dict[str, dict[Rank, Mapping[str, Any]]] = {}
    for rank, variables in sorted(found.items()):
        for variable in variables:
            names.setdefault(str(variable.get("name", "")), {})[rank] = variable
    return [Row(name, _groups(values, tuple(sorted(found)))) for name, values in names.items()]


def _groups(values: Mapping[Rank, Mapping[str, Any]], ranks: tuple[Rank, ...]) -> tuple[Group, ...]:
    alike: dict[tuple[str, str, bool], dict[Rank, Mapping[str, Any]]] = {}
    for rank, variable in values.items():
        key = masked(_text(variable, "value")), _text(variable, "type"), bool(_ref(variable))
        alike.setdefault(key, {})[rank] = variable
    groups = [_group(members) for members in alike.values()]
    absent = tuple(rank for rank in ranks if rank not in values)
    if absent:
        groups.append(Group(absent, ABSENT, "", {}))
    return tuple(groups)


def _group(members: Mapping[Rank, Mapping[str, Any]]) -> Group:
    texts = [_text(variable, "value") for variable in members.values()]
    value = texts[0] if len(set(texts)) == 1 else masked(texts[0])
    refs = {rank: ref for rank, variable in members.items() if (ref := _ref(variable))}
    return Group(tuple(members), value, _text(next(iter(members.values())), "type"), refs)


def group_texts(texts: Mapping[Rank, str]) -> str:
    """Texts of ranks folded into one line."""
    by_text: dict[str, list[Rank]] = {}
    for rank, text in sorted(texts.items()):
        by_text.setdefault(masked(text), []).append(rank)
    return folded_text(
        [(ranks, texts[ranks[0]] if len(ranks) == 1 else text) for text, ranks in by_text.items()]
    )


def masked(text: str) -> str:
    return ADDRESS.sub(MASK, text)


def group_name(ranks: tuple[Rank, ...]) -> str:
    return name_ranks(ranks)


def _text(variable: Mapping[str, Any], key: str) -> str:
    value = variable.get(key)
    return value if isinstance(value, str) else ""


def _ref(variable: Mapping[str, Any]) -> int:
    value = variable.get("variablesReference")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
