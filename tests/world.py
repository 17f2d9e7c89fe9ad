"""A world without IO around one `Hub`: clients that ask, ranks that answer, die and lie.

Effects are performed on plain Python objects; nothing happens by itself.  A test (or hypothesis)
decides which rank does what next, and `settle` lets everybody finish honestly.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spmd_kernel.core.hub import Hub
from spmd_kernel.core.magics.survivors import PROBES
from spmd_kernel.core.model import (
    Began,
    CancelTimer,
    Cause,
    ClosePort,
    Connected,
    Disconnected,
    Dump,
    Dumped,
    Effect,
    Event,
    Exit,
    Facts,
    FromFront,
    FromRank,
    HangUp,
    Interrupt,
    Launch,
    Listen,
    Log,
    Message,
    OpenPort,
    PortOpened,
    Preload,
    Preloaded,
    Pulse,
    RankExited,
    RankReady,
    Received,
    SetTimer,
    Settings,
    Stop,
    Survey,
    Surveyed,
    TimerFired,
    ToConnection,
    ToFront,
    ToRank,
    Unblock,
    Unblocked,
)

from .debuggees import FakeDebuggee
from .editors import FakeEditor

QUIET_EXECUTE = {"silent": True, "store_history": False}
GIB = 1 << 30


Question = tuple[str, bool]  # prompt, whether it is a password


@dataclass
class FakeRank:
    """One rank process.  It waits in ``input()`` while it has a question, unless it is a liar."""

    rank: int
    generation: int
    env: dict[str, str]
    ready: bool = False
    stopping: bool = False
    interrupted: bool = False
    liar: bool = False  # it has sent something that no kernel would
    inbox: deque[Message] = field(default_factory=deque)  # shell: one after the other
    control: deque[Message] = field(default_factory=deque)
    subshells: dict[str, deque[Message]] = field(default_factory=dict)  # by its own ids
    questions: dict[str, Question] = field(default_factory=dict)  # by id of its input_request
    beside: set[str] = field(default_factory=set)  # those asked in a subshell
    answers: list[Any] = field(default_factory=list)  # input_replies
    broken: str = ""  # id of the request that a SIGINT hit: nothing comes of it
    live: set[str] = field(default_factory=set)  # "jax", "torch": what a magic may ask about
    count: int = 0
    debuggee: FakeDebuggee = field(init=False)
    at_work: bool = False  # it has said busy, of the first request of its inbox

    def __post_init__(self) -> None:
        self.debuggee = FakeDebuggee(self.rank, 1000 * self.generation + self.rank)

    @property
    def alive(self) -> bool:
        return self.ready and not self.stopping

    @property
    def waits(self) -> bool:
        asks = bool(self.questions.keys() - self.beside) and not self.liar
        return asks or self.debuggee.stopped

    def be_interrupted(self) -> None:
        self.interrupted = True
        self.broken = self.inbox[0].msg_id if self.inbox else ""
        for msg_id in self.questions.keys() - self.beside:  # input() raises KeyboardInterrupt
            del self.questions[msg_id]
        if self.debuggee.stopped:
            under_way = [json.loads(message.content) for message in self.control]
            self.debuggee.excused |= {content.get("seq", 0) for content in under_way}
            self.debuggee.go_on()

    def hear(self, answer: Message) -> None:
        """An input_reply: to a question of its own that is still open."""
        asked = str(answer.parent.get("msg_id"))
        assert self.liar or asked in self.questions, "answered a rank that does not wait for it"
        self.questions.pop(asked, None)
        self.answers.append(json.loads(answer.content)["value"])


def compared(fake: FakeRank, expression: str) -> str:
    """What the script of ``%compare`` answers in its steps: even and odd ranks have two values."""
    leaf = {"path": "", "text": f"int {fake.rank % 2}", "key": str(fake.rank % 2), "type": "t"}
    base = {**leaf, "text": "int", "key": "base"}
    steps: dict[str, dict[str, Any]] = {
        "begin": {"total": leaf["key"], "type": "int", "leaves": 1, "only": leaf},
        "publish": {"folder": "/folder"},
        "against": {"differ": [[0, 0]], "extra": 0, "leaves": [[0, "", base, leaf]]},
        "give": {"left": []},
        "measure": {"": {"size": 1, "differ": 1, "max": "1"}},
        "end": {},
    }
    found = re.search(r"\.answer\('(\w+)'", expression)
    assert found is not None
    return repr(json.dumps(steps[found[1]]))


def told(fake: FakeRank, name: str, expression: str) -> str:
    """The value of a user expression as text/plain."""
    if name in PROBES:
        return str(name in fake.live)
    if name == "joined":  # what JAX's processes do together: ranks with odd numbers find something
        return str(fake.rank % 2 == 1)
    return compared(fake, expression) if name == "compare" else "'2'"


@dataclass
class Asking:
    """The question that is with a client, and who has asked it, by id of the input_request."""

    effect: ToFront
    askers: dict[str, FakeRank]


@dataclass
class Sent:
    """A client's request and all that it got back."""

    message: Message
    channel: str
    idents: tuple[bytes, ...] = (b"client",)
    effects: list[ToFront] = field(default_factory=list)

    def of(self, *kinds: str) -> list[ToFront]:
        return [e for e in self.effects if e.msg_type in kinds]

    @property
    def kinds(self) -> list[str]:
        return [effect.msg_type for effect in self.effects]

    @property
    def finished(self) -> bool:
        return "idle" in self.states

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
    def __init__(
        self,
        size: int = 1,
        facts: Facts | None = None,
        subshells: bool = False,
        **settings: Any,
    ):
        """``subshells``: the kernel of the ranks has them."""
        self.subshells = subshells
        settings.setdefault("ports", tuple(range(20000, 20016)))
        settings.setdefault("compare", "compare.py")
        self.hub = Hub(Settings(session="own", processes=size, **settings))
        self.facts = facts or Facts(memory_available=64 * GIB)
        self.at = 100.0
        self.ranks: dict[int, FakeRank] = {}
        self.graves: list[FakeRank] = []
        self.timers: dict[Hashable, float] = {}
        self.surveys: deque[int] = deque()
        self.lookouts: deque[Dump | Unblock] = deque()
        self.stacks: dict[int, str] = {}  # what a rank's dump says, if it answers
        self.pulses: dict[int, Pulse] = {}
        self.closed: dict[int, int] = {}  # how many connections of a rank there are to close
        self.preloads: deque[Preload] = deque()
        self.wanted_ports: deque[OpenPort] = deque()
        self.port: int | None = None  # that of debuggers
        self.token = ""
        self.editors: list[FakeEditor] = []
        self.sent: dict[str, Sent] = {}
        self.effects: list[Effect] = []
        self.events: list[Event] = []
        self.logs: list[Log] = []
        self.unheard: set[int] = set()  # ranks whose IOPub is not read
        self.exits: list[int] = []
        self.launches: list[Launch] = []
        self.asking: Asking | None = None
        self._ids = itertools.count()
        self._debugs: list[Sent] = []  # requests that may not be answered yet
        self._vain = 0
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
                if effect.msg_type == "input_request":
                    self._show_question(effect)
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
                    env, generation = dict(spec.env), effect.request.generation
                    self.ranks[spec.rank] = FakeRank(spec.rank, generation, env)
            case Interrupt():
                for rank in effect.ranks:
                    if rank in self.ranks:
                        self.ranks[rank].be_interrupted()
            case Stop():
                for rank in effect.ranks:
                    if rank in self.ranks:
                        self.ranks[rank].stopping = True
            case Survey():
                self.surveys.append(effect.token)
            case Dump() | Unblock():
                self.lookouts.append(effect)
            case Preload():
                self.preloads.append(effect)
            case Listen():
                ranks = set(effect.ranks)
                self.unheard = self.unheard - ranks if effect.on else self.unheard | ranks
            case OpenPort():
                self.wanted_ports.append(effect)
            case ClosePort():
                self.port = None
            case ToConnection():
                self.editors[effect.connection - 1].take(effect.data)
            case HangUp():
                self.editors[effect.connection - 1].hung_up = True
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
                fake.hear(effect.message)
            elif effect.channel == "control":
                if b'"command":"initialize"' in effect.message.content:
                    assert not self.runs_a_cell(fake), "it would block until the cell ends"
                fake.control.append(effect.message)
            elif subshell := effect.message.header.get("subshell_id"):
                assert fake.liar or subshell in fake.subshells, "sent to a subshell that it has not"
                fake.subshells.setdefault(subshell, deque()).append(effect.message)
            else:
                fake.inbox.append(effect.message)

    # ---------------------------------------------------------------- questions

    def _show_question(self, effect: ToFront) -> None:
        content = json.loads(effect.content)
        assert not self.question_open, "two questions at once"
        askers = {
            msg_id: fake
            for fake in self.ranks.values()
            for msg_id, question in fake.questions.items()
            if self._is_shown(question, content)
        }
        assert askers, "a question that nobody asks"
        self.asking = Asking(effect, askers)

    @staticmethod
    def _is_shown(question: Question, content: Mapping[str, Any]) -> bool:
        """Each line of the prompt may have ranks in front of it."""
        prompt, password = question
        plain = re.sub(r"(?m)^ *\d[\d,-]* │ ", "", content["prompt"])
        return prompt in (plain, content["prompt"]) and content["password"] is password

    @property
    def question_open(self) -> bool:
        """An honest rank waits for the answer to what a client was asked last."""
        return any(not fake.liar for fake in self.waiting())

    def waiting(self) -> list[FakeRank]:
        """Ranks that wait for that answer; of a liar nobody knows."""
        asking = self.asking
        if asking is None or self.sent[str(asking.effect.parent["msg_id"])].finished:
            return []
        return [
            fake
            for msg_id, fake in asking.askers.items()
            if self.ranks.get(fake.rank) is fake and msg_id in fake.questions
        ]

    def answer(self, value: str) -> Sent:
        """The client types an answer; ranks that wait for it, and only they, get it."""
        honest = {fake.rank for fake in self.waiting() if not fake.liar}
        before = {id(fake): len(fake.answers) for fake in self.ranks.values()}
        client = self.asking.effect.idents[0] if self.asking is not None else b"client"
        self.asking = None
        sent = self.ask("input_reply", {"value": value}, channel="stdin", client=client)
        heard = [f for f in self.ranks.values() if before.get(id(f), 0) < len(f.answers)]
        assert {fake.rank for fake in heard if not fake.liar} == honest
        return sent

    def question(
        self, fake: FakeRank, prompt: str, password: bool = False, parent: Message | None = None
    ) -> None:
        """The rank calls ``input(prompt)`` in the cell that it runs."""
        msg_id = self._next_id()
        fake.questions[msg_id] = (prompt, password)
        content = {"prompt": prompt, "password": password}
        parent = parent or (fake.inbox[0] if fake.inbox else None)
        if parent is not None and parent.header.get("subshell_id"):
            fake.beside.add(msg_id)
        self.say(fake, "stdin", "input_request", content, parent, msg_id=msg_id)

    # ---------------------------------------------------------------- clients

    def ask(
        self,
        msg_type: str,
        content: Any,
        *,
        channel: Any = "shell",
        raw: bytes | None = None,
        client: bytes = b"client",
        buffers: tuple[bytes, ...] = (),
        metadata: Mapping[str, Any] | None = None,
        **header: Any,
    ) -> Sent:
        msg_id = f"c{next(self._ids)}"
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": client.hex(), **header}
        body = json.dumps(content).encode() if raw is None else raw
        sent = Sent(Message(header, {}, metadata or {}, body, buffers), channel, (client,))
        self.sent[msg_id] = sent
        if msg_type == "debug_request":
            self._debugs.append(sent)
        self.feed(FromFront(self.tick(), channel, sent.idents, sent.message))
        return sent

    def execute(
        self,
        code: str,
        client: bytes = b"client",
        cell_id: str = "",
        header: Mapping[str, Any] | None = None,
        **content: Any,
    ) -> Sent:
        """``cell_id``: as notebooks do."""
        base = {"code": code, "silent": False, "store_history": True, "allow_stdin": True}
        metadata = {"cellId": cell_id} if cell_id else {}
        return self.ask(
            "execute_request",
            {**base, **content},
            client=client,
            metadata=metadata,
            **(header or {}),
        )

    def control(self, command: Any, **arguments: Any) -> Sent:
        content = {"command": command, "arguments": arguments}
        return self.ask("spmd_request", content, channel="control")

    def run(self, code: str, **content: Any) -> Sent:
        sent = self.execute(code, **content)
        self.settle()
        return sent

    # ---------------------------------------------------------------- ranks

    def tick(self, seconds: float = 0.001) -> float:
        self.at += seconds
        return self.at

    def say(
        self,
        fake: FakeRank,
        channel: Any,
        msg_type: str,
        content: Any,
        parent: Message | None,
        metadata: Mapping[str, Any] | None = None,
        buffers: tuple[bytes, ...] = (),
        msg_id: str = "",
    ) -> None:
        msg_id = msg_id or self._next_id()
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": f"r{fake.rank}"}
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        parent_header = dict(parent.header) if parent else {}
        message = Message(header, parent_header, metadata or {}, body, buffers)
        self.feed(FromRank(self.tick(), fake.rank, fake.generation, channel, message))

    def _next_id(self) -> str:
        return f"r{next(self._ids)}"

    def become_ready(self, fake: FakeRank) -> None:
        fake.ready = True
        info = {"status": "ok", "supported_features": ["debugger"], "implementation": "ipython"}
        if self.subshells:
            info |= {"supported_features": ["kernel subshells", "debugger"]}
            info |= {"implementation": "ipython"}
        self.feed(RankReady(self.tick(), fake.rank, fake.generation, 1000 + fake.rank, info))

    def die(
        self,
        fake: FakeRank,
        cause: Cause | None = None,
        stderr: str = "",
        unsent: tuple[tuple[str, str], ...] = (),
    ) -> None:
        if self.ranks.get(fake.rank) is fake:
            del self.ranks[fake.rank]
        self.graves.append(fake)
        cause = cause or Cause(signal=9)
        self.feed(RankExited(self.tick(), fake.rank, fake.generation, cause, stderr, unsent))

    def answer_shell(self, fake: FakeRank, error: bool = False) -> None:
        """The rank serves the oldest request of its shell from busy to idle."""
        self.begin(fake)
        fake.at_work = False
        self._serve(fake, fake.inbox.popleft(), error)

    def answer_subshell(self, fake: FakeRank, subshell: str, error: bool = False) -> None:
        """The same in a thread of its own."""
        request = fake.subshells[subshell].popleft()
        self.say(fake, "iopub", "status", {"execution_state": "busy"}, request)
        self._serve(fake, request, error)

    def _about_subshells(self, fake: FakeRank, request: Message) -> dict[str, Any]:
        if not self.subshells:
            return {}
        if request.msg_type == "create_subshell_request":
            subshell = f"s{next(self._ids)}-{fake.rank}"
            fake.subshells[subshell] = deque()
            return {"status": "ok", "subshell_id": subshell}
        if request.msg_type == "delete_subshell_request":
            subshell = json.loads(request.content)["subshell_id"]
            left = fake.subshells.pop(subshell, None)
            assert fake.liar or left is not None, "it has no such subshell"
            assert fake.liar or not left, "deleted while it is at work: the rank serves nobody"
        return {"status": "ok"}

    def _serve(self, fake: FakeRank, request: Message, error: bool) -> None:
        if b'"request_states"' in request.content:
            self.tell_states(fake, request)
        if not request.msg_type.startswith("comm_"):  # comm messages have no reply
            self.say(fake, "shell", *self.reply_of(fake, request, error), request)
        self.say(fake, "iopub", "status", {"execution_state": "idle"}, request)

    def begin(self, fake: FakeRank) -> None:
        """It is busy with the oldest request of its shell."""
        if not fake.at_work:
            fake.at_work = True
            self.say(fake, "iopub", "status", {"execution_state": "busy"}, fake.inbox[0])

    def tell_states(self, fake: FakeRank, request: Message) -> None:
        """All its widgets, of which it has one, with one buffer."""
        widget = f"widget-{fake.rank}"
        content = {
            "comm_id": json.loads(request.content)["comm_id"],
            "data": {
                "method": "update_states",
                "states": {widget: {"state": {"rank": fake.rank}}},
                "buffer_paths": [[widget, "state", "image"]],
            },
        }
        self.say(fake, "iopub", "comm_msg", content, request, {}, (bytes([fake.rank]),))

    def reply_of(self, fake: FakeRank, request: Message, error: bool) -> tuple[str, dict[str, Any]]:
        kind = request.msg_type
        if kind != "execute_request":
            return kind.replace("_request", "_reply"), {"status": "ok", "matches": [], "rank": 0}
        content = json.loads(request.content)
        self._count(fake, content)
        if request.msg_id != fake.broken:
            self._hear_of_the_world(fake, content["code"])
        reply: dict[str, Any] = {"status": "ok", "execution_count": fake.count, "payload": []}
        expressions = content.get("user_expressions") or {}
        reply["user_expressions"] = {
            name: {"status": "ok", "data": {"text/plain": told(fake, name, text)}, "metadata": {}}
            for name, text in expressions.items()
        }
        if error:
            reply |= {"status": "error", "ename": "E", "evalue": "why", "traceback": ["E: why"]}
        return "execute_reply", reply

    @staticmethod
    def _hear_of_the_world(fake: FakeRank, code: str) -> None:
        """What a survivor is told of its environment."""
        for variables in re.findall(r"^__import__\('os'\)\.environ\.update\((.*)\)$", code, re.M):
            fake.env.update(ast.literal_eval(variables))
        for name in re.findall(r"environ\.pop\('(\w+)', None\)", code):
            fake.env.pop(name, None)

    @staticmethod
    def _count(fake: FakeRank, content: dict[str, Any]) -> None:
        """As IPython counts; `core.padding` sets what it counts."""
        if padding := re.search(r'"count": (\d+)}\)$', content["code"]):
            fake.count = int(padding[1]) - 1
        elif content.get("store_history", True) and not content["silent"]:
            fake.count += bool(content["code"].strip())

    # ---------------------------------------------------------------- debuggers

    @property
    def debugs(self) -> bool:
        """A client waits for an answer of the debugger."""
        self._debugs = [sent for sent in self._debugs if not sent.finished]
        return bool(self._debugs)

    def debug(self, command: Any, **arguments: Any) -> Sent:
        content = {"type": "request", "seq": 5, "command": command, "arguments": arguments}
        return self.ask("debug_request", content, channel="control")

    def debugged(self, command: Any, **arguments: Any) -> dict[str, Any]:
        """The response, all others answering honestly; stopped ranks stay so."""
        sent = self.debug(command, **arguments)
        for _ in range(1000):
            if sent.finished:
                return sent.reply
            ours = [
                f
                for f in self.ranks.values()
                if f.inbox and self.hub.stage.is_own(f.inbox[0].header)
            ]
            if self.step_of_debuggers():
                continue
            if ours and not ours[0].waits:
                self.answer_shell(ours[0])
            else:
                self.fire(min(self.timers, key=lambda key: self.timers[key]))
        raise AssertionError("no answer")

    def step_of_debuggers(self) -> bool:
        for fake in list(self.ranks.values()):
            if fake.control:
                self.answer_control(fake)
                return True
            if fake.debuggee.events:
                self.tell_event(fake)
                return True
        return False

    def quiet(self) -> None:
        """Whatever is under way between us and the ranks' debuggers."""
        while self.step_of_debuggers():
            pass

    def answer_control(self, fake: FakeRank) -> None:
        request = fake.control.popleft()
        kind = request.msg_type.replace("_request", "_reply")
        reply: Any = self._about_subshells(fake, request)
        if request.msg_type == "debug_request":
            reply = fake.debuggee.answer(json.loads(request.content))
        if reply is not None:
            self.say(fake, "control", kind, reply, request)
        self.say(fake, "iopub", "status", {"execution_state": "idle"}, request)

    def runs_a_cell(self, fake: FakeRank) -> bool:
        """Or has it in its queue."""
        return not fake.liar and any(
            request.msg_type == "execute_request" and not self.hub.stage.is_own(request.header)
            for request in fake.inbox
        )

    def tell_event(self, fake: FakeRank) -> None:
        event = fake.debuggee.events.pop(0)
        self.say(fake, "iopub", "debug_event", event, None)

    def stop(self, fake: FakeRank, reason: str = "breakpoint") -> None:
        """The rank stops in what it runs."""
        self.begin(fake)
        fake.debuggee.stop(reason)

    @property
    def debug_events(self) -> list[dict[str, Any]]:
        return [
            json.loads(effect.content)
            for effect in self.effects
            if isinstance(effect, ToFront) and effect.msg_type == "debug_event"
        ]

    # ---------------------------------------------------------------- the debug port

    def port_opened(self, problem: str = "") -> None:
        """Each time it has another token."""
        port = self.wanted_ports.popleft().port or 4000
        token = f"token {len(self.events)}"
        if not problem:
            self.port, self.token = port, token
        self.feed(PortOpened(self.tick(), 0 if problem else port, token, problem))

    def connect(self) -> FakeEditor:
        editor = FakeEditor(len(self.editors) + 1)
        self.editors.append(editor)
        self.feed(Connected(self.tick(), editor.number))
        return editor

    def tell(self, editor: FakeEditor, data: bytes) -> None:
        """An editor says so, if it can."""
        if not (editor.hung_up or editor.gone):
            self.feed(Received(self.tick(), editor.number, data))

    def edit(self, editor: FakeEditor, command: Any, **arguments: Any) -> dict[str, Any]:
        """The response to a request of an editor, all others answering honestly."""
        self.tell(editor, editor.request(command, **arguments))
        while len(editor.responses) < len(editor.asked):
            if not self.step_of_debuggers():
                self.fire(min(self.timers, key=lambda key: self.timers[key]))
        return editor.response

    def attach(self) -> FakeEditor:
        editor = self.connect()
        assert self.edit(editor, "initialize")["success"]
        assert self.edit(editor, "attach", token=self.token)["success"], editor.response
        return editor

    def leave(self, editor: FakeEditor) -> None:
        editor.gone = True
        self.feed(Disconnected(self.tick(), editor.number))

    def step_of_editors(self) -> bool:
        """Those that were hung up on are gone then."""
        for editor in self.editors:
            if editor.hung_up and not editor.gone:
                self.leave(editor)
                return True
        return False

    def survey(self) -> None:
        self.feed(Surveyed(self.tick(), self.surveys.popleft(), self.facts))

    def look(self) -> None:
        """The engine answers the oldest question about ranks."""
        match self.lookouts.popleft():
            case Dump(token=token, ranks=ranks):
                known = {r: self.stacks[r] for r in ranks if r in self.stacks and r in self.ranks}
                pulses = {r: self.pulses[r] for r in known if r in self.pulses}
                self.feed(Dumped(self.tick(), token, known, pulses))
            case Unblock(token=token, ranks=ranks):
                closed = {r: self.closed.pop(r, 0) for r in ranks if r in self.ranks}
                self.feed(Unblocked(self.tick(), token, closed))

    def preloaded(self, problem: str | None = None) -> None:
        """What is to be imported is, unless its name says that it cannot be."""
        effect = self.preloads.popleft()
        bad = [name for name in effect.request.preload if name.startswith("no_")]
        if problem is None:
            problem = f"{bad[0]} cannot be imported" if bad else ""
        self.feed(Preloaded(self.tick(), effect.token, problem))

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
                self.answer_control(fake)
            elif busy := [key for key, inbox in fake.subshells.items() if inbox]:
                self.answer_subshell(fake, busy[0])
            elif fake.debuggee.events:
                self.tell_event(fake)
            elif fake.debuggee.stopped and not self.debugs:
                self._vain += 1
                assert self._vain < 100, "a rank is stopped that nobody can let go on"
                self.debug("continue", threadId=1)
            elif fake.inbox and not fake.waits:
                self.answer_shell(fake)
            else:
                continue
            return True
        if self.waiting():
            self.answer("typed")
        elif self.surveys:
            self.survey()
        elif self.lookouts:
            self.look()
        elif self.preloads:
            self.preloaded()
        elif self.wanted_ports:
            self.port_opened()
        elif self.step_of_editors():
            pass
        elif self.timers:
            self.fire(min(self.timers, key=lambda key: self.timers[key]))
        else:
            return False
        return True

    def settle(self, limit: int = 10_000) -> None:
        for _ in range(limit):
            if not self.step():
                waiting = [fake.rank for fake in self.ranks.values() if fake.waits]
                assert not waiting, f"ranks {waiting} wait for an answer to what nobody is asked"
                return
        raise AssertionError("the world does not come to rest")


def start(size: int = 1, **settings: Any) -> World:
    world = World(size, **settings)
    world.settle()
    return world
