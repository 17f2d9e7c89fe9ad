"""input(), getpass and pdb: one question at a time, answered to the ranks that asked it.

Equal prompts that reach us within `WINDOW` are one question (the same program asks on every rank);
different ones are asked one after another, each with its ranks in front.  Ranks that were answered
together have as long to ask the same again, so that debuggers at one place go on in step.  Messaging
specification: "Messages on the stdin (ROUTER/DEALER) channel".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from .content import Content, dumps, read
from .errors import UsageError
from .fanout import Fanout
from .model import FromFront, Header, Message, Rank, ToFront, ToRank
from .outputs.labels import label, label_lines
from .stage import Stage

WINDOW = 0.1  # seconds in which equal prompts of several ranks count as one


@dataclass(slots=True, eq=False)
class Asker:
    """A cell whose questions go to the client that sent it, if that takes any."""

    idents: tuple[bytes, ...] = ()
    parent: Header = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()  # that run the cell
    running: tuple[Rank, ...] = ()  # those of them that are not done
    takes_questions: bool = True


@dataclass(slots=True, eq=False)
class _Question:
    prompt: str
    password: bool
    asked: dict[Rank, Header]  # header of each rank's input_request
    asker: Asker
    due: bool = False  # no other rank is waited for
    msg_id: str = ""  # of our own input_request, once it is with the user
    shown: str = ""  # the prompt as the user sees it

    def joins(self, other: _Question) -> bool:
        same = (self.prompt, self.password) == (other.prompt, other.password)
        same = same and self.asker is other.asker
        return same and not self.asked.keys() & other.asked.keys()  # two threads of a rank: two


class Stdin:
    def __init__(self, stage: Stage):
        self._stage = stage
        self._waiting: list[_Question] = []
        self._open: _Question | None = None  # it is with the user
        self._left: _Question | None = None  # the same, of a cell that is over, until more is asked
        self._cell = Asker()  # the last one of the main shell
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
        left, is_ours = self._open, self._open is not None and self._open.asker is self._cell
        if is_ours:
            self._open = None
        self.withdraw()
        if is_ours:  # its answer may be on its way, by another socket than the cell that begins
            self._left = left
        self._cell = Asker(idents, parent, ranks, ranks, takes_questions)

    def refuses(self, message: Message, asker: Asker | None = None) -> bool:
        """Nobody will answer: the client said so, or it is a cell of our own that asks.

        No other request runs code: there it is a thread, of which ipykernel knows no better parent.
        """
        parent = message.parent
        is_ours = self._stage.is_own(parent) and parent.get("msg_type") == "execute_request"
        return is_ours or not (asker or self._cell).takes_questions

    def refuse(self, rank: Rank, message: Message) -> None:
        """Only kernels that ignore ``allow_stdin`` ask all the same: they would wait for ever."""
        header = self._stage.own_header("input_reply")
        self._answer(rank, message.header, Message(header, {}, {}, dumps({"value": ""})))

    def asked(
        self,
        rank: Rank,
        message: Message,
        fanout: Fanout | None,
        world: int,
        asker: Asker | None = None,
    ) -> None:
        """A rank's input_request.  A thread may ask, or still wait, when its cell is over.

        ``asker``: the cell, if it is none of the main shell.
        """
        asker = asker or self._cell
        content = read(message.content)
        prompt, password = content.text("prompt"), content.flag("password")
        self._world_size = world
        if fanout is not None:
            asker.ranks = tuple(r for r in fanout.ranks if r not in fanout.lost)
            asker.running = fanout.running
        new = _Question(prompt, password, {rank: message.header}, asker)
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
        message, question = event.message, self._open or self._left
        if question is None or event.idents != question.asker.idents:
            self._stage.log("info", "an input_reply came although nothing was asked")
            return
        # Many clients name no question at all, and some their cell instead.
        if message.parent_id != question.msg_id and self._stage.is_own_id(message.parent_id):
            self._stage.log("info", "an input_reply came to what is asked no more")
            return
        self._pass_on(question, message)

    def answer(self, value: str, msg_id: str | None) -> tuple[Rank, ...]:
        """For the client that was asked, which may be gone: the ranks that waited. Raises `UsageError`.

        ``msg_id``: of the question that is meant.
        """
        question = self._open or self._left
        if question is None:
            raise UsageError("answer: no rank waits for one", "the command status has the question")
        if msg_id not in (None, question.msg_id):
            raise UsageError(
                "answer: that question is asked no more", "the command status has the one that is"
            )
        header = self._stage.own_header("input_reply")
        content = dumps({"status": "ok", "value": value})
        ranks = tuple(sorted(question.asked))
        self._pass_on(question, Message(header, {}, {}, content))
        return ranks

    def _pass_on(self, question: _Question, reply: Message) -> None:
        self._open = self._left = None
        for rank, header in sorted(question.asked.items()):
            self._answer(rank, header, reply)
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
        askers = [self._cell, *(question.asker for question in self._questions)]
        for asker in dict.fromkeys(askers):
            asker.ranks = tuple(r for r in asker.ranks if r != rank)
            asker.running = tuple(r for r in asker.running if r != rank)
            self.withdraw((rank,), asker)

    def withdraw(self, ranks: Collection[Rank] | None = None, asker: Asker | None = None) -> None:
        """What these ranks asked in a cell; asked of nobody else, it needs no answer any more."""
        asker = asker or self._cell
        for question in self._questions:
            if question.asker is not asker:
                continue
            kept = {r: h for r, h in question.asked.items() if ranks is not None and r not in ranks}
            question.asked = kept
        self._waiting = [question for question in self._waiting if question.asked]
        if self._open is not None and not self._open.asked:
            self._open = None
        if self._left is not None and not self._left.asked:
            self._left = None
        self._ask_next()

    @property
    def _questions(self) -> list[_Question]:
        return [*self._waiting, *filter(None, [self._open, self._left])]

    @property
    def question(self) -> dict[str, Any] | None:
        """The one that is with the user, also when its cell is over: a thread may wait for the answer."""
        question = self._open or self._left
        if question is None:
            return None
        return {
            "msg_id": question.msg_id,
            "cell": str(question.asker.parent.get("msg_id", "")),
            "prompt": question.shown,
            "password": question.password,
            "ranks": sorted(question.asked),
        }

    def askers(self) -> set[Rank]:
        """Ranks whose main shell waits for an answer."""
        mine = [question for question in self._questions if question.asker is self._cell]
        return {rank for question in mine for rank in question.asked}

    def _ask_next(self) -> None:
        if self._open is not None:
            return
        for question in self._waiting:
            asker = question.asker
            if question.due or set(asker.running or asker.ranks) <= question.asked.keys():
                self._waiting.remove(question)
                self._ask(question)
                return

    def _ask(self, question: _Question) -> None:
        self._open, self._left = question, None
        question.msg_id = str(self._stage.own_header("input_request")["msg_id"])
        question.shown = self._prompt(question)
        content: dict[str, Any] = Content(prompt=question.shown, password=question.password)
        self._stage.emit(
            ToFront(
                "stdin",
                question.asker.idents,
                "input_request",
                dumps(content),
                question.asker.parent,
                msg_id=question.msg_id,
            )
        )

    def _prompt(self, question: _Question) -> str:
        """No label: every rank that runs the cell asks, whether others are done or not."""
        if self._world_size == 1 or set(question.asker.ranks) <= question.asked.keys():
            return question.prompt
        text = question.prompt.removesuffix("\n")
        prefix = label(tuple(sorted(question.asked)), self._world_size)
        return label_lines(prefix, text) + question.prompt[len(text) :]
