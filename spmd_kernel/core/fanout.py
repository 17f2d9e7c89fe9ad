"""One round of a cell on its ranks: from the request sent until each has replied and is idle, or died."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .content import Content, dumps
from .errors import TimeLimit, headline
from .model import Message, Rank
from .outputs import Publish, Unfinished
from .outputs.labels import label
from .pace import NOBODY
from .stacks import RunningCode


class Outputs(Protocol):
    """`outputs.CellOutputs`, or `Bare` at world size 1."""

    def feed(self, rank: Rank, message: Message, at: float) -> list[Publish]: ...
    def cut(self, rank: Rank, at: float) -> list[Publish]: ...
    def finish(self, rank: Rank, at: float) -> list[Publish]: ...
    def tick(self, at: float) -> list[Publish]: ...
    def close(self, at: float) -> list[Publish]: ...
    def deadline(self) -> float | None: ...
    @property
    def is_behind(self) -> bool: ...
    @property
    def unfinished(self) -> Unfinished | None: ...
    def full(self) -> frozenset[Rank]: ...
    def hurry(self) -> None: ...


class Bare:
    """World size 1 is transparent: what the rank sends is what the client gets, byte for byte."""

    is_behind = False
    unfinished = None

    def feed(self, rank: Rank, message: Message, at: float) -> list[Publish]:
        return [raw(message)]

    def cut(self, rank: Rank, at: float) -> list[Publish]:
        return []

    finish = cut

    def tick(self, at: float) -> list[Publish]:
        return []

    close = tick

    def deadline(self) -> float | None:
        return None

    def full(self) -> frozenset[Rank]:
        return NOBODY

    def hurry(self) -> None:
        pass


def raw(message: Message) -> Publish:
    return Publish(message.msg_type, message.content, message.metadata, message.buffers)


@dataclass(slots=True)
class Fanout:
    msg_id: str
    ranks: tuple[Rank, ...]
    world_size: int
    outputs: Outputs
    started: float
    resume: Callable[[], None]
    stores: bool  # the round that counts: its replies are the cell's
    code: str = ""  # as it was sent
    replies: dict[Rank, Content] = field(default_factory=dict)
    reply: Message | None = None  # the last one as it came, for world size 1
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the first one: when it started
    idle: set[Rank] = field(default_factory=set)
    lost: dict[Rank, dict[str, Any]] = field(default_factory=dict)  # error content per dead rank
    first_failure: tuple[Rank, dict[str, Any]] | None = None
    fences: dict[str, set[Rank]] = field(default_factory=dict)  # see `Cells._fence`
    armed: float | None = None  # deadline of `outputs` that a timer is set for
    fence_set: bool = False
    interrupted: bool = False
    stopped: set[Rank] = field(default_factory=set)  # these alone were interrupted
    refused: dict[Rank, dict[str, Any]] = field(
        default_factory=dict
    )  # error of an unheard question
    settled: set[Rank] = field(default_factory=set)  # done, and the outputs know it
    ended: dict[Rank, float] = field(
        default_factory=dict
    )  # when its reply or idle came, or it died
    limit: float | None = None  # seconds that it may take
    overdue: TimeLimit | None = None  # it took longer: what is said of that

    def running_code(self) -> RunningCode:
        return RunningCode.of(self.code)

    def is_done(self, rank: Rank) -> bool:
        return rank in self.lost or (rank in self.replies and rank in self.idle)

    @property
    def running(self) -> tuple[Rank, ...]:
        return tuple(rank for rank in self.ranks if not self.is_done(rank))

    def is_half_done(self, rank: Rank) -> bool:
        """It replied without idle or the other way round: messages get lost."""
        return rank not in self.lost and (rank in self.replies) != (rank in self.idle)

    @property
    def half_done(self) -> tuple[Rank, ...]:
        return tuple(rank for rank in self.ranks if self.is_half_done(rank))

    @property
    def failed(self) -> bool:
        return bool(self.lost) or any(r.get("status") != "ok" for r in self.replies.values())

    def note_failure(self, rank: Rank, error: dict[str, Any]) -> None:
        self.first_failure = self.first_failure or (rank, error)

    def error(self) -> dict[str, Any]:
        """The root cause, its rank named in the first line of the traceback."""
        assert self.first_failure is not None  # whatever makes `failed` true was noted
        rank, error = self.first_failure
        trace = [str(line) for line in error.get("traceback") or []]
        if self.world_size > 1 and not self._all_alike(error):
            head = label((rank,), self.world_size)
            first, *others = trace or [headline(error)]
            trace = [head + first, *others]
        return {**error, "traceback": trace}

    def _all_alike(self, error: dict[str, Any]) -> bool:
        key = error.get("ename"), error.get("evalue")
        return not self.lost and all(
            (reply.get("ename"), reply.get("evalue")) == key for reply in self.replies.values()
        )


def error_message(error: dict[str, Any]) -> Message:
    """An error output of ours in the shape of one that a rank sends."""
    return Message({"msg_type": "error"}, {}, {}, dumps(error))
