"""The narrow door between the kernel and whatever starts rank processes.

An engine starts processes, says when they are gone, signals and stops them.  It knows no Jupyter
message: readiness is judged by `io.rank`, meaning by the core.  Called by `io.driver`, on its event
loop and from its thread; an engine calls back on that same loop.

Engines are found by the entry-point group ``spmd_kernel.engines``; the value is a factory
``(EngineContext) -> Engine``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ..core.model import Cause, LaunchRequest, Pulse, Rank


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a started rank will bind its sockets.

    ``addresses`` maps shell, iopub, stdin, control (and hb) to zmq addresses.  ``key``: that of the
    context, or empty where nobody else can reach the sockets and messages need no signature.
    """

    rank: Rank
    generation: int
    pid: int
    addresses: Mapping[str, str]
    key: bytes
    interrupt_mode: Literal["signal", "message"] = "signal"
    start: str = ""  # how its process was started, in a word for `%ranks`: fork, spawn


@dataclass(frozen=True, slots=True)
class LastWords:
    """Text that a dead rank wrote to a stream of its own: some that it sent, and some it had not yet.

    ``msg_id``: the message that ends with what was sent; empty if there is none.
    """

    stream: str
    sent: str
    msg_id: str
    unsent: str


class EngineEvents(Protocol):
    """What an engine reports; implemented by `io.driver`."""

    def rank_started(self, endpoint: Endpoint) -> None:
        """The process runs; its sockets need not be bound yet."""

    def rank_exited(
        self,
        rank: Rank,
        generation: int,
        cause: Cause,
        stderr: str,
        words: Sequence[LastWords] = (),
    ) -> None:
        """The process is gone (or never came to be: `Cause.missing`). Exactly once per rank of a launch."""


@dataclass(frozen=True, slots=True)
class EngineContext:
    loop: asyncio.AbstractEventLoop
    events: EngineEvents
    key: bytes  # HMAC key that all ranks of this kernel share
    environ: Mapping[str, str]


class Engine(Protocol):
    name: str

    def start(self, request: LaunchRequest) -> None:
        """Begin to start the ranks and return; never raises for a rank: that is `rank_exited`."""

    def preload(self, request: LaunchRequest, done: Callable[[str], None]) -> None:
        """Get ready to start such ranks quickly, with ``request.preload`` imported already.

        ``done`` hears why that cannot be, or an empty text.
        """

    def signal(self, ranks: Sequence[Rank], signum: int) -> None:
        """Signal the ranks' process groups; ranks already gone are skipped."""

    def expect_end(self, ranks: Sequence[Rank]) -> None:
        """These ranks were asked to end by themselves: whatever they started goes with them."""

    def stop(self, ranks: Sequence[Rank], *, now: bool) -> None:
        """SIGTERM then SIGKILL after a grace (``now``: SIGKILL at once), with every descendant.

        The polite shutdown_request is the driver's. Each rank answers with `rank_exited`.
        """

    def pids(self) -> Mapping[Rank, int]:
        """The live processes, for `Survey`."""

    def dump(
        self,
        ranks: Sequence[Rank],
        done: Callable[[Mapping[Rank, str], Mapping[Rank, Pulse]], None],
    ) -> None:
        """Have faulthandler write the stacks of ranks; ``done`` hears once, soon (`model.Dump`)."""

    def unblock(
        self, ranks: Sequence[Rank], ports: Sequence[int], *, store: bool
    ) -> tuple[Mapping[Rank, int], Mapping[Rank, tuple[tuple[int, int], ...]]]:
        """Close connections of ranks to their peers (`model.Unblock`); returns (closed, refused)."""

    async def close(self) -> None:
        """Kill whatever is left, reap it, remove files and directories. Idempotent."""
