"""A world without IO around one `Hub`: clients that ask, ranks that answer, die and lie.

Effects are performed on plain Python objects; nothing happens by itself.  A test (or hypothesis)
decides which rank does what next, and `settle` lets everybody finish honestly.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spmd_kernel.core.hub import Hub
from spmd_kernel.core.model import (
    Began,
    CancelTimer,
    Cause,
    Effect,
    Event,
    Exit,
    Facts,
    FromFront,
    FromRank,
    Interrupt,
    Launch,
    Log,
    Message,
    RankExited,
    RankReady,
    SetTimer,
    Settings,
    Stop,
    Survey,
    Surveyed,
    TimerFired,
    ToFront,
    ToRank,
)

QUIET_EXECUTE = {"silent": True, "store_history": False}
GIB = 1 << 30


@dataclass
class FakeRank:
    rank: int
    generation: int
    env: Mapping[str, str]
    ready: bool = False
    stopping: bool = False
    interrupted: bool = False
    inbox: deque[Message] = field(default_factory=deque)  # shell: one after the other
    control: deque[Message] = field(default_factory=deque)
    answers: list[Any] = field(default_factory=list)  # input_replies
    count: int = 0


@dataclass
class Sent:
    """A client's request and all that it got back."""

    message: Message
    channel: str
    effects: list[ToFront] = field(default_factory=list)

    def of(self, *kinds: str) -> list[ToFront]:
        return [e for e in self.effects if e.msg_type in kinds]

    @property
    def replies(self) -> list[ToFront]:
        return [e for e in self.effects if e.channel != "iopub" and e.msg_type.endswith("_reply")]

    @property
    def reply(self) -> dict[str, Any]:
        (reply,) = self.replies
        return json.loads(reply.content)

    @property
    def states(self) -> list[str]:
        return [json.loads(e.content)["execution_state"] for e in self.of("status")]

    @property
    def text(self) -> str:
        return "".join(json.loads(e.content)["text"] for e in self.of("stream"))

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [json.loads(e.content) for e in self.of("error")]


class World:
    def __init__(self, size: int = 1, facts: Facts | None = None, **settings: Any):
        settings.setdefault("ports", tuple(range(20000, 20016)))
        self.hub = Hub(Settings(session="own", processes=size, **settings))
        self.facts = facts or Facts(memory_available=64 * GIB)
        self.at = 100.0
        self.ranks: dict[int, FakeRank] = {}
        self.graves: list[FakeRank] = []
        self.timers: dict[Hashable, float] = {}
        self.surveys: deque[int] = deque()
        self.sent: dict[str, Sent] = {}
        self.effects: list[Effect] = []
        self.events: list[Event] = []
        self.logs: list[Log] = []
        self.exits: list[int] = []
        self.launches: list[Launch] = []
        self._ids = itertools.count()
        self.feed(Began(self.at))

    # ---------------------------------------------------------------- effects

    def feed(self, event: Event) -> None:
        self.events.append(event)
        for effect in self.hub.handle(event):
            self.effects.append(effect)
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case ToFront():
                sent = self.sent.get(str(effect.parent.get("msg_id")))
                if sent is not None:
                    sent.effects.append(effect)
            case ToRank():
                self._to_rank(effect)
            case SetTimer():
                self.timers[effect.key] = effect.at
            case CancelTimer():
                self.timers.pop(effect.key, None)
            case Launch():
                self.launches.append(effect)
                for spec in effect.request.ranks:
                    assert spec.rank not in self.ranks, "double launch"
                    self.ranks[spec.rank] = FakeRank(spec.rank, effect.request.generation, spec.env)
            case Interrupt():
                for rank in effect.ranks:
                    if rank in self.ranks:
                        self.ranks[rank].interrupted = True
            case Stop():
                for rank in effect.ranks:
                    if rank in self.ranks:
                        self.ranks[rank].stopping = True
            case Survey():
                self.surveys.append(effect.token)
            case Log():
                self.logs.append(effect)
            case Exit():
                self.exits.append(effect.code)

    def _to_rank(self, effect: ToRank) -> None:
        for rank in effect.ranks:
            fake = self.ranks.get(rank)
            if fake is None:
                continue
            if effect.channel == "stdin":
                fake.answers.append(json.loads(effect.message.content)["value"])
            elif effect.channel == "control":
                fake.control.append(effect.message)
            else:
                fake.inbox.append(effect.message)

    # ---------------------------------------------------------------- clients

    def ask(
        self, msg_type: str, content: Any, *, channel: Any = "shell", raw: bytes | None = None
    ) -> Sent:
        msg_id = f"c{next(self._ids)}"
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": "client"}
        body = json.dumps(content).encode() if raw is None else raw
        sent = Sent(Message(header, {}, {}, body), channel)
        self.sent[msg_id] = sent
        self.feed(FromFront(self.tick(), channel, (b"client",), sent.message))
        return sent

    def execute(self, code: str, **content: Any) -> Sent:
        base = {"code": code, "silent": False, "store_history": True, "allow_stdin": True}
        return self.ask("execute_request", {**base, **content})

    def run(self, code: str, **content: Any) -> Sent:
        sent = self.execute(code, **content)
        self.settle()
        return sent

    # ---------------------------------------------------------------- ranks

    def tick(self, seconds: float = 0.001) -> float:
        self.at += seconds
        return self.at

    def say(
        self, fake: FakeRank, channel: Any, msg_type: str, content: Any, parent: Message | None
    ) -> None:
        header = {"msg_id": f"r{next(self._ids)}", "msg_type": msg_type, "session": f"r{fake.rank}"}
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        message = Message(header, dict(parent.header) if parent else {}, {}, body)
        self.feed(FromRank(self.tick(), fake.rank, fake.generation, channel, message))

    def become_ready(self, fake: FakeRank) -> None:
        fake.ready = True
        info = {"status": "ok", "supported_features": ["debugger"], "implementation": "fake"}
        self.feed(RankReady(self.tick(), fake.rank, fake.generation, 1000 + fake.rank, info))

    def die(self, fake: FakeRank, cause: Cause | None = None, stderr: str = "") -> None:
        if self.ranks.get(fake.rank) is fake:
            del self.ranks[fake.rank]
        self.graves.append(fake)
        cause = cause or Cause(signal=9)
        self.feed(RankExited(self.tick(), fake.rank, fake.generation, cause, stderr))

    def answer_shell(self, fake: FakeRank, error: bool = False) -> None:
        """The rank serves the oldest request of its shell from busy to idle."""
        request = fake.inbox.popleft()
        self.say(fake, "iopub", "status", {"execution_state": "busy"}, request)
        self.say(fake, "shell", *self._reply(fake, request, error), request)
        self.say(fake, "iopub", "status", {"execution_state": "idle"}, request)

    def _reply(self, fake: FakeRank, request: Message, error: bool) -> tuple[str, dict[str, Any]]:
        kind = request.msg_type
        if kind != "execute_request":
            return kind.replace("_request", "_reply"), {"status": "ok", "matches": [], "rank": 0}
        content = json.loads(request.content)
        fake.count += content["store_history"] and bool(content["code"].strip())
        reply: dict[str, Any] = {"status": "ok", "execution_count": fake.count, "payload": []}
        expressions = content.get("user_expressions") or {}
        reply["user_expressions"] = {
            name: {"status": "ok", "data": {"text/plain": "'2'"}, "metadata": {}}
            for name in expressions
        }
        if error:
            reply |= {"status": "error", "ename": "E", "evalue": "why", "traceback": ["E: why"]}
        return "execute_reply", reply

    def survey(self) -> None:
        self.feed(Surveyed(self.tick(), self.surveys.popleft(), self.facts))

    def fire(self, key: Hashable) -> None:
        self.at = max(self.at, self.timers.pop(key))
        self.feed(TimerFired(self.at, key))

    def pass_time_until(self, holds: Callable[[], bool]) -> None:
        """Nobody does anything, only timers fire."""
        while not holds():
            assert self.timers, "it never comes to hold"
            self.fire(min(self.timers, key=lambda key: self.timers[key]))

    def step(self) -> bool:
        """One honest thing that somebody still has to do; False if there is none."""
        for fake in list(self.ranks.values()):
            if fake.stopping:
                self.die(fake, Cause(code=0))
            elif not fake.ready:
                self.become_ready(fake)
            elif fake.control:
                request = fake.control.popleft()
                self.say(
                    fake, "control", request.msg_type.replace("_request", "_reply"), {}, request
                )
            elif fake.inbox:
                self.answer_shell(fake)
            else:
                continue
            return True
        if self.surveys:
            self.survey()
        elif self.timers:
            self.fire(min(self.timers, key=lambda key: self.timers[key]))
        else:
            return False
        return True

    def settle(self, limit: int = 10_000) -> None:
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError("the world does not come to rest")


def start(size: int = 1, **settings: Any) -> World:
    world = World(size, **settings)
    world.settle()
    return world
