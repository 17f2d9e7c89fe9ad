"""The ranks: who lives, since when, and how one world gives way to the next.

The life of one rank is a table in `slot`.  Starting, resizing and bringing back ranks is one script
(`Group.start`), which waits for `StopRanks` and `LaunchRanks`; the hub resumes it when `Group` says
that they are through.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .conversation import Script
from .errors import Interrupted, RankLost
from .magics.base import ANSWER_SECONDS, Ask, RankView, StartReport
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
from .slot import START_SECONDS, Slot, State
from .stage import Stage
from .topology import Environments, World, world_of
from .wants import (
    LaunchRanks,
    StopRanks,
    carried_through,
    environment_code,
    silent,
)


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
        self._environments: Environments | None = None  # of the present world
        self.preload: tuple[str, ...] = ()
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
    def can_debug(self) -> bool:
        """Every live rank has IPython's debugger: kernels that wrap a program inherit its mere name."""
        infos = [self.slots[rank].info for rank in self.alive]
        return bool(infos) and all(map(_has_debugger, infos))

    @property
    def dead(self) -> tuple[Rank, ...]:
        return tuple(r for r, slot in self.slots.items() if slot.state is not State.READY)

    def view(self) -> tuple[RankView, ...]:
        return tuple(slot.view() for slot in self.slots.values())

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
        slot.pid, slot.info, slot.start = event.pid, event.info, event.start
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
        slots = [Slot(spec.rank, request.generation, env=spec.env) for spec in request.ranks]
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
        anew: tuple[Rank, ...] | None,
        kernel: str | None,
        count: int,
        replay: tuple[Replay, ...],
        facts: Facts,
        preload: tuple[str, ...] = (),
    ) -> Script:
        """Bring the world to ``size`` live ranks; returns a `StartReport`.

        See `magics.base.Start` for ``keep`` and ``anew``.  Raises `RankLost` when a rank cannot
        start; the other new ones are then stopped.
        """
        began, had = self._stage.at, False
        if not keep:
            had = yield from self._cleared()
            self.kernel, self.preload = kernel or self.kernel, preload
        fresh = anew if anew is not None else self._missing(size)
        kept = tuple(r for r in self.alive if r < size and r not in fresh)
        environments = self._next_environments(size, env, keep, facts)
        yield from self._launched(fresh, environments, keep)
        unheard, stopped = yield from self._settled(fresh, kept, environments, count)
        replay = replay if fresh else ()
        for item in replay:
            yield silent(fresh, item.code)
        alive = set(self.alive)
        what_set, cleared = environments.report()
        return StartReport(
            seconds=self._stage.at - began,
            ranks=fresh,
            set=tuple(what_set),
            cleared=tuple(cleared),
            replayed=tuple(dict.fromkeys(name for item in replay for name in item.names)),
            memory_cleared=had,
            kept=tuple(r for r in kept if r in alive),
            stopped=stopped,
            unheard=unheard,
            lost=tuple(r for r in fresh if r not in alive),
            restarts=environments.world.incarnation,
        )

    def renew_environment(self) -> Script:
        """A fresh MASTER_PORT, JAX port and restart count in every live rank's environment.

        Nobody is restarted: this is for ranks whose process groups were broken, since a rendezvous
        on a port that was used can hang.  Returns the ranks that were silent for `ANSWER_SECONDS`;
        those find it in their queue, before any later cell.
        """
        if self._environments is None:
            return ()
        self._environments = replace(self._environments, world=self._next_world(self.size))
        asks = self._news(self.alive, self._environments)
        answers, interrupted = yield from carried_through(asks)
        if interrupted is not None:
            raise interrupted
        return self._silent_ones(asks, answers)

    # ---------------------------------------------------------------- its parts

    def _cleared(self) -> Generator[StopRanks, None, bool]:
        """Everybody leaves; whether a memory to speak of went with them."""
        old = self.alive
        # The rank that the kernel itself started, and nobody used, has no memory to speak of, nor
        # anything that a slow, polite end would save.
        ran = any(self.slots[rank].seconds is not None for rank in old)
        had = bool(old) and (self._incarnation > 1 or ran)
        if leaving := self._present(self.slots):
            yield StopRanks(leaving, now=bool(old) and not had)
        self.slots.clear()
        return had

    def _present(self, ranks: Iterable[Rank]) -> tuple[Rank, ...]:
        """Those of them that have a process, whatever it does."""
        return tuple(r for r in ranks if r in self.slots and self.slots[r].state is not State.DEAD)

    def _missing(self, size: int) -> tuple[Rank, ...]:
        alive = self.alive
        return tuple(rank for rank in range(size) if rank not in alive)

    def _next_environments(
        self, size: int, env: Mapping[str, str], keep: bool, facts: Facts
    ) -> Environments:
        old = self._environments
        extra = {**old.extra, **env} if keep and old is not None else dict(env)
        settings = self._stage.settings
        return Environments(settings, self._next_world(size), extra, bool(facts.gpus))

    def _next_world(self, size: int) -> World:
        world = world_of(self._stage.settings, size, self._incarnation)
        self._incarnation += 1
        return world

    def _launched(
        self, ranks: tuple[Rank, ...], environments: Environments, keep: bool
    ) -> Iterator[Any]:
        """Start them, the old processes of these numbers gone first."""
        yield from self._made_way(ranks)
        if not ranks:
            return
        self._generation += 1
        specs = tuple(RankSpec(rank, *environments.of(rank)) for rank in ranks)
        settings = self._stage.settings
        request = LaunchRequest(self.kernel, self._generation, specs, settings.argv, self.preload)
        new = [rank for rank in ranks if rank not in self.slots]
        try:
            yield LaunchRanks(request)
        except Interrupted:
            yield from self._given_up(ranks, "its start was broken off")
            if keep:
                self._forget(new)
            raise
        lost = [self.slots[rank] for rank in ranks if self.slots[rank].state is State.DEAD]
        if lost:
            failure = self._cannot_start(lost[0], ranks)
            yield from self._given_up(ranks, f"it was stopped, since rank {lost[0].rank} failed")
            if keep:
                self._forget(new)
            else:
                self._start_failure = str(failure)
            raise failure
        self._start_failure = ""

    def _made_way(self, ranks: tuple[Rank, ...]) -> Iterator[Any]:
        old = self._present(ranks)
        if not old:
            return
        _, interrupted = yield from carried_through([StopRanks(old)])
        if interrupted is not None:
            for rank in old:
                self.slots[rank].ended_by = "was stopped, and its restart broken off"
            raise interrupted

    def _given_up(self, ranks: tuple[Rank, ...], why: str) -> Iterator[Any]:
        for rank in self._present(ranks):
            self.slots[rank].cause = Cause(missing=why)
        yield from carried_through([StopRanks(ranks, now=True)])

    def _forget(self, ranks: Iterable[Rank]) -> None:
        for rank in ranks:
            del self.slots[rank]

    def _cannot_start(self, slot: Slot, ranks: tuple[Rank, ...]) -> RankLost:
        what = f"rank {slot.rank} could not start: {slot.start_fault()}"
        if slot.stderr.strip():
            what += "\nits last words:\n" + slot.stderr.rstrip()
        if len(ranks) > 1:
            what += "\nthe other ranks that were starting were stopped"
        return RankLost(
            what,
            f"see that `jupyter console --kernel {self.kernel}` works; `spmd-kernel doctor` checks more",
        )

    def _settled(
        self,
        fresh: tuple[Rank, ...],
        kept: tuple[Rank, ...],
        environments: Environments,
        count: int,
    ) -> Generator[Any, Any, tuple[tuple[Rank, ...], tuple[Rank, ...]]]:
        """The new ranks are up: they are set up, the kept ones told, those above the size stopped.

        Returns who did not answer, and who was stopped.
        """
        self._environments, settings = environments, self._stage.settings
        code = f"{settings.setup}\n{padding_code((), count + 1)}"
        set_up = [silent(fresh, code)] if fresh and settings.language == "python" else []
        news = self._news(kept, environments)
        above = tuple(rank for rank in self.slots if rank >= environments.world.size)
        wants: list[Ask | StopRanks] = [*set_up, *news, *([StopRanks(above)] if above else [])]
        answers, interrupted = yield from carried_through(wants)
        self._forget(above)
        if interrupted is not None:
            raise interrupted
        return self._silent_ones(news, answers[len(set_up) :]), above

    def _news(self, ranks: tuple[Rank, ...], environments: Environments) -> list[Ask]:
        """What live ranks are told of a new world; one request for all that hear the same."""
        if self._stage.settings.language != "python":
            return []
        codes: dict[str, list[Rank]] = {}
        for rank in ranks:
            slot = self.slots[rank]
            code = environment_code(*environments.change(rank, slot.env))
            if (slot.env.get("WORLD_SIZE") == "1") != (environments.world.size == 1):
                code += f"\n{self._stage.settings.setup}"  # it prepares for one rank, or for more
            slot.env = environments.of(rank)[0]
            codes.setdefault(code, []).append(rank)
        return [silent(tuple(told), code, ANSWER_SECONDS) for code, told in codes.items()]

    def _silent_ones(self, asks: list[Ask], answers: list[Any]) -> tuple[Rank, ...]:
        unheard = {
            rank
            for ask, answer in zip(asks, answers, strict=False)
            for rank in ask.ranks
            if answer is None or answer[rank] is None
        }
        return tuple(rank for rank in self.alive if rank in unheard)


def _has_debugger(info: Mapping[str, Any]) -> bool:
    features = info.get("supported_features")
    inherits = info.get("implementation") != "ipython"
    return not inherits and isinstance(features, list) and "debugger" in features
