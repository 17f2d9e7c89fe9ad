"""What ``%compare`` knows of the ranks' values, and how it tells: equal, or who differs where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..content import Content
from ..model import Rank
from .wording import MB, aligned, count, name_ranks, shortened

LEAVES = 20  # that are shown
GROUPS = 8  # of ranks that agree, of one leaf, that are shown
SHA = 12  # characters of a digest


@dataclass(frozen=True, slots=True)
class Raised:
    """A rank without a value, and why: ``raised NameError: …``."""

    why: str


Answers = Mapping[Rank, Content | Raised]
Record = dict[str, Any]  # a leaf, as the script tells of it
ABSENT: Record = {"text": "not there", "key": ""}


@dataclass(slots=True)
class _Leaf:
    """One that differs on some rank.  Ranks that are not in ``mine`` have the base's."""

    base: Record
    mine: dict[Rank, Record] = field(default_factory=dict)


class Comparison:
    """``values`` are the ranks that have one; the lowest of them is the base."""

    def __init__(self, world_size: int, begun: Answers):
        self._size = world_size
        self.values = {r: a for r, a in begun.items() if not isinstance(a, Raised)}
        self.failures = {r: a.why for r, a in begun.items() if isinstance(a, Raised)}
        self.folder = ""  # of the base's files
        self._left: set[str] = set()  # leaves too large for the disk
        self._leaves: dict[tuple[int, str], _Leaf] = {}
        self._differ: set[int] = set()
        self._extra = 0

    @property
    def base(self) -> Rank:
        return min(self.values)

    def unlike_base(self) -> tuple[Rank, ...]:
        total = self.values[self.base].get("total")
        return tuple(rank for rank, value in self.values.items() if value.get("total") != total)

    def why_none(self) -> str:
        return "; ".join(f"{why} on {name_ranks(ranks)}" for why, ranks in _fold(self.failures))

    # ---------------------------------------------------------------- hearing

    def published(self, answers: Answers) -> None:
        for _, answer in self._kept(answers):
            self.folder = answer.text("folder")

    def given(self, answers: Answers) -> None:
        for _, answer in self._kept(answers):
            self._left.update(map(str, answer.items_of("left")))

    def differ(self, answers: Answers) -> None:
        """What the script's ``against`` returned."""
        for rank, answer in self._kept(answers):
            if answer.flag("apart"):
                self.failures[rank] = (
                    f"cannot read the files of rank {self.base}: where is not known"
                )
            for run in answer.items_of("differ"):
                self._differ.update(range(int(run[0]), int(run[1]) + 1))
            self._extra = max(self._extra, answer.integer("extra"))
            for order, path, base, mine in answer.items_of("leaves"):
                leaf = self._leaves.setdefault((int(order), str(path)), _Leaf(base or ABSENT))
                leaf.mine[rank] = mine or ABSENT

    def measurable(self) -> list[str]:
        """Paths of shown leaves of which some rank can tell how far it is from the base."""
        return [
            path
            for path, leaf in self._shown()
            if any(_alike(mine, leaf.base) for mine in leaf.mine.values())
        ]

    def measured(self, answers: Answers) -> None:
        for rank, answer in self._kept(answers):
            for path, leaf in self._shown():
                if rank in leaf.mine and _alike(leaf.mine[rank], leaf.base) and path in answer:
                    leaf.mine[rank] = {**leaf.mine[rank], "difference": answer.mapping(path)}

    def _kept(self, answers: Answers) -> Iterable[tuple[Rank, Content]]:
        """A rank that is lost on the way has no value any more."""
        for rank, answer in answers.items():
            if not isinstance(answer, Raised):
                yield rank, answer
                continue
            self.failures[rank] = answer.why
            if rank != self.base:  # of which we know enough to tell about the others
                self.values.pop(rank, None)

    def _shown(self) -> list[tuple[str, _Leaf]]:
        """The first ones. Each rank has told its own first ones: that is enough to know all's."""
        return [(key[1], self._leaves[key]) for key in sorted(self._leaves)[:LEAVES]]

    # ---------------------------------------------------------------- telling

    def text(self) -> str:
        parts = [self._difference() if self._leaves or self.unlike_base() else self._equal()]
        for why, ranks in _fold(self.failures):
            parts.append(f"{name_ranks(ranks)} {why}\n")
        return "".join(parts)

    def _equal(self) -> str:
        value = self.values[self.base]
        ranks = sorted(self.values)
        whole = len(ranks) == self._size
        where = f"on {count(len(ranks), 'rank')}" if whole else f"on {name_ranks(ranks)}"
        equal = "equal " if len(ranks) > 1 else ""
        return f"{equal}{where}: {_described(value)}{_caveat(value)}\n"

    def _difference(self) -> str:
        value = self.values[self.base]
        leaves = value.integer("leaves")
        total = len(self._differ) + self._extra
        shown = self._shown()
        head = f"differs on {name_ranks(self.values)}"
        if leaves > 1 or self._extra:
            of = f" of {leaves}" if not self._extra else ""
            verb = "leaf differs" if total == 1 and not of else "leaves differ"
            verb = "leaves differs" if total == 1 and of else verb
            head = f"{total}{of} {verb} on {name_ranks(self.values)}"
        head += f": {value.text('type')}{_caveat(value)}\n"
        rows = [row for path, leaf in shown for row in self._rows(path, leaf)]
        more = f"… and {total - len(shown)} more\n" if total > len(shown) else ""
        return head + (aligned([("",) * 4, *rows], {""}).lstrip("\n") if rows else "") + more

    def _rows(self, path: str, leaf: _Leaf) -> list[tuple[str, ...]]:
        """One for each group of ranks that agree, the base's first."""
        groups: dict[str, list[Rank]] = {str(leaf.base["key"]): []}
        for rank in sorted(self.values):
            record = leaf.mine.get(rank, leaf.base)
            groups.setdefault(str(record["key"]), []).append(rank)
        rows = []
        for ranks in [ranks for ranks in groups.values() if ranks][:GROUPS]:
            record = leaf.mine.get(ranks[0], leaf.base)
            rows.append((name_ranks(ranks), _leaf_text(record), self._distance(path, leaf, record)))
        rest = [rank for ranks in list(groups.values())[GROUPS:] for rank in ranks]
        if rest:
            rows.append((name_ranks(rest), "other values", self._farthest(leaf, rest)))
        return [(shortened(path, 60) if i == 0 else "", *row) for i, row in enumerate(rows)]

    def _distance(self, path: str, leaf: _Leaf, record: Record) -> str:
        if record is leaf.base:
            return ""
        found = record.get("difference")
        if isinstance(found, dict):
            return _told(found)
        if path in self._left and _alike(record, leaf.base):
            return "too large for the temporary directory: difference not taken"
        return str(record.get("note", ""))

    @staticmethod
    def _farthest(leaf: _Leaf, ranks: Sequence[Rank]) -> str:
        found = {rank: leaf.mine[rank].get("difference") or {} for rank in ranks}
        sizes = {rank: _number(d["max"]) for rank, d in found.items() if "max" in d}
        if not sizes:
            return ""
        far = max(sizes, key=lambda rank: sizes[rank])
        return f"max |difference| {_figure(found[far]['max'])} (rank {far})"


def _fold(failures: Mapping[Rank, str]) -> list[tuple[str, list[Rank]]]:
    folded: dict[str, list[Rank]] = {}
    for rank in sorted(failures):
        folded.setdefault(failures[rank], []).append(rank)
    return list(folded.items())


def _alike(mine: Record, base: Record) -> bool:
    return bool(mine.get("type")) and mine.get("type") == base.get("type")


def _described(value: Content) -> str:
    if (only := value.get("only")) and isinstance(only, dict):
        path = f"{only['path']} " if only.get("path") else ""
        return f"{path}{_leaf_text(only)}"
    size = f", {_bytes(value.integer('bytes'))}" if value.integer("bytes") else ""
    leaves = count(value.integer("leaves"), "leaf").replace("leafs", "leaves")
    return f"{value.text('type')}, {leaves}{size}, sha256 {value.text('total')[:SHA]}…"


def _leaf_text(record: Record) -> str:
    text = shortened(str(record["text"]), 100)
    return f"{text} sha256 {record['sha'][:SHA]}…" if record.get("sha") else text


def _caveat(value: Content) -> str:
    notes = [str(note) for note in value.items_of("notes")]
    if value.flag("more"):
        notes.append("only the first leaves were compared, there are too many")
    if isinstance(value.get("only"), dict):
        return f" ({'; '.join(notes)})" if notes else ""
    return f" (some leaves {'; '.join(notes)})" if notes else ""


def _told(found: Mapping[str, Any]) -> str:
    """``max |difference| 0.25 at [3, 7], 12 of 8192 elements differ``."""
    size, differ, parts = found.get("size", 0), found.get("differ"), []
    if differ == 0:
        return "equal but for signs of zero or payloads of NaN"
    if differ is None:
        return "numpy is not there: difference not taken"
    nan = found.get("nan", 0)
    if "max" in found and differ > nan:
        parts.append(f"max |difference| {_figure(found['max'])}{_at(found.get('at'))}")
    elif differ > nan:
        parts.append(f"the first{_at(found.get('at')) or ' element'}")
    if nan:
        parts.append(f"{nan} NaN on one side only, the first{_at(found.get('nan_at'))}")
    if size > 1:
        parts.append(f"{differ} of {size} elements differ")
    return ", ".join(parts)


def _at(place: Any) -> str:
    return f" at [{', '.join(map(str, place))}]" if place else ""


def _number(text: str) -> float:
    try:
        return float(text)
    except (ValueError, OverflowError):
        return float("inf")


def _figure(text: str) -> str:
    """Six digits of what is no whole number."""
    return text if text.isdigit() else f"{_number(text):.6g}"


def _bytes(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < MB else f"{size / MB:.1f} MB"
