"""input(), getpass and pdb: one question at a time, answered to the ranks that asked it.

Equal prompts that reach us within `WINDOW` are one question (the same program asks on every rank);
different ones are asked one after another, each with its ranks in front.  Ranks that were answered
together have as long to ask the same again, so that debuggers at one place go on in step.  Messaging
specification: "Messages on the stdin (ROUTER/DEALER) channel".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from .content import Content, dumps, read
from .fanout import Fanout
from .model import FromFront, Header, Message, Rank, ToFront, ToRank
from .outputs.labels import label, label_lines
from .stage import Stage

WINDOW = 0.1  # seconds in which equal prompts of several ranks count as one


@dataclass(slots=True, eq=False)
class _Question:
    prompt: str
    password: bool
    asked: dict[Rank, Header]  # header of each rank's input_request
    due: bool = False  # no other rank is waited for
    msg_id: str = ""  # of our own input_request, once it is with the user

    def joins(self, other: _Question) -> bool:
        same = (self.prompt, self.password) == (other.prompt, other.password)
        return same and not self.asked.keys() & other.asked.keys()  # two threads of a rank: two


class Stdin:
    def __init__(self, stage: Stage):
        self._stage = stage
        self._waiting: list[_Question] = []
        self._open: _Question | None = None  # it is with the user
        self._idents: tuple[bytes, ...] = ()
        self._parent: Header = {}
        self._takes_questions = True
        self._ranks: tuple[Rank, ...] = ()  # that run the cell
        self._running: tuple[Rank, ...] = ()  # those of them that are not done
        self._world_size = 1

    def begin(
        self,
        idents: tuple[bytes, ...],
        parent: Header,
        ranks: tuple[Rank, ...],
        *,
        takes_questions: bool = True,
    ) -> None:
        """A cell starts; its questions go to the client that sent it, if that takes any."""
        self.withdraw()
        self._idents, self._parent, self._ranks, self._running = idents, parent, ranks, ranks
        self._takes_questions = takes_questions

    def refuses(self, message: Message) -> bool:
        """Nobody will answer: the client said so, or it is a request of our own that asks."""
        return not self._takes_questions or self._stage.is_own(message.parent)

    def refuse(self, rank: Rank, message: Message) -> None:
        """Only kernels that ignore ``allow_stdin`` ask all the same: they would wait for ever."""
        header = self._stage.own_header("input_reply")
        self._answer(rank, message.header, Message(header, {}, {}, dumps({"value": ""})))

    def asked(self, rank: Rank, message: Message, fanout: Fanout | None, world: int) -> None:
        """A rank's input_request.  A thread may ask, or still wait, when its cell is over."""
        content = read(message.content)
        prompt, password = content.text("prompt"), content.flag("password")
        self._world_size = world
        if fanout is not None:
            self._ranks = tuple(r for r in fanout.ranks if r not in fanout.lost)
            self._running = fanout.running
        new = _Question(prompt, password, {rank: message.header})
        for question in self._waiting:
            if new.joins(question):
                question.asked |= new.asked
                break
        else:
            self._waiting.append(new)
            self._stage.timer("stdin", WINDOW)
        self._ask_next()

    def window_over(self) -> None:
        for question in self._waiting:
            question.due = True
        self._ask_next()

    def answered(self, event: FromFront) -> None:
        """A client's input_reply."""
        message, question = event.message, self._open
        if question is None or event.idents != self._idents:
            self._stage.log("info", "an input_reply came although nothing was asked")
            return
        # Many clients name no question at all, and some their cell instead.
        if message.parent_id != question.msg_id and self._stage.is_own_id(message.parent_id):
            self._stage.log("info", "an input_reply came to what is asked no more")
            return
        self._open = None
        for rank, header in sorted(question.asked.items()):
            self._answer(rank, header, message)
        self._wait_for_more(question)
        self._ask_next()

    def _answer(self, rank: Rank, asked: Header, message: Message) -> None:
        reply = Message(message.header, asked, message.metadata, message.content)
        self._stage.emit(ToRank((rank,), "stdin", reply))

    def _wait_for_more(self, answered: _Question) -> None:
        """Others ask what was just answered, and may be asked together with those who ask again."""
        alike = [question for question in self._waiting if question.joins(answered)]
        for question in alike:
            question.due = False
        if alike:
            self._stage.timer("stdin", WINDOW)

    def lost(self, rank: Rank) -> None:
        """It died."""
        self._ranks = tuple(r for r in self._ranks if r != rank)
        self._running = tuple(r for r in self._running if r != rank)
        self.withdraw((rank,))

    def withdraw(self, ranks: Collection[Rank] | None = None) -> None:
        """What these ranks asked; asked of nobody else, it needs no answer any more."""
        for question in self._questions:
            kept = {r: h for r, h in question.asked.items() if ranks is not None and r not in ranks}
            question.asked = kept
        self._waiting = [question for question in self._waiting if question.asked]
        if self._open is not None and not self._open.asked:
            self._open = None
        self._ask_next()

    @property
    def _questions(self) -> list[_Question]:
        return [*self._waiting, *filter(None, [self._open])]

    def askers(self) -> set[Rank]:
        """Ranks that wait for an answer."""
        return {rank for question in self._questions for rank in question.asked}

    def _ask_next(self) -> None:
        if self._open is not None:
            return
        for question in self._waiting:
            if question.due or set(self._running or self._ranks) <= question.asked.keys():
                self._waiting.remove(question)
                self._ask(question)
                return

    def _ask(self, question: _Question) -> None:
        self._open = question
        question.msg_id = str(self._stage.own_header("input_request")["msg_id"])
        content: dict[str, Any] = Content(prompt=self._prompt(question), password=question.password)
        self._stage.emit(
            ToFront(
                "stdin",
                self._idents,
                "input_request",
                dumps(content),
                self._parent,
                msg_id=question.msg_id,
            )
        )

    def _prompt(self, question: _Question) -> str:
        """No label: every rank that runs the cell asks, whether others are done or not."""
        if self._world_size == 1 or set(self._ranks) <= question.asked.keys():
            return question.prompt
        text = question.prompt.removesuffix("\n")
        prefix = label(tuple(sorted(question.asked)), self._world_size)
        return label_lines(prefix, text) + question.prompt[len(text) :]
