"""The ranks: who lives, since when, and how one world gives way to the next.

The life of one rank is a table in `slot`.  Starting, resizing and bringing back dead ranks is one script (`Group.start`), which waits for
`StopRanks` and `LaunchRanks`; the hub resumes it when `Group` says that they are through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .content import execute_content
from .conversation import Script
from .errors import Interrupted, RankLost
from .magics.base import Ask, RankView, StartReport
from .model import (
    Cause,
    Facts,
    Launch,
    LaunchRequest,
    Rank,
    RankExited,
    RankReady,
    RankSpec,
    Stop,
)
from .padding import padding_code
from .prelude import Replay
from .slot import Slot, State
from .stage import Stage
from .topology import World, rank_environment, report

START_SECONDS = 60.0  # a rank that is silent for so long at start is given up


Environments = Mapping[Rank, tuple[Mapping[str, str], frozenset[str]]]  # to set, to unset


@dataclass(frozen=True, slots=True)
class StopRanks:
    """Want: end these ranks; resumed with None when all are gone."""

    ranks: tuple[Rank, ...]
    now: bool = False


@dataclass(frozen=True, slots=True)
class LaunchRanks:
    """Want: start these; resumed with None once all are ready or one is lost."""

    request: LaunchRequest


@dataclass(frozen=True, slots=True)
class _Waiter:
    satisfied: Callable[[], bool]
    resume: Callable[..., None]


class Group:
    def __init__(self, stage: Stage):
        self._stage = stage
        self._generation = 0
        self._incarnation = 0
        self._waiter: _Waiter | None = None
        self.slots: dict[Rank, Slot] = {}
        self.kernel = stage.settings.kernel
        self.extra_env: Mapping[str, str] = {}
        self._start_failure = ""  # why the last start failed, until one succeeds
        self.info: Mapping[str, Any] = {}  # kernel_info of the first rank that ever got ready

    # ---------------------------------------------------------------- looking

    @property
    def size(self) -> int:
        return len(self.slots)

    @property
    def alive(self) -> tuple[Rank, ...]:
        return tuple(r for r, slot in self.slots.items() if slot.state is State.READY)

    @property
    def dead(self) -> tuple[Rank, ...]:
        return tuple(r for r, slot in self.slots.items() if slot.state is not State.READY)

    def view(self) -> tuple[RankView, ...]:
        return tuple(self._view(slot) for slot in self.slots.values())

    @staticmethod
    def _view(slot: Slot) -> RankView:
        state = "idle" if slot.state is State.READY else str(slot.state)
        if slot.state is State.READY and slot.busy_since is not None:
            state = "busy"
        cause = slot.ended_by or (str(slot.cause) if slot.cause else "")
        return RankView(slot.rank, slot.pid, state, slot.seconds, cause, slot.generation)

    def current(self, rank: Rank, generation: int) -> Slot | None:
        """The slot that an event of a rank speaks of, unless that process was replaced since."""
        slot = self.slots.get(rank)
        return slot if slot is not None and slot.generation == generation else None

    def obituaries(self) -> str:
        """Why not all ranks can run a cell, a line per dead rank."""
        if self._start_failure or not self.slots:
            return self._start_failure or "there is no rank"
        lines = [slot.obituary() for slot in self.slots.values() if slot.state is State.DEAD]
        return "\n".join(lines) or "the ranks are not ready"

    def could_not_start(self, why: str) -> None:
        self._start_failure = why

    def mark_busy(self, rank: Rank, since: float) -> None:
        self.slots[rank].busy_since = since

    def mark_done(self, rank: Rank, at: float) -> None:
        slot = self.slots[rank]
        if slot.busy_since is not None:
            slot.seconds, slot.busy_since = at - slot.busy_since, None

    # ---------------------------------------------------------------- what happens to ranks

    def ready(self, event: RankReady) -> None:
        slot = self.current(event.rank, event.generation)
        if slot is None or not slot.move("ready"):
            return
        slot.pid, slot.info = event.pid, event.info
        self.info = self.info or event.info
        self.check()

    def exited(self, event: RankExited) -> Slot | None:
        """Returns the slot whose rank died unasked, if that is what happened."""
        slot = self.current(event.rank, event.generation)
        if slot is None:
            return None
        unasked = slot.state is State.READY or (
            slot.state is State.STOPPING and bool(slot.ended_by)
        )
        if not slot.move("exited"):
            return None
        slot.cause = slot.cause or event.cause
        slot.stderr = event.stderr
        slot.busy_since = None
        return slot if unasked else None

    def check(self) -> None:
        """Go on with what waits for ranks; after a death, once everybody has heard of it."""
        waiter = self._waiter
        if waiter is not None and waiter.satisfied():
            self._waiter = None
            waiter.resume()

    def end(self, ranks: tuple[Rank, ...], why: str) -> None:
        """SIGKILL ranks that would not listen; their death is reported with ``why``."""
        for rank in ranks:
            self.slots[rank].ended_by = why
        self._stop(ranks, now=True)

    def _stop(self, ranks: tuple[Rank, ...], *, now: bool) -> None:
        moved = tuple(rank for rank in ranks if self.slots[rank].move("stop"))
        again = tuple(rank for rank in ranks if now and self.slots[rank].state is State.STOPPING)
        if targets := tuple(dict.fromkeys(moved + again)):
            self._stage.emit(Stop(targets, now=now))

    # ---------------------------------------------------------------- waiting

    def stop(self, want: StopRanks, resume: Callable[..., None]) -> Callable[[], None]:
        slots = [self.slots[rank] for rank in want.ranks]
        self._stop(want.ranks, now=want.now)
        return self._wait(lambda: all(slot.state is State.DEAD for slot in slots), resume)

    def launch(self, want: LaunchRanks, resume: Callable[..., None]) -> Callable[[], None]:
        request = want.request
        slots = [Slot(spec.rank, request.generation) for spec in request.ranks]
        self.slots.update((slot.rank, slot) for slot in slots)
        self.slots = dict(sorted(self.slots.items()))
        self._stage.emit(Launch(request))
        self._stage.timer(("start", request.generation), START_SECONDS)

        def through() -> bool:
            states = {slot.state for slot in slots}
            return State.STARTING not in states or State.DEAD in states

        def finish() -> None:
            self._stage.cancel(("start", request.generation))
            resume()

        return self._wait(through, finish)

    def _wait(
        self, satisfied: Callable[[], bool], resume: Callable[..., None]
    ) -> Callable[[], None]:
        waiter = _Waiter(satisfied, resume)
        self._waiter = waiter
        self.check()

        def give_up() -> None:
            if self._waiter is waiter:
                self._waiter = None

        return give_up

    def overdue(self, generation: int) -> None:
        """The start took too long: give up the ranks that have not answered."""
        for slot in self.slots.values():
            if slot.generation == generation and slot.state is State.STARTING:
                slot.cause = Cause(silent=True)
                self._stage.emit(Stop((slot.rank,), now=True))

    # ---------------------------------------------------------------- the script

    def start(
        self,
        size: int,
        *,
        env: Mapping[str, str],
        keep: bool,
        kernel: str | None,
        count: int,
        replay: tuple[Replay, ...],
        facts: Facts,
    ) -> Script:
        """Bring the world to ``size`` live ranks; returns a `StartReport`.

        ``keep``: the live ranks stay and only the dead are brought back; otherwise everybody is
        new.  Raises `RankLost` when a rank cannot start; the other new ones are then stopped.
        """
        began = self._stage.at
        old = self.alive if not keep else ()
        busy = tuple(
            r for r in self.slots if self.slots[r].state in (State.STARTING, State.STOPPING)
        )
        if old or busy:
            yield StopRanks(tuple(sorted(old + busy)))
        had = bool(old) and (self._incarnation > 1 or self._ran_a_cell(old))
        survivors = self.alive
        self.extra_env = {**self.extra_env, **env} if keep else dict(env)
        if not keep:
            self.slots.clear()
            self.kernel = kernel or self.kernel
        missing = tuple(rank for rank in range(size) if rank not in survivors)
        world = self._next_world(size)
        environments = {
            rank: rank_environment(
                self._stage.settings, world, rank, self.extra_env, gpus=bool(facts.gpus)
            )
            for rank in range(size)
        }
        yield from self._launched(missing, environments)
        yield from self._set_up(missing, survivors, environments, count, replay)
        what_set, cleared = report(self._stage.settings, world, self.extra_env)
        return StartReport(
            seconds=self._stage.at - began,
            ranks=missing,
            set=tuple(what_set),
            cleared=tuple(cleared),
            replayed=tuple(dict.fromkeys(name for item in replay for name in item.names)),
            memory_cleared=had,
        )

    def _ran_a_cell(self, ranks: tuple[Rank, ...]) -> bool:
        """The rank that the kernel itself started, and nobody used, has no memory to speak of."""
        return any(self.slots[rank].seconds is not None for rank in ranks)

    def _next_world(self, size: int) -> World:
        ports = self._stage.settings.ports or (29500, 29501)
        pairs = len(ports) // 2
        index = self._incarnation % pairs
        world = World(
            size=size,
            incarnation=self._incarnation,
            master_port=ports[2 * index],
            jax_port=ports[2 * index + 1],
            run_id=self._stage.settings.session,
        )
        self._incarnation += 1
        return world

    def _launched(
        self,
        ranks: tuple[Rank, ...],
        environments: Environments,
    ) -> Iterator[Any]:
        self._generation += 1
        specs = tuple(RankSpec(rank, *environments[rank]) for rank in ranks)
        settings = self._stage.settings
        request = LaunchRequest(self.kernel, self._generation, specs, settings.argv)
        try:
            yield LaunchRanks(request)
        except Interrupted:
            for rank in ranks:
                self.slots[rank].cause = Cause(missing="its start was broken off")
            yield StopRanks(ranks, now=True)
            raise
        lost = [self.slots[rank] for rank in ranks if self.slots[rank].state is State.DEAD]
        if lost:
            yield StopRanks(ranks, now=True)
            failure = self._cannot_start(lost[0], ranks)
            self._start_failure = str(failure)
            raise failure
        self._start_failure = ""

    def _cannot_start(self, slot: Slot, ranks: tuple[Rank, ...]) -> RankLost:
        what = f"rank {slot.rank} could not start: {_start_fault(slot.cause)}"
        if slot.stderr.strip():
            what += "\nits last words:\n" + slot.stderr.rstrip()
        if len(ranks) > 1:
            what += "\nthe other ranks that were starting were stopped"
        return RankLost(
            what,
            f"see that `jupyter console --kernel {self.kernel}` works; `spmd-kernel doctor` checks more",
        )

    def _set_up(
        self,
        new: tuple[Rank, ...],
        survivors: tuple[Rank, ...],
        environments: Environments,
        count: int,
        replay: tuple[Replay, ...],
    ) -> Iterator[Any]:
        """Silent code of ours on new ranks, then what the client had prepared the old ones with."""
        settings = self._stage.settings
        if settings.language == "python":
            yield _silent(new, f"{settings.setup}\n{padding_code((), count + 1)}")
            for rank in survivors:
                yield _silent(
                    (rank,), f"__import__('os').environ.update({environments[rank][0]!r})"
                )
        for item in replay:
            yield _silent(new, item.code)


def _silent(ranks: tuple[Rank, ...], code: str) -> Ask:
    return Ask(ranks, "execute_request", execute_content(code, silent=True))


def _start_fault(cause: Cause | None) -> str:
    if cause is None:
        return "it is gone"
    if cause.silent:
        return f"it did not answer within {START_SECONDS:.0f} s"
    return str(cause) if cause.missing else f"the process {_was(cause)}"


def _was(cause: Cause) -> str:
    return f"was {cause}" if cause.signal is not None else str(cause)
