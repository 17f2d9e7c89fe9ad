"""Output widgets: each takes what its own rank says, and nothing of what the others say.

``with output:`` puts the id of the request at hand into the widget's state (``msg_id``), and clients
give the widget every output with that parent until it is empty again.  All ranks' outputs have one
parent: the widget of one rank would take those of all.  So clients do not hear of it when the rank
says so, but around each of that rank's outputs: msg_id, the output, no msg_id.

Source: ``OutputModel`` of ``@jupyter-widgets/output``; nested widgets are a stack, the innermost takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .cell import ROUND
from .content import Content, dumps, read
from .echoes import Echoes
from .errors import BadMessage
from .model import OUTPUT_TYPES, Header, Message, Rank, ToFront
from .outputs import DisplayIds, Publish, unmarked
from .outputs.splice import Parsed
from .stage import Stage

KINDS = OUTPUT_TYPES - {"update_display_data"}  # which has no place that could be taken
MARK = b"\\u001f"  # of the lines of one write call, as JSON escapes it


@dataclass(frozen=True, slots=True)
class _Open:
    """``ours``: clients do not know of it.  One rank is transparent: then they do."""

    comm_id: str
    ours: bool


class Captures:
    def __init__(self, stage: Stage, display_ids: DisplayIds, echoes: Echoes):
        self._stage = stage
        self._echoes = echoes
        self._display_ids = display_ids
        self._widgets: set[tuple[Rank, str]] = set()  # Output widgets: rank and comm id
        self._open: dict[
            tuple[Rank, str], list[_Open]
        ] = {}  # by rank and parent: the innermost last

    # ---------------------------------------------------------------- what widgets say

    def opened(self, rank: Rank, comm_id: str, content: Content) -> None:
        if state_of(content).get("_model_name") == "OutputModel":
            self._widgets.add((rank, comm_id))

    def closed(self, rank: Rank, comm_id: str) -> None:
        self._widgets.discard((rank, comm_id))
        self._release(rank, comm_id)

    def lost(self, rank: Rank) -> None:
        self._widgets = {widget for widget in self._widgets if widget[0] != rank}
        self._open = {key: stack for key, stack in self._open.items() if key[0] != rank}

    def passed_on(
        self, rank: Rank, comm_id: str, content: Content, message: Message, world: int
    ) -> Message | None:
        """What clients are to hear of a widget's message: all, or all but its ``msg_id``."""
        if (rank, comm_id) not in self._widgets:
            return message
        state = state_of(content)
        if "msg_id" not in state or content.mapping("data").get("method") != "update":
            return message
        if not self._switched(rank, comm_id, state["msg_id"], world):
            return message
        rest = {key: value for key, value in state.items() if key != "msg_id"}
        if not rest:
            return None
        data = content.mapping("data") | {"state": rest}
        return replace(message, content=dumps({**content, "data": data}))

    def _switched(self, rank: Rank, comm_id: str, msg_id: Any, world: int) -> bool:
        """Whether it is for us to do, rather than for clients."""
        was_ours = self._release(rank, comm_id)
        if not isinstance(msg_id, str) or not msg_id:
            return was_ours
        # The id of a line magic's own round means nothing to clients, not even of one rank.
        entry = _Open(comm_id, world > 1 or ROUND in msg_id)
        self._open.setdefault((rank, msg_id), []).append(entry)
        return entry.ours

    def _release(self, rank: Rank, comm_id: str) -> bool:
        was_ours = False
        for key, stack in list(self._open.items()):
            for entry in [entry for entry in stack if key[0] == rank and entry.comm_id == comm_id]:
                was_ours = entry.ours
                stack.remove(entry)
            if not stack:
                del self._open[key]
        return was_ours

    # ---------------------------------------------------------------- what they take

    def takes(self, rank: Rank, message: Message) -> bool:
        """An update of a display is for the display, wherever that stands."""
        return (rank, message.parent_id) in self._open and message.msg_type in KINDS

    def take(self, rank: Rank, message: Message, home: Header, world: int) -> None:
        """Publish it so that the widget gets it.  ``home``: the client's request it belongs to."""
        innermost = self._open[rank, message.parent_id][-1]
        content = message.content
        try:
            content = self._content(rank, message, world) if innermost.ours else content
        except BadMessage as error:
            self._stage.log("warning", f"rank {rank}: {message.msg_type} as it came: {error}")
        if message.msg_type == "stream" and self._is_too_much(content, home):
            return
        if message.msg_type != "clear_output":  # which may wait for the next output
            self._echoes.expect(innermost.comm_id)
        if not innermost.ours:
            self._publish(message.msg_type, content, home, message)
            return
        self._show(innermost.comm_id, str(home.get("msg_id", "")), home)
        self._publish(message.msg_type, content, home, message)
        self._show(innermost.comm_id, "", home)

    def _is_too_much(self, content: bytes, home: Header) -> bool:
        """It counts as text of the cell, which says what becomes of it from then on."""
        item = Publish("stream", content)
        passed = self._stage.floods.passed(str(home.get("msg_id", "")), item)
        for other in passed:
            if other is not item:
                self._stage.publish(other.msg_type, other.content, home)
        return item not in passed

    def _publish(self, msg_type: str, content: bytes, home: Header, message: Message) -> None:
        """Past the journal of what cells showed: no cell shows it."""
        self._stage.emit(
            ToFront("iopub", (), msg_type, content, home, message.metadata, message.buffers)
        )

    def _show(self, comm_id: str, msg_id: str, home: Header) -> None:
        data = {"method": "update", "state": {"msg_id": msg_id}, "buffer_paths": []}
        self._stage.publish("comm_msg", dumps({"data": data, "comm_id": comm_id}), home)

    def _content(self, rank: Rank, message: Message, world: int) -> bytes:
        """No label: the widget is that rank's own. Marks and ids are those of any other output."""
        if message.msg_type == "stream":
            if not self._stage.policy.marks or MARK not in message.content:
                return message.content
            said = read(message.content)
            return dumps({**said, "text": unmarked(said.text("text"))})
        if message.msg_type not in ("display_data", "execute_result") or world == 1:
            return message.content
        parsed = Parsed(message.content)
        metadata = parsed.content.mapping("metadata") | {"spmd": {"ranks": [rank]}}
        changes: dict[str, Any] = {"metadata": metadata}
        transient = parsed.content.mapping("transient")
        if (own := transient.get("display_id")) is not None:
            changes["transient"] = transient | {"display_id": self._display_ids.of(rank, own)}
        return parsed.replaced(changes)


def state_of(content: Content) -> dict[str, Any]:
    """The state in a widget's message; empty if it has none, or is no widget's."""
    data = content.get("data")
    state = data.get("state") if isinstance(data, dict) else None
    return state if isinstance(state, dict) else {}
