"""All ranks' answers to one ``request_states`` of a client, made one.

A page that is loaded again opens the comm ``jupyter.widget.control``, asks for the states of all
widgets, and takes the first answer for all of it.  Source: ipywidgets, "Control Widget messaging
protocol" (version 1.0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .content import Content, dumps
from .errors import BadMessage
from .model import Buffer, Message, Rank

TARGET = "jupyter.widget.control"


def is_question(target: str, content: Content) -> bool:
    return target == TARGET and method_of(content) == "request_states"


def method_of(content: Content) -> Any:
    data = content.get("data")
    return data.get("method") if isinstance(data, dict) else None


@dataclass(slots=True)
class WidgetStates:
    """``missing``: dead ranks, whose widgets nobody knows the state of."""

    comm_id: str
    missing: set[Rank]
    parts: dict[Rank, tuple[Content, tuple[Buffer, ...]]] = field(default_factory=dict)

    def add(self, rank: Rank, content: Content, message: Message) -> None:
        """A rank's answer, the first of which counts.  Raises `BadMessage`."""
        data = Content(content.mapping("data"))
        data.mapping("states")
        paths = data.items_of("buffer_paths")
        if len(paths) != len(message.buffers) or not all(isinstance(p, list) and p for p in paths):
            raise BadMessage(f"{len(paths)} buffer paths for {len(message.buffers)} buffers")
        self.parts.setdefault(rank, (data, message.buffers))

    @property
    def is_answer(self) -> bool:
        """Without any part the ranks have no widgets, and say nothing to that."""
        return bool(self.parts or self.missing)

    @property
    def metadata(self) -> dict[str, Any]:
        if not self.missing:
            return {}
        return {"spmd": {"ranks": sorted(self.parts), "missing": sorted(self.missing)}}

    def merged(self) -> tuple[bytes, tuple[Buffer, ...]]:
        """Content and buffers.  Of a widget that several ranks have, the lowest rank's state."""
        states: dict[str, Any] = {}
        paths: list[Any] = []
        buffers: list[Buffer] = []
        for _, (data, own) in sorted(self.parts.items()):
            new = {key: state for key, state in data.mapping("states").items() if key not in states}
            states |= new
            for path, buffer in zip(data.items_of("buffer_paths"), own, strict=True):
                if path[0] in new:
                    paths.append(path)
                    buffers.append(buffer)
        answer = {"method": "update_states", "states": states, "buffer_paths": paths}
        return dumps({"data": answer, "comm_id": self.comm_id}), tuple(buffers)
