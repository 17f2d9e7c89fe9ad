"""Requests to the ranks' debuggers and their replies, whatever ranks do.

ipykernel serves its control channel one request after the other, so a rank that has not answered in
time is asked nothing more until it does: what would pile up there could be wrong by the time it is
read.  A rank whose handler failed sends no reply, but says that it is idle again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..content import Content, dumps
from ..conversation import Answers, Conversations
from ..magics.wording import duration
from ..model import Rank
from ..stage import Stage
from .base import Ask, Reply, Request


class Ranks(Protocol):
    @property
    def alive(self) -> tuple[Rank, ...]: ...


class Asking:
    def __init__(self, stage: Stage, ranks: Ranks, conversations: Conversations):
        self._stage = stage
        self._ranks = ranks
        self._conversations = conversations
        self._seq = 0
        self._open: dict[str, set[Rank]] = {}  # who has neither replied nor said idle
        self.owing: dict[Rank, set[str]] = {}  # requests that a rank was too slow for

    def ask(self, want: Ask, resume: Callable[[Any], None]) -> Callable[[], None]:
        alive = set(self._ranks.alive)
        replies: dict[Rank, Reply] = {}
        alike: dict[bytes, tuple[Request, list[Rank]]] = {}
        for rank, request in want.requests.items():
            if rank not in alive:
                replies[rank] = Reply(False, message="the process is gone", silent=True)
            elif self.owing.get(rank) and not want.whenever:
                replies[rank] = Reply(False, message="it is not answering", silent=True)
            else:
                key = dumps([request.command, request.arguments])
                alike.setdefault(key, (request, []))[1].append(rank)
        waiting = len(alike)
        gives: list[Callable[[], None]] = []

        def heard(msg_id: str, answers: Answers) -> None:
            nonlocal waiting
            waiting -= 1
            replies.update(self._replies(msg_id, answers, want.seconds))
            if not waiting:
                resume({rank: replies[rank] for rank in want.requests})

        if not alike:
            resume(replies)
        for request, ranks in alike.values():
            gives.append(self._send(request, ranks, want.seconds, heard))

        def give_up() -> None:
            for give in gives:
                give()

        return give_up

    def _send(
        self,
        request: Request,
        ranks: list[Rank],
        seconds: float,
        heard: Callable[[str, Answers], None],
    ) -> Callable[[], None]:
        self._seq += 1
        content = {
            "type": "request",
            "seq": self._seq,
            "command": request.command,
            "arguments": dict(request.arguments),
        }
        message = self._stage.own_request("debug_request", content)
        msg_id = message.msg_id
        self._open[msg_id] = set(ranks)
        return self._conversations.ask(
            ranks,
            self._ranks.alive,
            message,
            lambda answers: heard(msg_id, answers),
            "control",
            seconds,
        )

    def _replies(self, msg_id: str, answers: Answers, seconds: float) -> dict[Rank, Reply]:
        alive, unheard = set(self._ranks.alive), self._open.get(msg_id, set())
        replies: dict[Rank, Reply] = {}
        for rank, answer in answers.items():
            if answer is not None:
                unheard.discard(rank)
                replies[rank] = reply_of(answer)
            elif rank not in alive:
                unheard.discard(rank)
                replies[rank] = Reply(False, message="the process died", silent=True)
            elif rank in unheard:
                self.owing.setdefault(rank, set()).add(msg_id)
                text = f"no answer within {duration(seconds)}"
                replies[rank] = Reply(False, message=text, silent=True)
            else:
                replies[rank] = Reply(False, message="its debugger gave no answer", silent=True)
        if not unheard:
            self._open.pop(msg_id, None)
        return replies

    def settled(self, rank: Rank, msg_id: str) -> None:
        """The rank is done with a request: it replied, perhaps too late, or is idle again."""
        waiting = self._open.get(msg_id)
        if waiting is not None:
            waiting.discard(rank)
            if not waiting:
                del self._open[msg_id]
        owed = self.owing.get(rank)
        if owed is not None:
            owed.discard(msg_id)
            if not owed:
                del self.owing[rank]

    def lost(self, rank: Rank) -> None:
        self.owing.pop(rank, None)
        for msg_id in [m for m, waiting in self._open.items() if rank in waiting]:
            self.settled(rank, msg_id)


def reply_of(answer: Mapping[str, Any]) -> Reply:
    """A response as ranks send it; some of ipykernel's are no more than a body, or empty."""
    body = answer.get("body")
    content = Content(body) if isinstance(body, dict) else Content()
    success = answer.get("success", isinstance(body, dict)) is True
    message = answer.get("message")
    if not success and not isinstance(message, str):
        message = "its debugger is not started" if not answer else "it failed"
    return Reply(success, content, message if isinstance(message, str) else "")
