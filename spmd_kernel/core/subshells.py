"""Subshells (JEP 91) of all ranks: those that clients ask for, and a private one for questions.

A subshell of a client is a thread in every rank: created in all at once, again in ranks that are
started later, and deleted in all.  Its id is the one that the lowest rank gave it.  The private ones
are created as soon as a rank is up, for once C code holds the interpreter's lock it takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from .content import read
from .conversation import Answers, Conversations
from .errors import BadMessage, UsageError
from .group import Group
from .model import Channel, Header, Message, Rank, ToRank
from .stage import Stage
from .subshell import Subshell

FEATURE = "kernel subshells"
CREATE_SECONDS = 2.0  # a rank that holds the interpreter's lock may join later
DELETE_SECONDS = 2.0


class UnknownSubshellError(UsageError):
    """ename and text are ipykernel's, which clients know."""

    def __init__(self, subshell_id: str):
        super().__init__(f"Unknown subshell_id {subshell_id!r}")

    def lines(self) -> list[str]:
        return []


class Subshells:
    def __init__(
        self,
        stage: Stage,
        group: Group,
        conversations: Conversations,
        make: Callable[[], Subshell],
        serves_comms: Callable[[Mapping[Rank, str]], bool],
    ):
        self._stage = stage
        self._group = group
        self._conversations = conversations
        self._make = make
        self._serves_comms = serves_comms
        self._table: dict[str, Subshell] = {}
        self._leaving: list[Subshell] = []  # deleted, and not idle yet
        self._coming: list[Subshell] = []  # no rank has it yet
        self._asked: dict[str, tuple[Rank, Subshell | None]] = {}  # creations, by message
        self._serial = 0
        self.private: dict[Rank, str] = {}

    # ---------------------------------------------------------------- looking

    @property
    def ids(self) -> list[str]:
        return list(self._table)

    @property
    def are_supported(self) -> bool:
        """By every rank; a kernel without live ranks supports none."""
        alive = self._group.alive
        return bool(alive) and all(map(self._is_supported, alive))

    def _is_supported(self, rank: Rank) -> bool:
        """Kernels that wrap another program inherit the feature from ipykernel, not what it takes.

        Bash's, for one, would ask its shell for completions in the midst of a cell.
        """
        info = self._group.slots[rank].info
        features = info.get("supported_features")
        return (
            info.get("implementation") == "ipython"
            and isinstance(features, list)
            and FEATURE in features
        )

    def of(self, message: Message) -> Subshell | None:
        """Where a request of a client belongs; None: the main shell. Raises `UnknownSubshellError`."""
        subshell_id = message.header.get("subshell_id")
        if subshell_id is None:
            return None
        shell = self._table.get(str(subshell_id))
        if shell is None:
            raise UnknownSubshellError(str(subshell_id))
        return shell

    def __iter__(self) -> Iterator[Subshell]:
        """All that may have cells."""
        yield from self._table.values()
        yield from self._leaving

    def running(self, msg_id: str) -> Subshell | None:
        """The one whose running cell is at this round."""
        for shell in self:
            if shell.rounds.fanout_of(msg_id) is not None:
                return shell
        return None

    def as_sent(self, header: Header) -> Header:
        """A client's header as that client wrote it: ranks know other ids."""
        theirs = header.get("subshell_id")
        if theirs is None:
            return header
        plain = {key: value for key, value in header.items() if key != "subshell_id"}
        for shell in self:
            if theirs in shell.theirs.values():
                return {**plain, "subshell_id": shell.id}
        return plain

    def go_on(self) -> None:
        """After each event: cells begin that may, and what is to be deleted is, once it is idle."""
        for shell in list(self):
            shell.next()
            if shell.delete is not None and not self._is_at_work(shell):
                delete, shell.delete = shell.delete, None
                delete()

    def _is_at_work(self, shell: Subshell) -> bool:
        return shell.has_cells or self._serves_comms(shell.theirs)

    # ---------------------------------------------------------------- ranks come and go

    def rank_is_ready(self, rank: Rank) -> None:
        if rank not in self._group.alive or not self._is_supported(rank):
            return
        self._create_on(rank, None)
        for shell in (*self._table.values(), *self._coming):
            self._create_on(rank, shell)

    def lost(self, rank: Rank) -> None:
        self.private.pop(rank, None)
        self._asked = {key: item for key, item in self._asked.items() if item[0] != rank}
        for shell in (*self, *self._coming):
            shell.theirs.pop(rank, None)
            shell.awaited.discard(rank)
        for shell in list(self._coming):
            self._check(shell)

    # ---------------------------------------------------------------- creation

    def create(self, resume: Callable[..., None]) -> Callable[[], None]:
        """One for a client; ``resume`` gets its id, or ``error``."""
        if not self.are_supported:
            what = "the kernel of the ranks does not support subshells"
            resume(error=UsageError(what if self._group.alive else "no rank is alive"))
            return lambda: None
        self._serial += 1
        shell = self._make()
        shell.serial, shell.created = self._serial, resume
        self._coming.append(shell)
        self._stage.timer(("subshell", shell.serial), CREATE_SECONDS)
        for rank in self._group.alive:
            self._create_on(rank, shell)

        def give_up() -> None:
            shell.created = None

        return give_up

    def overdue(self, serial: int) -> None:
        """It need not wait for all ranks any more."""
        for shell in self._coming:
            if shell.serial == serial:
                shell.overdue = True
                return self._check(shell)
        return None

    def _create_on(self, rank: Rank, shell: Subshell | None) -> None:
        request = self._stage.own_request("create_subshell_request", {})
        self._asked[request.msg_id] = rank, shell
        if shell is not None:
            shell.awaited.add(rank)
        self._stage.emit(ToRank((rank,), "control", request))

    def replied(self, rank: Rank, message: Message, channel: Channel) -> bool:
        """A rank's answer to a creation. False: it is none."""
        asked = self._asked.get(message.parent_id)
        if asked is None or asked[0] != rank or channel != "control":
            return False
        del self._asked[message.parent_id]
        self._heard(rank, asked[1], _id_in(message))
        return True

    def _heard(self, rank: Rank, shell: Subshell | None, theirs: str) -> None:
        if shell is None:
            if theirs:
                self.private[rank] = theirs
            return
        shell.awaited.discard(rank)
        if theirs and shell.is_deleted:
            self._stage.emit(ToRank((rank,), "control", self._deletion(theirs)))
        elif theirs:
            shell.theirs[rank] = theirs
        if shell in self._coming:
            self._check(shell)

    def _check(self, shell: Subshell) -> None:
        """Whether a subshell that comes is there."""
        if shell.awaited and not (shell.overdue and shell.theirs):
            return
        self._coming.remove(shell)
        self._stage.cancel(("subshell", shell.serial))
        resume, shell.created = shell.created, None
        if not shell.theirs:
            error = UsageError("no rank could create a subshell")
            return resume(error=error) if resume is not None else None
        shell.id = self._fresh(shell.theirs[min(shell.theirs)])
        self._table[shell.id] = shell
        if resume is not None:
            resume(shell.id)
        return None

    def _fresh(self, theirs: str) -> str:
        """Ids of ranks are unique, unless a rank lies."""
        known, number, found = set(self._table), 1, theirs
        while found in known:
            number += 1
            found = f"{theirs}-{number}"
        return found

    # ---------------------------------------------------------------- deletion

    def delete(self, subshell_id: str, resume: Callable[..., None]) -> Callable[[], None]:
        """``resume`` hears None once no rank has it any more; what it is at is done first.

        A rank would serve no shell at all while it waits for the end of the thread.
        """
        shell = self._table.pop(subshell_id, None)
        if shell is None:
            resume(error=UnknownSubshellError(subshell_id))
            return lambda: None
        self._leaving.append(shell)
        shell.delete = partial(self._delete, shell, resume)
        return lambda: None

    def _delete(self, shell: Subshell, resume: Callable[..., None]) -> None:
        shell.is_deleted = True
        left = set(shell.theirs)

        def gone(answers: Answers) -> None:
            left.difference_update(answers)
            if not left and shell in self._leaving:
                self._leaving.remove(shell)
                resume(None)

        for rank, theirs in sorted(shell.theirs.items()):
            self._conversations.ask(
                (rank,), self._group.alive, self._deletion(theirs), gone, "control", DELETE_SECONDS
            )
        gone({})

    def _deletion(self, theirs: str) -> Message:
        return self._stage.own_request("delete_subshell_request", {"subshell_id": theirs})


def _id_in(reply: Message) -> str:
    """What a rank calls the subshell that it has created; empty if it has not."""
    try:
        return read(reply.content).text("subshell_id")
    except BadMessage:
        return ""
