"""What a DAP command is: a generator that asks ranks and returns the body of its one response.

``replies = yield Ask({rank: request, …})``: a rank's death or silence resumes it with a reply that
failed, so that no command waits for ever and none has to know why.  To add a command is to add a file
to `commands`; whatever has no file there is routed by what its arguments refer to (`routing`).

Terms are those of the Debug Adapter Protocol specification, and of the messaging specification's
"Debug request" for what Jupyter adds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..content import Content
from ..model import Rank

if TYPE_CHECKING:
    from .debugger import Debugger
    from .session import Session

ANSWER_SECONDS = 5.0
START_SECONDS = 15.0  # initialize, attach
EVALUATE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """What one rank is asked."""

    command: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """What it answered; ``message`` says why it did not do well."""

    success: bool
    body: Content = field(default_factory=Content)
    message: str = ""
    silent: bool = False  # no answer in time, or none at all

    def items(self, key: str) -> list[dict[str, Any]]:
        """The objects of a list in the body."""
        found = self.body.get(key)
        return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


Replies = Mapping[Rank, Reply]


@dataclass(frozen=True, slots=True)
class Ask:
    """Want: one request per rank; resumed with ``dict[Rank, Reply]``, one for each.

    ``whenever``: it is right however late it is read, and so goes to ranks that do not answer, too.
    """

    requests: Mapping[Rank, Request]
    seconds: float = ANSWER_SECONDS
    whenever: bool = False


@dataclass(frozen=True, slots=True)
class Stops:
    """Want: that these ranks have stopped, or will not; resumed with ``None`` after ``seconds`` at most."""

    ranks: tuple[Rank, ...]
    seconds: float
    key: int  # of its own


@dataclass(frozen=True, slots=True)
class Outcome:
    """Want: that it shows whether stopped ranks go on because of an interrupt; resumed with ``None``
    after ``seconds`` at most.
    """

    ranks: tuple[Rank, ...]
    seconds: float
    key: int  # of its own


@dataclass(frozen=True, slots=True)
class Until:
    """Want: what ``begin`` says is over by calling back; it returns what gives up on that."""

    begin: Callable[[Callable[[], None]], Callable[[], None]]


Steps = Generator[Any, Any, Any]
Play = Callable[["Call"], Steps]


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a client.  ``debugger`` is all that there is to know; ``session`` asked."""

    command: str
    arguments: Content
    session: Session
    debugger: Debugger


@dataclass(frozen=True, slots=True)
class Command:
    """``play`` returns the body of the response, or raises `SpmdError`: its text is the message."""

    name: str
    summary: str
    play: Play


class Policy(Protocol):
    """Which of the ranks' stops a client is told of, and when."""

    focus: Rank | None

    def stopped(self, rank: Rank) -> None: ...
    def resumed(self, ranks: Iterable[Rank]) -> None:
        """A request of a client let them go on."""

    def continued(self, rank: Rank) -> None: ...
    def thread(self, body: Mapping[str, Any]) -> None:
        """A thread began or ended."""

    def pin(self, rank: Rank) -> None:
        """The client wants to look at this one from now on."""

    def look_at(self, rank: Rank) -> None:
        """The client steps on this one."""

    def listed(self, threads: Mapping[Rank, int]) -> None:
        """The client asked which threads are stopped, and heard of these."""

    def reset(self) -> None:
        """Debugging is over: nothing is stopped any more."""

    def due(self) -> None:
        """The time that it asked for is over."""
