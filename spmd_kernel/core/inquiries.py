"""Questions of clients that any one rank can answer, within a quarter of a second while a cell runs.

The lowest rank is asked, in its main shell if that is free and else in its private subshell; if it
does not answer soon (it is stopped, or C code holds its interpreter's lock), another one is asked as
well, and the first answer counts.  Only one: a rank's first completion takes 35 MB and a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from .content import Content
from .conversation import Answers, Conversations
from .model import Rank, Subshells
from .stage import Stage
from .wants import Inquire

HEDGE_SECONDS = 0.08  # until another rank is asked; one in a Python loop answers within 0.05 s
PATIENCE = 1.5  # the same while no cell runs
ANSWER_SECONDS = 0.25  # while one does; then the answer is an empty one
STUCK_SECONDS = 2.0  # a rank that has owed an answer for so long is asked last
MOST = 4  # questions that a shell may owe an answer to before it is not asked at all


class Ranks(Protocol):
    """What questions need to know of the ranks."""

    @property
    def alive(self) -> tuple[Rank, ...]: ...
    @property
    def private(self) -> Subshells: ...
    @property
    def are_engaged(self) -> bool: ...
    @property
    def busy(self) -> set[Rank]:
        """Those whose main shell is at work."""


@dataclass(slots=True, eq=False)
class _Inquiry:
    serial: int
    want: Inquire
    resume: Callable[[Content | None], None]
    limited: bool  # ranks are at work, and nobody waits for long
    asked: set[Rank] = field(default_factory=set)
    open: set[Rank] = field(default_factory=set)  # those that may still answer
    over: bool = False


class Inquiries:
    def __init__(self, stage: Stage, conversations: Conversations, ranks: Ranks):
        self._stage = stage
        self._conversations = conversations
        self._ranks = ranks
        self._serial = 0
        self._running: dict[int, _Inquiry] = {}
        self._owed: dict[tuple[Rank, str], list[float]] = {}  # when each shell was asked what

    def ask(self, want: Inquire, resume: Callable[[Content | None], None]) -> Callable[[], None]:
        """``resume`` hears the first answer; None: no rank has one."""
        self._serial += 1
        limited = self._ranks.are_engaged
        inquiry = _Inquiry(self._serial, want, resume, limited)
        self._running[inquiry.serial] = inquiry
        seconds = ANSWER_SECONDS if limited else want.seconds
        if seconds is not None:
            self._stage.timer(("inquiry", inquiry.serial), seconds)
        self._stage.timer(("hedge", inquiry.serial), HEDGE_SECONDS if limited else PATIENCE)
        self._ask_next(inquiry)
        return partial(self._end, inquiry)

    def due(self, serial: int) -> None:
        """It has waited for an answer: another rank is asked."""
        if inquiry := self._running.get(serial):
            self._ask_next(inquiry)

    def expired(self, serial: int) -> None:
        if inquiry := self._running.get(serial):
            self._answer(inquiry, None)

    # ---------------------------------------------------------------- whom to ask

    def _ask_next(self, inquiry: _Inquiry) -> None:
        if found := self._shells(inquiry):
            _, rank, shell = min(found)
            inquiry.asked.add(rank)
            inquiry.open.add(rank)
            self._send(inquiry, rank, shell)
        elif not inquiry.open:
            self._answer(inquiry, None)

    def _shells(self, inquiry: _Inquiry) -> list[tuple[int, Rank, str]]:
        """Where else the question can go: how far from ideal, the rank, its subshell if any."""
        found, busy = [], self._ranks.busy
        for place, rank in enumerate(self._ranks.alive):
            private = self._ranks.private.get(rank, "")
            # One of its shells at a time: IPython's completer is not made for several threads.
            free = rank not in busy and (rank, private) not in self._owed
            if rank in inquiry.asked or (inquiry.limited and not free and not private):
                continue
            shell = "" if free else private
            owed = self._owed.get((rank, shell), [])
            if inquiry.limited and len(owed) >= MOST:
                continue
            stuck = bool(owed) and self._stage.at - owed[0] >= STUCK_SECONDS
            found.append((4 * stuck + 2 * min(place, 1) + (not free), rank, shell))
        return found

    # ---------------------------------------------------------------- asking and hearing

    def _send(self, inquiry: _Inquiry, rank: Rank, shell: str) -> None:
        key, at = (rank, shell), self._stage.at
        self._owed.setdefault(key, []).append(at)

        def heard(answers: Answers) -> None:
            owed = self._owed[key]
            owed.remove(at)
            if not owed:
                del self._owed[key]
            self._heard(inquiry, rank, answers[rank])

        want = inquiry.want
        message = self._stage.own_request(want.msg_type, want.content, shell)
        self._conversations.ask((rank,), self._ranks.alive, message, heard)

    def _heard(self, inquiry: _Inquiry, rank: Rank, answer: Content | None) -> None:
        if inquiry.over:  # too late for that one
            if answer is not None:
                self._serve_again(inquiry.want, answer)
            return
        inquiry.open.discard(rank)
        if answer is not None:
            self._answer(inquiry, answer)
        else:  # it died, or was interrupted
            self._ask_next(inquiry)

    def _serve_again(self, want: Inquire, answer: Content) -> None:
        """Who got no answer in time may have asked the same once more, and need not wait twice."""
        for other in list(self._running.values()):
            if other.want == want:
                self._answer(other, answer)

    def _answer(self, inquiry: _Inquiry, answer: Content | None) -> None:
        if not inquiry.over:
            self._end(inquiry)
            inquiry.resume(answer)

    def _end(self, inquiry: _Inquiry) -> None:
        inquiry.over = True
        self._running.pop(inquiry.serial, None)
        self._stage.cancel(("hedge", inquiry.serial))
        self._stage.cancel(("inquiry", inquiry.serial))
