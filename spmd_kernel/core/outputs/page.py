"""What has been published so far, as far as it decides how the next output must look.

One stream message per run of one stream, labels at the start of lines, a line break where another
rank goes on in an unfinished line, a caption before the rich outputs of some ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import proxy

from ..content import dumps
from ..model import Buffer
from .ids import DisplayIds
from .item import Item, Ranks
from .keys import Keys
from .labels import (
    BAR,
    label,
    label_lines,
    looks_labelled,
    may_become_labelled,
    may_complete_label,
)
from .publish import Publish
from .slots import Slots
from .writing import Writing, escaped_lines

if TYPE_CHECKING:
    from .lane import Lane


Unfinished = tuple[str, Ranks]  # the stream of a line and the ranks that have begun it


class Page:
    def __init__(
        self,
        ranks: Ranks,
        world_size: int,
        keys: Mapping[int, Keys],
        ids: DisplayIds,
        show: Ranks | None = None,
        unfinished: Unfinished | None = None,
    ):
        self._view = None if show is None else frozenset(show)
        self.all = tuple(sorted(ranks))
        self.keys = keys
        self.slots = Slots(proxy(self), ids)  # no cycle: a cell's outputs are freed with the cell
        self._world_size = world_size
        self._labels: dict[Ranks, str] = {self.all: ""}
        self._out: list[Publish] = []
        self._writing = Writing()
        self._open = unfinished
        self._captioned: Ranks | None = None  # a caption names these ranks' run of outputs

    @property
    def unfinished(self) -> Unfinished | None:
        return self._open

    def put(self, lanes: Sequence[Lane], items: Sequence[Item]) -> None:
        """Publish equal ``items``, one of each of ``lanes``, unless the view hides them."""
        if (
            self._view is not None
            and not items[0].failure
            and self._view.isdisjoint(lane.rank for lane in lanes)
        ):
            return
        if self.slots.ranks:
            lanes, items = self._beside_slots(lanes, items)
        if items:
            items[0].publish(self, tuple([lane.rank for lane in lanes]), items)

    def _beside_slots(
        self, lanes: Sequence[Lane], items: Sequence[Item]
    ) -> tuple[Sequence[Lane], Sequence[Item]]:
        """Those that do not go to a slot of their rank, which must show what came before them."""
        rest = [
            (lane, item)
            for lane, item in zip(lanes, items, strict=True)
            if lane.rank not in self.slots.ranks or not item.to_slot(self.slots, lane.rank)
        ]
        if any(lane.rank in self.slots.ranks for lane, _ in rest):
            self.slots.flush()
        return [lane for lane, _ in rest], [item for _, item in rest]

    def hides(self, rank: int) -> bool:
        """Outputs that only this rank has are not published."""
        return self._view is not None and rank not in self._view

    def take(self) -> list[Publish]:
        """What was published since the last call."""
        self.slots.flush()
        self._end_message()
        out, self._out = self._out, []
        return out

    def label(self, ranks: Ranks) -> str:
        """Empty for all ranks of the cell."""
        text = self._labels.get(ranks)
        if text is None:
            text = self._labels[ranks] = label(ranks, self._world_size)
        return text

    def own_label(self, ranks: Ranks) -> str:
        """The label even where none is needed."""
        return label(ranks, self._world_size)

    def metadata(self, ranks: Ranks, **more: Any) -> dict[str, Any]:
        """The mark in the metadata of an output."""
        return {"spmd": {"ranks": list(ranks), **more}}

    # ---------------------------------------------------------------- text

    def text(self, stream: str, ranks: Ranks, text: str, is_line: bool) -> None:
        """Lines of a stream; not ``is_line``: the last of them is not finished."""
        goes_on = self._open is not None and self._continue(stream, ranks, text)
        if ranks != self._captioned:
            self._captioned = None
        prefix = self.label(ranks)
        if prefix:
            text = label_lines(prefix, text)[len(prefix) if goes_on else 0 :]
        elif BAR in text:
            text = self._mark_look_alikes(text, ranks, goes_on, is_line)
        self._switch(stream)
        self._writing.add(text)
        if is_line:
            self._writing.add("\n")
        else:
            self._open = (stream, ranks)

    def lines(self, stream: str, ranks: Ranks, lines: Sequence[str], needs_escapes: bool) -> None:
        """Complete lines; if none of them needs an escape, in no time."""
        label = self.label(ranks)
        if needs_escapes or not label or self._open is not None:
            self.text(stream, ranks, "\n".join(lines), True)
            return
        if ranks != self._captioned:
            self._captioned = None
        self._switch(stream)
        self._writing.add_escaped(escaped_lines(label, lines))

    def _continue(self, stream: str, ranks: Ranks, text: str) -> bool:
        """These ranks go on in the line that they left unfinished; anyone else breaks it."""
        assert self._open is not None
        (open_stream, open_ranks), self._open = self._open, None
        same = open_ranks == ranks
        if same and open_stream == stream and not (ranks == self.all and may_complete_label(text)):
            return True
        if not same or open_stream == stream:
            self._switch(open_stream)
            self._writing.add("\n")
        return False

    def _mark_look_alikes(self, text: str, ranks: Ranks, goes_on: bool, is_line: bool) -> str:
        """All ranks printed a line that reads like a label: it gets one, to be told apart."""
        lines = text.split("\n")
        last = len(lines) - 1
        for index in range(1 if goes_on else 0, len(lines)):
            line = lines[index]
            if looks_labelled(line) or (
                index == last and not is_line and may_become_labelled(line)
            ):
                lines[index] = self.own_label(ranks) + line
        return "\n".join(lines)

    def _switch(self, stream: str) -> None:
        if stream != self._writing.stream:
            self._end_message()
            self._writing.stream = stream

    def _end_message(self) -> None:
        self._out += (Publish("stream", content) for content in self._writing.take())

    # ---------------------------------------------------------------- other outputs

    def show(
        self,
        ranks: Ranks,
        msg_type: str,
        content: bytes,
        metadata: Mapping[str, Any] | None = None,
        buffers: tuple[Buffer, ...] = (),
    ) -> None:
        """An output of its own, below what is there."""
        if ranks != self._captioned:
            self._captioned = None
        self._open = None
        self.message(msg_type, content, metadata, buffers)

    def message(
        self,
        msg_type: str,
        content: bytes,
        metadata: Mapping[str, Any] | None = None,
        buffers: tuple[Buffer, ...] = (),
    ) -> None:
        """A message that adds nothing below: an update of what is there."""
        self._end_message()
        self._out.append(Publish(msg_type, content, metadata or {}, buffers))

    def caption(self, ranks: Ranks) -> None:
        """Name the ranks of rich outputs that follow, once, where not all ranks have the same."""
        if ranks == self.all or self._captioned == ranks:
            return
        mark = self.own_label(ranks).strip()
        content = {
            "data": {"text/plain": mark},
            "metadata": self.metadata(ranks, role="caption"),
            "transient": {},
        }
        self.show(ranks, "display_data", dumps(content))
        self._captioned = ranks

    def clear(self, content: bytes) -> None:
        """Everything of this cell vanishes from the client."""
        self.show((), "clear_output", content)
