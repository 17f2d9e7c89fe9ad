"""What each rank said in the last cell, for ``%output``, and in full for ``--log-dir``.

Messages are kept as they came, the newest of each rank, and read only when somebody asks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .content import Content, dumps, read
from .errors import BadMessage
from .model import AppendLog, Message, Rank
from .outputs import unmarked
from .stage import Stage

KEPT = 1 << 18  # bytes of messages per rank, and what more the oldest of them has
LIMIT = 1 << 20  # bytes of one message of text that is kept whole
RICH = 1 << 16  # bytes of a display that is kept; of a larger one only how large it was
KINDS = ("stream", "display_data", "execute_result", "error")


@dataclass(slots=True)
class _Said:
    messages: deque[tuple[str, bytes]] = field(default_factory=deque)  # (msg_type, content)
    size: int = 0
    is_cut: bool = False

    def add(self, kind: str, content: bytes) -> None:
        self.messages.append((kind, content))
        self.size += len(content)
        while self.size - len(self.messages[0][1]) >= KEPT:
            self.size -= len(self.messages.popleft()[1])
            self.is_cut = True


class Transcript:
    def __init__(self, stage: Stage):
        self._stage = stage
        self._cell = ""
        self._said: dict[Rank, _Said] = {}

    def begin(self, msg_id: str) -> None:
        """A round of this cell begins on the ranks: what earlier cells said is forgotten."""
        if msg_id != self._cell:
            self._cell = msg_id
            self._said.clear()

    def heard(self, rank: Rank, message: Message) -> None:
        kind, content = message.msg_type, message.content
        if kind not in KINDS:
            return
        if self._stage.policy.log_dir:
            self._log(rank, kind, content)
        said = self._said.get(rank)
        if said is None:
            said = self._said[rank] = _Said()
        if len(content) > (LIMIT if kind == "stream" else RICH):
            content = self._shortened(kind, content)
            said.is_cut = said.is_cut or kind == "stream"
        said.add(kind, content)

    def of(self, rank: Rank) -> str:
        """Its text: streams, and what displays, results and errors are as plain text."""
        said = self._said.get(rank)
        if said is None:
            return ""
        parts = ["… what came before is not kept\n"] if said.is_cut else []
        for kind, content in said.messages:
            text = self._text(kind, content)
            if kind != "stream" and parts and not parts[-1].endswith("\n"):
                parts.append("\n")
            parts.append(text)
        return "".join(parts)

    def _log(self, rank: Rank, kind: str, content: bytes) -> None:
        if kind in ("stream", "error") and (text := self._text(kind, content)):
            self._stage.emit(AppendLog(self._stage.policy.log_dir, rank, text))

    def _text(self, kind: str, raw: bytes) -> str:
        try:
            content = read(raw)
            if kind == "stream":
                text = content.text("text")
                return unmarked(text) if self._is_marked else text
            return "\n".join(_lines(kind, content)) + "\n"
        except BadMessage:
            return ""

    @property
    def _is_marked(self) -> bool:
        return self._stage.policy.marks

    def _shortened(self, kind: str, content: bytes) -> bytes:
        if kind == "stream":
            return dumps({"text": self._text(kind, content)[-KEPT:]})
        return dumps({"data": {"text/plain": f"[{kind}, {len(content) // 1000} kB]"}})


def _lines(kind: str, content: Content) -> list[str]:
    if kind == "error":
        return [str(line) for line in content.items_of("traceback")]
    return [str(content.mapping("data").get("text/plain", f"[{kind}]"))]
