"""Asking ranks, and scripts that do.

A *script* is a generator that yields wants (`Ask`, `Run`, `Start`, …) and is resumed with what came
of them, so that a query, a magic or the start of ranks reads from top to bottom although each step
waits for messages.  `Talk` runs one script; `Conversations` knows which rank owes which answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from .content import Content, read
from .errors import BadMessage, InternalError, SpmdError
from .model import NO_SUBSHELLS, Channel, Message, Rank, Subshells, ToRank
from .stage import Stage

REPLY_SECONDS = 0.5  # a reply comes on another socket than the idle that follows it
Answers = dict[Rank, Content | None]  # None: the rank died, or did not answer in time
Script = Generator[Any, Any, Any]


@dataclass(slots=True)
class _Pending:
    waiting: set[Rank]
    answers: Answers
    resume: Callable[[Answers], None]
    timed: bool = False
    idle: set[Rank] = field(default_factory=set)  # said so before they replied


class Conversations:
    """Requests of ours to ranks that wait for replies. A rank's first reply counts; others are late."""

    def __init__(self, stage: Stage):
        self._stage = stage
        self._pending: dict[str, _Pending] = {}

    def ask(
        self,
        ranks: Iterable[Rank],
        alive: Iterable[Rank],
        message: Message,
        resume: Callable[[Answers], None],
        channel: Channel = "shell",
        seconds: float | None = None,
        subshells: Subshells = NO_SUBSHELLS,
    ) -> Callable[[], None]:
        """Send ``message`` to the live ones among ``ranks``; ``resume`` hears all answers at once.

        Returns a function that gives up: ``resume`` is then never called.
        """
        ranks, living = tuple(ranks), set(alive)
        waiting = {rank for rank in ranks if rank in living}
        answers: Answers = dict.fromkeys(ranks)
        if not waiting:
            resume(answers)
            return lambda: None
        self._pending[message.msg_id] = _Pending(waiting, answers, resume, seconds is not None)
        targets = tuple(sorted(waiting))
        if channel == "shell":
            self._stage.to_shells(targets, message, subshells)
        else:
            self._stage.emit(ToRank(targets, channel, message))
        if seconds is not None:
            self._stage.timer(("ask", message.msg_id), seconds)
        return lambda: self._forget(message.msg_id)

    def replied(self, rank: Rank, message: Message) -> bool:
        """A reply of a rank. False: nobody waits for it from that rank."""
        pending = self._pending.get(message.parent_id)
        if pending is None or rank not in pending.waiting:
            return False
        try:
            answer: Content | None = read(message.content)
        except BadMessage as error:
            self._stage.log("warning", f"rank {rank}: reply dropped: {error}")
            answer = None
        self._settle(message.parent_id, pending, rank, answer)
        return True

    def idle(self, rank: Rank, msg_id: str) -> None:
        """The rank is done with a request. Without a reply soon there will be none: it failed."""
        pending = self._pending.get(msg_id)
        if pending is not None and rank in pending.waiting and rank not in pending.idle:
            pending.idle.add(rank)
            self._stage.timer(("no-reply", msg_id, rank), REPLY_SECONDS)

    def gave_no_reply(self, msg_id: str, rank: Rank) -> None:
        pending = self._pending.get(msg_id)
        if pending is not None and rank in pending.waiting:
            self._settle(msg_id, pending, rank, None)

    def lost(self, rank: Rank) -> None:
        """The rank died: whoever waits for it hears None."""
        for msg_id, pending in list(self._pending.items()):
            if rank in pending.waiting:
                self._settle(msg_id, pending, rank, None)

    def expired(self, msg_id: str) -> None:
        pending = self._pending.pop(msg_id, None)
        if pending is not None:
            pending.resume(pending.answers)

    def _settle(self, msg_id: str, pending: _Pending, rank: Rank, answer: Content | None) -> None:
        pending.waiting.discard(rank)
        pending.answers[rank] = answer
        if rank in pending.idle:
            self._stage.cancel(("no-reply", msg_id, rank))
        if not pending.waiting:
            self._forget(msg_id)
            pending.resume(pending.answers)

    def _forget(self, msg_id: str) -> None:
        pending = self._pending.pop(msg_id, None)
        if pending is not None and pending.timed:
            self._stage.cancel(("ask", msg_id))


@dataclass(slots=True)
class Talk:
    """One running script.  ``perform`` begins what it wants; ``done`` hears its end, exactly once."""

    script: Script
    perform: Callable[[Talk, Any], None]
    done: Callable[[Any, SpmdError | None], None]
    give_up: Callable[[], None] | None = None  # undoes the wait of the step at hand
    inner: Talk | None = None  # a script that this one waits for
    over: bool = field(default=False)
    turn: int = 0
    asked: tuple[Rank, ...] = ()  # ranks that the step at hand waits for

    def wait_for(self, begin: Callable[[Callable[..., None]], Callable[[], None]]) -> None:
        """Begin something that will call `step`, perhaps at once, and can be given up until then."""
        turn = self.turn
        give_up = begin(self.step)
        if self.turn == turn:
            self.give_up = give_up

    def nest(self, inner: Talk) -> None:
        """Run another script, whose ``done`` resumes this one."""
        self.inner = inner
        inner.step()

    def step(self, value: Any = None, error: SpmdError | None = None) -> None:
        """Resume with what the last want gave, or with the error that it met."""
        if self.over:
            return
        self.turn += 1
        self.give_up = self.inner = None
        self.asked = ()
        try:
            want = self.script.throw(error) if error is not None else self.script.send(value)
        except StopIteration as stop:
            self._end(stop.value, None)
        except SpmdError as failure:
            self._end(None, failure)
        except Exception as failure:
            self._end(None, InternalError(f"{type(failure).__name__}: {failure}", REPORT))
        else:
            self.perform(self, want)

    @property
    def asking(self) -> tuple[Rank, ...]:
        """The ranks that it, or the script that it waits for, has asked something."""
        return self.inner.asking if self.inner is not None else self.asked

    def throw(self, error: SpmdError) -> None:
        """Break off the step at hand (the innermost script hears it first)."""
        if self.inner is not None:
            self.inner.throw(error)
            return
        if self.give_up is not None:
            self.give_up()
        self.step(error=error)

    def close(self) -> None:
        """Drop the script without a word to ``done``."""
        self.over = True
        if self.inner is not None:
            self.inner.close()
        if self.give_up is not None:
            self.give_up()
        self.script.close()

    def _end(self, value: Any, error: SpmdError | None) -> None:
        self.over = True
        self.done(value, error)


REPORT = "this is a fault of spmd-kernel; please report it with the kernel's log"
