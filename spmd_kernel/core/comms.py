"""Who owns each comm, both ways.

A comm that a rank opens belongs to that rank; one that a front end opens belongs to every rank that
lived then.  A message to a comm goes to its owners only, and clients hear that it is closed when its
last owner closes it.  Source: Jupyter messaging, "Custom Messages"; comm_info is answered from this
table, so it answers while cells run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .captures import Captures
from .content import Content, read
from .echoes import Echoes
from .errors import BadMessage
from .model import NO_SUBSHELLS, Header, Message, Rank, Subshells, ToRank
from .outputs import DisplayIds
from .stage import Stage
from .widget_states import TARGET, WidgetStates, is_question, method_of

COMMS = {"comm_open", "comm_msg", "comm_close"}


class Own(Protocol):
    """Comms of the kernel itself, which no rank hears of."""

    def heard(self, message: Message, content: Content) -> bool:
        """A client's message. False: it is of another comm."""

    @property
    def targets(self) -> dict[str, str]:
        """Target names of the open ones, by id."""


@dataclass(slots=True)
class _Comm:
    """``beside``: subshells in which its owners are asked, for they were at work when it was opened."""

    target: str
    owners: set[Rank] = field(default_factory=set)
    beside: Subshells = field(default_factory=dict)


@dataclass(slots=True)
class _Served:
    """A client's message that its owners are at work on."""

    header: Header
    owners: set[Rank]
    subshells: Subshells = field(default_factory=dict)  # where the owners are at work on it
    states: WidgetStates | None = None  # what it asks for, if it asks for those of all widgets
    said: bool = False  # that we are busy with it


@dataclass(slots=True)
class _Fence:
    """Answered, these messages have been served, whether the rank has said so or not."""

    rank: Rank
    served: list[str]
    left: dict[str, str]  # the shells that have not answered, by message


class Comms:
    def __init__(
        self,
        stage: Stage,
        own: Own,
        serving_ends: Callable[[str], None],
        display_ids: DisplayIds,
        echoes: Echoes,
        beside: Callable[[], Subshells] = lambda: NO_SUBSHELLS,
    ):
        """``serving_ends`` hears the id of a client's message right before its idle.

        ``beside``: the private subshells of ranks whose main one is at work.
        """
        self._stage = stage
        self._own = own
        self._beside = beside
        self._serving_ends = serving_ends
        self._echoes = echoes
        self.captures = Captures(stage, display_ids, echoes)
        self._comms: dict[str, _Comm] = {}
        self._served: dict[str, _Served] = {}
        self._fences: dict[str, _Fence] = {}

    def from_rank(self, rank: Rank, message: Message, home: Header, world: int) -> None:
        """Keep the table, and tell clients.  ``home``: the client's request it belongs to."""
        content = read(message.content)
        comm_id = content.text("comm_id")
        if message.msg_type == "comm_open":
            comm = self._comms.setdefault(comm_id, _Comm(content.text("target_name")))
            comm.owners.add(rank)
            self.captures.opened(rank, comm_id, content)
        elif message.msg_type == "comm_close":
            self.captures.closed(rank, comm_id)
            self._drop(comm_id, {rank})
            if comm_id in self._comms:
                return  # other ranks still have it
        elif self._is_part(rank, comm_id, content, message):
            return
        passed = self.captures.passed_on(rank, comm_id, content, message, world)
        if passed is not None:
            self._stage.publish(
                message.msg_type, passed.content, home, passed.metadata, passed.buffers
            )

    def from_front(
        self,
        message: Message,
        alive: tuple[Rank, ...],
        world: int,
        subshells: Subshells = NO_SUBSHELLS,
    ) -> None:
        """Send it to its owners.  Idle follows when they are done with it: widgets throttle by it.

        ``subshells``: those that serve it; the main shell of ranks that have none.
        """
        served = _Served(message.header, set(), subshells)
        try:
            self._address(served, message, alive, world)
        finally:
            if served.owners:  # first of all: a slider that is dragged waits for the answer
                self._send(served, message)
            self._say_busy(served)
            if not served.owners:
                self._stage.status("idle", message.header)

    def _say_busy(self, served: _Served) -> None:
        if not served.said:
            served.said = True
            self._stage.status("busy", served.header)

    def _send(self, served: _Served, message: Message) -> None:
        self._served[message.msg_id] = served
        if "subshell_id" in message.header:
            plain = {key: value for key, value in message.header.items() if key != "subshell_id"}
            message = replace(message, header=plain)
        self._stage.to_shells(tuple(sorted(served.owners)), message, served.subshells)

    def _address(
        self, served: _Served, message: Message, alive: tuple[Rank, ...], world: int
    ) -> None:
        content = read(message.content)
        comm_id = content.text("comm_id")
        self._echoes.came(comm_id)
        kind = message.msg_type
        if kind == "comm_open" or comm_id not in self._comms:
            self._say_busy(served)
            if self._own.heard(message, content):
                return
        served.owners = self._owners(kind, comm_id, content, alive)
        comm = self._comms.get(comm_id)
        if comm is not None and comm.target == TARGET and not served.subshells:
            # A page that was loaded again draws its widgets, whatever cell runs.
            if kind == "comm_open":
                comm.beside = self._beside()
            served.subshells = comm.beside
        if world > 1 and comm is not None and is_question(comm.target, content):
            served.states = WidgetStates(comm_id, set(range(world)).difference(alive))

    def _owners(
        self, kind: str, comm_id: str, content: Content, alive: tuple[Rank, ...]
    ) -> set[Rank]:
        if kind == "comm_open" and alive:
            self._comms[comm_id] = _Comm(content.text("target_name"), set(alive))
        comm = self._comms.get(comm_id)
        if comm is None:
            self._stage.log("info", f"{kind} for a comm that no rank has: {comm_id!r}")
            return set()
        owners = comm.owners & set(alive)
        if kind == "comm_close":
            for rank in owners:
                self.captures.closed(rank, comm_id)
            self._drop(comm_id, owners)
        return owners

    def idle(self, msg_id: str, rank: Rank) -> None:
        """A rank is done with a request, perhaps one of a comm."""
        fence = self._fences.get(msg_id)
        if fence is None or fence.rank != rank:
            self._is_served(msg_id, rank)
            return
        del self._fences[msg_id], fence.left[msg_id]
        for served in fence.served if not fence.left else ():
            self._is_served(served, rank)

    def cell_ended(self, rank: Rank) -> None:
        """ipykernel 7.4 serves a comm in the midst of an async cell, and does not say that it has.

        So it is asked something behind that, in each shell that it can have been served in.
        """
        served = [msg_id for msg_id, served in self._served.items() if rank in served.owners]
        if not served:
            return
        shells = {self._served[msg_id].subshells.get(rank, "") for msg_id in served} | {""}
        fence = _Fence(rank, served, {})
        for shell in sorted(shells):
            request = self._stage.own_request("kernel_info_request", {}, shell)
            self._fences[request.msg_id], fence.left[request.msg_id] = fence, shell
            self._stage.emit(ToRank((rank,), "shell", request))

    def _is_served(self, msg_id: str, rank: Rank) -> None:
        served = self._served.get(msg_id)
        if served is None:
            return
        served.owners.discard(rank)
        if not served.owners:
            del self._served[msg_id]
            if served.states is not None:
                self._answer(served.states, served.header)
            self._serving_ends(msg_id)
            self._stage.status("idle", served.header)

    def are_in(self, subshells: Subshells) -> bool:
        """Ranks are at work there on messages of clients."""
        return any(served.subshells is subshells for served in self._served.values()) or any(
            subshells.get(fence.rank) in fence.left.values() for fence in self._fences.values()
        )

    # ---------------------------------------------------------------- states of all widgets

    def _is_part(self, rank: Rank, comm_id: str, content: Content, message: Message) -> bool:
        """A rank's answer to a question that is answered once for all ranks."""
        served = self._served.get(message.parent_id)
        states = served.states if served is not None else None
        if states is None or states.comm_id != comm_id or method_of(content) != "update_states":
            return False
        try:
            states.add(rank, content, message)
        except BadMessage as error:
            self._stage.log("warning", f"rank {rank}: states of its widgets dropped: {error}")
        return True

    def _answer(self, states: WidgetStates, header: Header) -> None:
        if not states.is_answer:
            return
        if states.missing:
            ranks = ", ".join(map(str, sorted(states.missing)))
            self._stage.log("warning", f"widgets of dead ranks cannot be restored: rank {ranks}")
        content, buffers = states.merged()
        self._stage.publish("comm_msg", content, header, states.metadata, buffers)

    # ---------------------------------------------------------------- ranks at work, and lost

    @property
    def busy(self) -> set[Rank]:
        """Ranks whose main shell is at work on a client's message: a callback of a widget, say."""
        return {
            rank
            for served in self._served.values()
            for rank in served.owners
            if rank not in served.subshells
        }

    def serves(self, rank: Rank, msg_id: str) -> bool:
        """Whether the rank is at work on this message."""
        served = self._served.get(msg_id)
        return served is not None and rank in served.owners

    def lost(self, rank: Rank) -> None:
        """The rank's process is gone, and its comms with it."""
        for comm_id in list(self._comms):
            self._drop(comm_id, {rank})
        self.captures.lost(rank)
        self._fences = {key: fence for key, fence in self._fences.items() if fence.rank != rank}
        for msg_id, served in list(self._served.items()):
            states = served.states
            if states is not None and rank in served.owners and rank not in states.parts:
                states.missing.add(rank)
            self._is_served(msg_id, rank)

    def info(self, target: str | None) -> dict[str, Any]:
        names = {comm_id: comm.target for comm_id, comm in self._comms.items()} | self._own.targets
        comms = {
            comm_id: {"target_name": name}
            for comm_id, name in names.items()
            if target is None or name == target
        }
        return {"status": "ok", "comms": comms}

    def _drop(self, comm_id: str, ranks: set[Rank]) -> None:
        comm = self._comms.get(comm_id)
        if comm is None:
            return
        comm.owners -= ranks
        if not comm.owners:
            del self._comms[comm_id]
            self._echoes.closed(comm_id)
