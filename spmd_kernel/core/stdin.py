"""input(), getpass and pdb: one question at a time, answered to the ranks that asked it.

Equal prompts that reach us within `WINDOW` are one question (the same program asks on every rank);
different ones are asked one after another, each with its ranks in front.  Messaging specification:
"Messages on the stdin (ROUTER/DEALER) channel".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .content import Content, dumps, read
from .model import Header, Message, Rank, ToFront, ToRank
from .outputs.labels import label
from .stage import Stage

WINDOW = 0.1  # seconds in which equal prompts of several ranks count as one


@dataclass(slots=True)
class _Question:
    prompt: str
    password: bool
    asked: dict[Rank, Header]  # header of each rank's input_request
    due: bool = False


class Stdin:
    def __init__(self, stage: Stage):
        self._stage = stage
        self._questions: list[_Question] = []
        self._open = False  # the first question is with the user
        self._idents: tuple[bytes, ...] = ()
        self._parent: Header = {}
        self._running: tuple[Rank, ...] = ()
        self._world_size = 1

    def begin(self, idents: tuple[bytes, ...], parent: Header, ranks: tuple[Rank, ...]) -> None:
        """A cell starts; its questions go to the client that sent it."""
        self.withdraw()
        self._idents, self._parent, self._running = idents, parent, ranks

    def asked(self, rank: Rank, message: Message, running: tuple[Rank, ...], world: int) -> None:
        """A rank's input_request. ``running``: the ranks whose part of the cell is not done."""
        content = read(message.content)
        prompt, password = content.text("prompt"), content.flag("password")
        self._running, self._world_size = running, world
        for question in self._questions[self._open :]:
            if (question.prompt, question.password) == (prompt, password):
                question.asked[rank] = message.header
                break
        else:
            self._questions.append(_Question(prompt, password, {rank: message.header}))
            self._stage.timer("stdin", WINDOW)
        self._ask_next()

    def window_over(self) -> None:
        for question in self._questions:
            question.due = True
        self._ask_next()

    def answered(self, message: Message) -> None:
        """The user's input_reply."""
        if not self._open:
            self._stage.log("info", "an input_reply came although nothing was asked")
            return
        question = self._questions.pop(0)
        self._open = False
        for rank, header in sorted(question.asked.items()):
            reply = Message(message.header, header, message.metadata, message.content)
            self._stage.emit(ToRank((rank,), "stdin", reply))
        self._ask_next()

    def lost(self, rank: Rank) -> None:
        """Its question is withdrawn: asked of nobody else, it needs no answer any more."""
        for index, question in enumerate(list(self._questions)):
            question.asked.pop(rank, None)
            if not question.asked:
                self._questions.remove(question)
                self._open = self._open and index > 0
        self._running = tuple(r for r in self._running if r != rank)
        self._ask_next()

    def withdraw(self) -> None:
        self._questions.clear()
        self._open = False

    def _ask_next(self) -> None:
        if self._open or not self._questions:
            return
        question = self._questions[0]
        everybody = set(self._running) <= set(question.asked)
        if not (question.due or everybody):
            return
        self._open = True
        self._stage.emit(
            ToFront("stdin", self._idents, "input_request", self._content(question), self._parent)
        )

    def _content(self, question: _Question) -> bytes:
        prompt = question.prompt
        if self._world_size > 1 and set(self._running) - set(question.asked):
            prompt = label(tuple(sorted(question.asked)), self._world_size) + prompt
        content: dict[str, Any] = Content(prompt=prompt, password=question.password)
        return dumps(content)
