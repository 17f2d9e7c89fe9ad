"""Stop, a rung at a time, for the ranks of a cell that do not end by themselves.

======  ==================================================================================
0 s     SIGINT to their process groups, and a request that wakes ``await asyncio.sleep``
1 s …   those in a collective that can never end, because a peer is not coming (it is done,
        failed, dead, or all wait): their connections are closed (`Unblock`)
2 s     SIGINT once more
5 s     the cell says who is still busy and where; a second Stop restarts just those
======  ==================================================================================

One Stop never costs a rank its variables.  A second one counts from 2 s after the first on.
Ranks that ask again, as debuggers do when they are interrupted, are not busy: they wait for an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from .collectives import Wait
from .content import dumps
from .conversation import Script
from .fanout import Fanout
from .lookouts import Lookouts
from .magics.wording import name_ranks
from .model import Dumped, Header, Rank, Unblocked
from .rescue import abort_nccl, join_jax, shut_inside
from .sight import Sight
from .stacks import folded
from .stage import Stage
from .where import frame_lines

FIRST_LOOK = 1.0
AGAIN = 2.0  # seconds until the second SIGINT, and until a second Stop counts
TELL = 5.0
LOOKS = (FIRST_LOOK, AGAIN, 3.0, 4.0, TELL)
LATER = 5.0  # between looks after those: a long C call may end, and leave its peers waiting
Help = Literal["start", "meet"]  # JAX's devices; a first collective over some of them
FRAMES = 6  # innermost frames that the message shows


class Cell(Protocol):
    """The round at hand (`rounds.Rounds`)."""

    @property
    def fanout(self) -> Fanout | None: ...
    def stuck(self, fanout: Fanout) -> tuple[Rank, ...]: ...
    def interrupt(self, fanout: Fanout, ranks: tuple[Rank, ...]) -> None: ...


class Ranks(Protocol):
    """What the ladder needs of the group."""

    @property
    def alive(self) -> tuple[Rank, ...]: ...
    @property
    def size(self) -> int: ...
    def end(self, ranks: tuple[Rank, ...], why: str) -> None: ...


@dataclass(slots=True)
class _Climb:
    fanout: Fanout
    began: float
    looks: int = 0
    stopped_at: float | None = None  # by the user; else by the failure of a peer
    sight: Sight | None = None
    tries: dict[Rank, int] = field(default_factory=dict)
    helped: dict[Help, int] = field(default_factory=dict)  # ranks whose help is still to come
    joined: bool = False  # others took part in what ranks waited for
    told: bool = False  # that the process group is broken


class Ladder:
    def __init__(
        self,
        stage: Stage,
        cell: Cell,
        ranks: Ranks,
        lookouts: Lookouts,
        play: Callable[[Script, Callable[[object], None]], None],
        header: Callable[[], Header | None],
    ):
        """``play`` runs a script beside the cell; ``header`` is the running cell's."""
        self._stage = stage
        self._cell = cell
        self._ranks = ranks
        self._lookouts = lookouts
        self._play = play
        self._header = header
        self._climb: _Climb | None = None
        self.restarted: tuple[Rank, ...] = ()  # by a second Stop: to be brought back

    def _current(self) -> _Climb | None:
        """The climb of the round at hand; one of a round that is over is of no use."""
        climb = self._climb
        return climb if climb is not None and climb.fanout is self._cell.fanout else None

    # ---------------------------------------------------------------- Stop

    def begin(self) -> None:
        """The ranks of the round were interrupted just now.  A world of one is an ordinary kernel."""
        fanout = self._cell.fanout
        if fanout is None or self._current() is not None or fanout.world_size == 1:
            return
        self._climb = _Climb(fanout, self._stage.at)
        self._stage.timer(("ladder", fanout.msg_id), FIRST_LOOK)

    def stopped(self) -> None:
        """The user pressed Stop (and `begin` was called if there was anything to stop)."""
        climb = self._current()
        if climb is not None and climb.stopped_at is None:
            climb.stopped_at = self._stage.at

    def restart(self) -> bool:
        """A second Stop: end the ranks that are still busy, if it is time.  False: it is none."""
        climb = self._current()
        if climb is None or climb.stopped_at is None:
            return False
        seconds = self._stage.at - climb.stopped_at
        stuck = self._cell.stuck(climb.fanout)
        if seconds < AGAIN or climb.looks < LOOKS.index(AGAIN) + 1 or not stuck:
            return False
        for rank in stuck:
            place = climb.sight.place(rank) if climb.sight else ""
            self._ranks.end(
                (rank,),
                f"was restarted: it was still busy {seconds:.0f} s after Stop"
                + (f" ({place})" if place else ""),
            )
        self.restarted = stuck
        return True

    def over(self, header: Header) -> tuple[bool, tuple[Rank, ...]]:
        """The cell has ended: whether a group may be broken, and the ranks to bring back."""
        climb, self._climb = self._climb, None
        restarted, self.restarted = self.restarted, ()
        if climb is None:
            return False, restarted
        joined = climb.joined or climb.helped.get("start", 0) > 0
        if joined and not climb.told:
            self._stage.publish("stream", dumps({"name": "stderr", "text": JOINED}), header)
        return climb.told or joined, restarted

    # ---------------------------------------------------------------- rungs

    def due(self, msg_id: str) -> None:
        climb = self._current()
        if climb is None or climb.fanout.msg_id != msg_id or not climb.fanout.running:
            return
        at = LOOKS[climb.looks] if climb.looks < len(LOOKS) else None
        climb.looks += 1
        if at == AGAIN:
            self._interrupt_again(climb)
        self._lookouts.dump(climb.fanout.running, partial(self._seen, climb, at))
        then = (
            climb.began + LOOKS[climb.looks] if climb.looks < len(LOOKS) else self._stage.at + LATER
        )
        self._stage.timer(("ladder", msg_id), max(0.0, then - self._stage.at))

    def _interrupt_again(self, climb: _Climb) -> None:
        """Not those just freed, or at their traceback: another might cost them their reply."""
        failing = climb.sight.is_failing if climb.sight is not None else lambda _: False
        stuck = self._cell.stuck(climb.fanout)
        ranks = tuple(rank for rank in stuck if rank not in climb.tries and not failing(rank))
        if ranks:
            self._cell.interrupt(climb.fanout, ranks)

    def _seen(self, climb: _Climb, at: float | None, dumped: Dumped) -> None:
        if self._current() is not climb:
            return
        sight = climb.sight = Sight.of(dumped, climb.fanout.running_code())
        running = climb.fanout.running
        if len(running) < self._ranks.size or sight.all_wait(running):
            self._unblock(climb, sight, [rank for rank in running if rank in sight.waits])
        if at == TELL and (stuck := self._cell.stuck(climb.fanout)):
            self._tell(self._still_busy(climb, sight, stuck))

    def _unblock(self, climb: _Climb, sight: Sight, stuck: list[Rank]) -> None:
        """Each rank in the way that its own wait needs; what did not help is tried in the other."""
        ways: dict[str, list[Rank]] = {}
        for rank in stuck:
            tried = climb.tries.get(rank, 0)
            climb.tries[rank] = tried + 1
            ways.setdefault(_way(sight.waits[rank], tried), []).append(rank)
        if start := tuple(ways.get("start", ())):
            self._help(climb, sight, start, "start")
        meet = tuple(ways.get("meet", ()))
        if meet and not self._help(climb, sight, meet, "meet"):
            self._shut(climb, sight, meet)
        for way in ("group", "store"):
            if ranks := tuple(ways.get(way, ())):
                self._shut(climb, sight, ranks, store=way == "store")

    def _shut(
        self, climb: _Climb, sight: Sight, ranks: tuple[Rank, ...], *, store: bool = False
    ) -> None:
        ports = self._stage.settings.ports
        resume = partial(self._unblocked, climb, sight, ranks)
        self._lookouts.unblock(ranks, ports[::2] if store else ports, resume, store=store)

    def _unblocked(
        self, climb: _Climb, sight: Sight, ranks: tuple[Rank, ...], event: Unblocked
    ) -> None:
        if self._current() is not climb:
            return
        libraries: set[str] = {sight.waits[rank].library for rank in ranks}
        if event.refused:
            self._play(shut_inside(event.refused), lambda _: None)
        if event.refused or any(event.closed.values()):
            self._is_broken(climb, libraries)
        elif "torch" in libraries and all(climb.tries[rank] == 1 for rank in ranks):
            # No connection, and yet it waits: NCCL has other ways than TCP.
            self._play(abort_nccl(ranks), lambda found: self._aborted(climb, found))

    def _aborted(self, climb: _Climb, ranks: object) -> None:
        if ranks and self._current() is climb:
            self._is_broken(climb, {"torch"})

    def _help(self, climb: _Climb, sight: Sight, waiting: tuple[Rank, ...], what: Help) -> bool:
        """JAX's processes start their devices together, and connect before they first compute
        together, through its coordinator: other ranks can take part in that.  False: none can.
        """
        alive, running = self._ranks.alive, climb.fanout.running
        each_other = what == "meet" and len(waiting) > 1
        able = [rank for rank in alive if each_other or rank not in waiting]
        whole = len(alive) == self._ranks.size and sight.all_wait(running)
        if what in climb.helped or not whole or not able:
            return False
        climb.helped[what] = len(able)
        for rank in able:
            script = join_jax(rank, waiting if what == "meet" else (), beside=rank in running)
            self._play(script, partial(self._helped, climb, sight, waiting, what, rank))
        return True

    def _helped(
        self,
        climb: _Climb,
        sight: Sight,
        waiting: tuple[Rank, ...],
        what: Help,
        rank: Rank,
        joined: object,
    ) -> None:
        """If there was nothing to take part in, the ranks wait for something else."""
        if joined is None and rank not in climb.fanout.running:
            # Who helped is not to be stuck for it, whether the cell still runs or not.
            self._lookouts.unblock((rank,), self._stage.settings.ports, lambda _: None, store=False)
        climb.helped[what] -= 1
        climb.joined |= what == "start" and joined is not False
        left = tuple(rank for rank in waiting if rank in climb.fanout.running)
        if self._current() is climb and left and what == "meet" and not climb.helped[what]:
            self._shut(climb, sight, left)

    # ---------------------------------------------------------------- saying

    def _is_broken(self, climb: _Climb, libraries: set[str]) -> None:
        if climb.told:
            return
        climb.told = True
        self._tell(
            "Stop closed the connections between the ranks, which waited for each other: their "
            "process group is broken; all variables are kept\n"
            + "".join(f"hint: {BROKEN[library]}\n" for library in sorted(libraries))
        )

    def _still_busy(self, climb: _Climb, sight: Sight, running: tuple[Rank, ...]) -> str:
        shown = {rank: sight.stacks[rank] for rank in running if sight.stacks.get(rank)}
        lines = []
        for ranks, stack in folded(shown):
            lines.append(f"{name_ranks(ranks)}: {sight.place(ranks[0])}\n")
            lines += frame_lines(stack[:FRAMES], sight.code)
        if silent := [rank for rank in running if rank not in shown]:
            lines.append(f"{name_ranks(silent)}: no answer\n")
        one = len(running) == 1
        return (
            f"{name_ranks(running)} {'is' if one else 'are'} still busy {TELL:.0f} s after Stop\n"
            + "".join(lines)
            + f"hint: a second Stop restarts {name_ranks(running)}, whose variables are then lost"
            + (" (the others keep theirs)\n" if len(running) < self._ranks.size else "\n")
        )

    def _tell(self, text: str) -> None:
        header = self._header()
        if header is not None:
            self._stage.publish("stream", dumps({"name": "stderr", "text": text}), header)


def _way(wait: Wait, tried: int) -> str:
    """A wait for a key ends with the rank's connection to the store; other waits with its peers'."""
    if wait.kind == "store" and tried % 2:
        return "group"
    return "meet" if wait.kind == "group" and wait.library == "jax" and not tried else wait.kind


JOINED = (
    "Stop had other ranks take part in what JAX's processes do together, so that it could end; all "
    "variables are kept\n"
    "hint: all ranks have to make the same calls; if a collective fails from now on, "
    "`%processes N --fresh` starts new ranks\n"
)
BROKEN = {
    "torch": "destroy_process_group() where torch.distributed.is_initialized(), then "
    "init_process_group() on all ranks: MASTER_PORT is a new one by then",
    "jax": "collectives over the same devices fail from now on; save what you need, then "
    "`%processes N --fresh` starts new ranks",
    "mpi": "restart the ranks with `%processes N --fresh`",
}
