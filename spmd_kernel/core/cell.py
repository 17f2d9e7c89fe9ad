"""One execute request, from its arrival to its reply.  Messaging specification: "Execute"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .content import Content, read
from .conversation import Talk
from .errors import BadMessage
from .fanout import Fanout
from .model import Channel, FromFront, Message
from .outputs import Client
from .timings import Stopwatch

ROUND = " r"  # marks the request of a line magic: "<msg_id> r1"; ids of clients hold no blank


@dataclass(slots=True)
class Cell:
    channel: Channel
    idents: tuple[bytes, ...]
    message: Message
    content: Content
    count: int = 0
    began: float = 0.0
    talk: Talk | None = None
    fanout: Fanout | None = None
    last: Fanout | None = None  # the finished round whose replies count
    rounds: int = 0
    stored: bool = False
    magics: bool = False
    payload: list[Any] = field(default_factory=list)
    timing: Stopwatch = field(default_factory=Stopwatch)

    @property
    def code(self) -> str:
        return self.content.text("code")

    @property
    def silent(self) -> bool:
        return self.content.flag("silent")

    @property
    def unseen(self) -> bool:
        """Not the user's: clients keep what they run for themselves out of the history.

        VS Code wants to see the outputs of its set-up, so that is not silent.
        """
        return self.silent or not self.content.flag("store_history", True)

    @property
    def counts(self) -> bool:
        """IPython counts what it stores, and takes blank code for no cell at all."""
        stores = self.content.flag("store_history", not self.silent)
        return stores and not self.silent and bool(self.code.strip())

    @property
    def headless(self) -> bool:
        return not self.content.flag("allow_stdin", True)

    @property
    def client(self) -> Client:
        """Notebooks name the cell; a console has none to name."""
        if self.headless:
            return "headless"
        return "notebook" if "cellId" in self.message.metadata else "terminal"

    @property
    def msg_id(self) -> str:
        return self.message.msg_id

    @property
    def cell_id(self) -> str | None:
        """The notebook's own name of the cell, which survives a reload of the page."""
        cell_id = self.message.metadata.get("cellId")
        return cell_id if isinstance(cell_id, str) else None


def parse(event: FromFront) -> Cell:
    """Raises `BadMessage` when the request is not what the specification says."""
    content = read(event.message.content)
    if "code" not in content:
        raise BadMessage("execute_request has no 'code'")
    content.text("code")
    content.mapping("user_expressions")
    return Cell(event.channel, event.idents, event.message, content)


def commented(code: str) -> str:
    return "\n".join(f"# {line}" for line in code.splitlines()) or "#"
