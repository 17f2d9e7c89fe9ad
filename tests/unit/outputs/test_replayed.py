"""How well recorded output folds, and how late it is shown: in the time of the recording, so exact.

What could fold is what several ranks said equally often; how late a line is counts from the message
that brought its end.
"""

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field

import pytest

from spmd_kernel.core.outputs import parse_label
from spmd_kernel.core.outputs.keys import Keys
from spmd_kernel.core.outputs.stream import MARK, collapse, glued

from .document import Cell, error
from .test_recorded import RECORDED

STREAMS = ("stdout", "stderr")


@dataclass
class Figures:
    foldable: int = 0  # lines that need not be shown
    folded: int = 0  # lines that were not shown
    blocks: int = 0  # records of several lines, of each rank
    cut: int = 0
    lost: int = 0  # ranks of which not exactly what they said is shown, in their order
    latencies: list[float] = field(default_factory=list)  # seconds, of each line of each rank

    def __add__(self, other):
        names = vars(self)
        return Figures(*(getattr(self, name) + getattr(other, name) for name in names))

    def latency(self, share):
        ordered = sorted(self.latencies)
        return ordered[math.ceil(share * len(ordered)) - 1]


@dataclass
class Said:
    """A record of one rank: a line, or the lines of one write."""

    stream: str
    text: str = ""
    at: float = 0.0  # when its end came
    key: str = ""

    def end(self, text, at, keys):
        shown = [collapse(line).rstrip(" ") if "\r" in line else line for line in text.split("\n")]
        self.text, self.at = "\n".join(shown), at
        self.key = keys.bar(plain(self.text)) if "\r" in text else keys.text(plain(self.text))

    @property
    def lines(self):
        return self.text.split("\n")


def plain(text):
    """Colours are closed and opened again at the ends of lines."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def said_by(rank, events):
    """The records of a rank in the order in which they began, and whether all came to their end."""
    said, begun, keys = [], dict.fromkeys(STREAMS), Keys(rank)
    for at, whose, kind, text in events:
        if whose != rank or kind not in STREAMS:
            continue
        last = begun[kind]
        records, rest = taken_apart((last.text if last else "") + text)
        for record in records:
            if last is None:
                said.append(last := Said(kind))
            last.end(record, at, keys)
            if "\r" in record:  # it was on display meanwhile, and belongs where its end came
                said.append(said.pop(next(i for i, it in enumerate(said) if it is last)))
            last = None
        if rest and last is None:
            said.append(last := Said(kind))
        if last:
            last.text = rest
        begun[kind] = last
    return said, not any(begun.values())


def taken_apart(text):
    """Complete records, and what of one that is not complete."""
    *lines, rest = text.replace("\r\n", "\n").split("\n")
    records = glued(lines)
    if rest.startswith(MARK):  # it goes on with the last of them
        return records[:-1], records[-1].replace("\n", "\n" + MARK) + "\n" + rest
    return records, rest


def figures(size, events):
    cell = Cell(size)
    for at, rank, kind, text in events:
        cell.wait(at - cell.at)
        if kind == "finish":
            cell.finish(rank)
        elif kind == "error":
            cell.feed(rank, error(text))
        else:
            cell.feed(rank, text, kind)
    cell.close()
    found = Figures()
    said, whole = zip(*(said_by(rank, events) for rank in cell.ranks), strict=True)
    shown = lines_of(cell)
    if all(whole):
        for rank in cell.ranks:
            compare(rank, said[rank], shown, found)
        found.foldable = foldable(said)
        found.folded = sum(len(r.lines) for mine in said for r in mine) - len(shown)
    return found


def lines_of(cell):
    """Every line of the streams: (when, stream, ranks, text)."""
    shown = []
    for at, published in zip(cell.times, cell.published, strict=True):
        if published.msg_type == "stream":
            content = json.loads(published.content)
            for line in content["text"].removesuffix("\n").split("\n"):
                ranks, text = parse_label(line)
                shown.append((at, content["name"], ranks or cell.ranks, text))
    return shown


def compare(rank, said, shown, found):
    mine = [(place, line) for place, line in enumerate(shown) if rank in line[2]]
    expected = [(record, line) for record in said for line in record.lines]
    keys = Keys(rank)
    alike = len(mine) == len(expected) and all(
        stream == record.stream and keys.bar(plain(text)) == keys.bar(plain(line))
        for (_, (_, stream, _, text)), (record, line) in zip(mine, expected, strict=True)
    )
    if not alike:
        found.lost += 1
        return
    found.latencies += [line[0] - said.at for (_, line), (said, _) in zip(mine, expected, strict=True)]  # fmt: skip
    places = iter([place for place, _ in mine])
    for record in said:
        its = [next(places) for _ in record.lines]
        if len(its) > 1:
            found.blocks += 1
            found.cut += its != list(range(its[0], its[0] + len(its)))


def foldable(said):
    """Lines less if the first of each key were one for all who said it, and so on."""
    times = [Counter((r.stream, r.key) for r in mine) for mine in said]
    length = {(r.stream, r.key): len(r.lines) for mine in said for r in mine}
    return sum(
        lines * (sum(count[key] for count in times) - max(count[key] for count in times))
        for key, lines in length.items()
    )


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_nothing_is_lost_and_no_write_cut(path):
    record = json.loads(path.read_text())
    found = figures(record["size"], record["events"])
    assert (found.lost, found.cut) == (0, 0)


def test_what_could_fold_folds_and_soon():
    found = Figures()
    for path in RECORDED:
        record = json.loads(path.read_text())
        found += figures(record["size"], record["events"])
    assert found.blocks and len(found.latencies) > 200
    assert found.folded >= 0.95 * found.foldable
    assert found.latency(0.5) <= 0.02
