"""The invariants of the whole hub, against clients and ranks that do anything in any order.

The numbers are those of the list in docs/adr/0001-sans-io-core.md.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any, TypeGuard

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from spmd_kernel.core.control.status import snapshot, with_resources
from spmd_kernel.core.hub import Hub
from spmd_kernel.core.model import (
    OUTPUT_TYPES,
    Cause,
    Effect,
    Event,
    FromFront,
    FromRank,
    Message,
    Pulse,
    RankExited,
    Signalled,
    ToFront,
    ToRank,
)
from spmd_kernel.core.topology import SHARED

from ..dumps import dump
from ..editors import FakeEditor
from ..world import FakeRank, Sent, World, start

CELLS = [
    "pass",
    "x = 1",
    "%ranks",
    "%processes 2",
    "%processes 3 --fresh",
    "%processes 1",
    "%processes 2 --preload torch --fresh",
    "%processes 2 --preload no_such --fresh",
    "%processes 0",
    "%processes 3 --keep",
    "%processes 1 --keep",
    "%processes 2 --keep\nx = 1",
    "%restart 1",
    "%restart dead\nx = 1",
    "%restart all",
    "%%rank 0\nprint()",
    "%%rank -1\nprint()",
    "%%rank 7\nprint()",
    "%rank 0 x\ny = 1",
    "x = 1\n%processes 2",
    "%timing",
    "%debugport",
    "%debugport off",
    "%%timeout 1\nprint()",
    "%%timeout 1 --on 0\nprint()",
    "%compare x",
    "%rank -1 x\n%compare --on 0 x\ny = 1",
    "",
]
OUTPUTS: list[tuple[str, Any]] = [
    ("display_data", {"data": {"text/plain": "d"}, "metadata": {}, "transient": {}}),
    ("execute_result", {"data": {"text/plain": "5"}, "metadata": {}, "execution_count": 1}),
    ("error", {"ename": "E", "evalue": "v", "traceback": ["E: v"]}),
    ("clear_output", {"wait": False}),
    ("unheard_of", {"a": 1}),
]
C10D = "torch/distributed/distributed_c10d.py"
FRAMES: list[Any] = [
    None,
    [],
    [(C10D, "barrier")],
    [(C10D, "init_process_group")],
    [("jaxlib/xla_client.py", "make_cpu_client")],
]
CLIENTS = [b"client", b"another client"]
COMMS = ["k1", "k2", "k3"]
COMM_KINDS = ["comm_open", "comm_msg", "comm_close"]
STATUS_COMMS = ["s1", "s2"]
CONTROL: list[tuple[Any, Any]] = [
    ("status", {}),
    ("status", {"resources": True}),
    ("interrupt", {}),
    ("interrupt", {"ranks": [0]}),
    ("interrupt", {"ranks": "all"}),
    ("interrupt", {"ranks": [9]}),
    ("processes", {"size": 2}),
    ("processes", {"size": 3, "wait": True}),
    ("processes", {"size": 0}),
    ("processes", {"wait": True, "fresh": True, "show": "-1"}),
    ("processes", {"size": 2, "keep": True, "wait": True}),
    ("restart", {"ranks": "dead"}),
    ("restart", {"ranks": "0", "wait": True}),
    ("restart", {"ranks": "-1", "force": True}),
    ("restart", {"ranks": "all", "force": True}),
    ("timing", {"last": 2}),
    ("where", {}),
    ("outputs", {}),
    ("outputs", {"from": 1, "most": 0}),
    ("outputs", {"msg_id": "none"}),
    ("answer", {"value": "by control"}),
    ("answer", {"value": "late", "msg_id": "none"}),
    ("nonsense", {}),
    (5, None),
    ("status", {"odd": 1}),
    ("status", [[[]]]),
]
DEBUG: list[tuple[Any, dict[str, Any]]] = [
    *[("initialize", {})] * 3,
    *[("attach", {})] * 3,
    ("debugInfo", {}),
    ("dumpCell", {"code": "x = 1"}),
    ("setBreakpoints", {"source": {"path": "/cells/5.py"}, "breakpoints": [{"line": 3}]}),
    (
        "setBreakpoints",
        {"source": {"path": "p"}, "breakpoints": [{"line": 1, "condition": "RANK == 1"}]},
    ),
    ("setBreakpoints", {"source": {"path": "p"}, "breakpoints": [{"condition": "RANK == 1"}, 5]}),
    ("setExceptionBreakpoints", {"filters": ["raised"]}),
    *[("continue", {"threadId": 1})] * 3,
    ("next", {"threadId": 65537}),
    ("stepIn", {"threadId": 131073, "singleThread": True}),
    ("pause", {}),
    ("threads", {}),
    ("stackTrace", {"threadId": 131073}),
    ("scopes", {"frameId": 1}),
    ("variables", {"variablesReference": 3}),
    ("variables", {"variablesReference": "x"}),
    ("inspectVariables", {}),
    ("evaluate", {"expression": "%all x"}),
    ("evaluate", {"expression": "x", "frameId": 2}),
    ("richInspectVariables", {"variableName": "a"}),
    ("spmdFocus", {"rank": 1}),
    ("setVariable", {"variablesReference": 2}),
    ("unheard of", {}),
    (5, {}),
    ("disconnect", {}),
]
EDITS: list[tuple[Any, dict[str, Any]]] = [
    *[("initialize", {})] * 4,
    *[("attach", {"token": True})] * 8,  # the right one
    ("attach", {"token": "another"}),
    ("initialize", {"linesStartAt1": False}),
    ("loadedSources", {}),
    ("configurationDone", {}),
    *DEBUG[2:],
]
GARBAGE = [b"", b"[]", b"{", b"null", b'{"name": 5, "text": []}', b'{"data": 3}', b"\xff\xfe"]


class CommWorld(World):
    """Keeps its own table of who owns each comm, and holds the hub's messages against it."""

    def __init__(self, size: int, subshells: bool = False):
        self.owners: dict[str, set[int]] = {}
        self.forwarded: list[tuple[str, bytes, tuple[Any, ...]]] = []
        self._due: dict[str, set[int]] = {}  # ranks that are to get a client's message
        self.pushed: dict[str, Any] = {}  # the status that each comm has been told
        self.changed_at: list[float] = []
        self._spoken: set[str] = set()
        self.hooks: dict[str, list[str]] = {}  # Output widgets that take what has this parent
        self.taken: dict[str, list[bytes]] = {}  # what each of them got
        self.told_states: dict[str, set[int]] = {}  # ranks that answered a request_states
        super().__init__(size, subshells=subshells)

    def feed(self, event: Event) -> None:
        match event:
            case FromRank(channel="iopub") if event.message.msg_type in COMM_KINDS:
                fake = self.ranks.get(event.rank)
                if fake is not None and fake.generation == event.generation:
                    self._rank_speaks(event.rank, event.message)
            case RankExited() if event.rank not in self.ranks:
                for owners in self.owners.values():
                    owners.discard(event.rank)
        super().feed(event)

    def _rank_speaks(self, rank: int, message: Message) -> None:
        comm_id = _comm_id(message.content)
        if comm_id not in COMMS:
            return
        if message.msg_type == "comm_open":
            self.owners.setdefault(comm_id, set()).add(rank)
        elif message.msg_type == "comm_close":
            self.owners.get(comm_id, set()).discard(rank)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case ToRank() if _comm_id(effect.message.content) in STATUS_COMMS:
                raise AssertionError("no rank hears of it")
            case ToFront(msg_type="comm_msg") if _comm_id(effect.content) in STATUS_COMMS:
                self._is_told(json.loads(effect.content))
            case ToRank() if _comm_id(effect.message.content) in COMMS:
                self._client_speaks(self.sent[effect.message.msg_id].message)
                due = self._due.get(effect.message.msg_id, set())
                assert due.issuperset(effect.ranks), (effect, due)
                due.difference_update(effect.ranks)
                inside = "subshell_id" in effect.message.header
                asked = self.sent[effect.message.msg_id].message.header
                assert not inside or asked["subshell_id"] is not None
            case ToFront(msg_type="status") if _state(effect) == "busy":
                sent = self.sent.get(str(effect.parent.get("msg_id")))
                if sent is not None and _comm_id(sent.message.content) in COMMS:
                    self._client_speaks(sent.message)
            case ToFront(msg_type="status") if _state(effect) == "idle":
                assert not self._due.pop(str(effect.parent.get("msg_id")), set()), "not delivered"
            case ToFront(msg_type="comm_info_reply"):
                shown = set(json.loads(effect.content)["comms"]).intersection(COMMS)
                assert shown == {comm_id for comm_id, owners in self.owners.items() if owners}
            case ToFront() if _comm_id(effect.content) in COMMS:
                self.forwarded.append((effect.msg_type, effect.content, effect.buffers))
            case ToFront(msg_type="comm_msg") if _comm_id(effect.content).startswith("out-"):
                self._hook(_comm_id(effect.content), json.loads(effect.content)["data"]["state"])
            case ToFront(msg_type="stream") if (
                # Not what we say ourselves of a rank that died in its `with`.
                b'"line-' in effect.content and (hooks := self.hooks.get(_parent_id(effect)))
            ):
                self.taken.setdefault(hooks[-1], []).append(effect.content)
                return  # no cell shows it
        super()._perform(effect)

    def _is_told(self, content: Any) -> None:
        comm_id, data = content["comm_id"], content["data"]
        status = data["status"]
        if data["kind"] == "change":
            ranks = {entry["rank"]: entry for entry in self.pushed[comm_id]["ranks"]}
            ranks |= {entry["rank"]: entry for entry in status.get("ranks", [])}
            status = {**self.pushed[comm_id], **status}
            status["ranks"] = [ranks[rank] for rank in sorted(ranks) if rank < status["size"]]
            if not self.changed_at or self.changed_at[-1] != self.at:
                self.changed_at.append(self.at)
        self.pushed[comm_id] = status

    def _hook(self, widget: str, state: dict[str, str]) -> None:
        """As clients do: the last one that asked for a parent's outputs takes them."""
        for stack in self.hooks.values():
            if widget in stack:
                assert stack.pop() == widget, "not the innermost"
        if state["msg_id"]:
            assert state["msg_id"] in self.sent, "a request that the client never sent"
            self.hooks.setdefault(state["msg_id"], []).append(widget)

    def tell_states(self, fake: FakeRank, request: Message) -> None:
        self.told_states.setdefault(request.msg_id, set()).add(fake.rank)
        super().tell_states(fake, request)

    def _client_speaks(self, message: Message) -> None:
        """What the hub does first shows that it is the message's turn."""
        if message.msg_id in self._spoken:
            return
        self._spoken.add(message.msg_id)
        subshell = message.header.get("subshell_id")
        if subshell is not None and subshell not in self.hub.subshells.ids:
            return
        comm_id = _comm_id(message.content)
        alive = {fake.rank for fake in self.ranks.values() if fake.alive}
        if message.msg_type == "comm_open" and alive:
            self.owners[comm_id] = alive
        owners = self.owners.get(comm_id, set())
        self._due[message.msg_id] = owners & alive
        if message.msg_type == "comm_close":
            self.owners[comm_id] = owners - alive


def _comm_id(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["comm_id"])
    except (ValueError, TypeError, KeyError):
        return ""


def _thread_of(raw: bytes) -> int:
    try:
        return int(json.loads(raw)["arguments"]["threadId"])
    except (ValueError, TypeError, KeyError):
        return 0


def _state(effect: ToFront) -> str:
    return str(json.loads(effect.content)["execution_state"])


def _parent_id(effect: ToFront) -> str:
    return str(effect.parent.get("msg_id"))


def _is_question(effect: Effect) -> TypeGuard[ToFront]:
    return isinstance(effect, ToFront) and effect.msg_type == "input_request"


FakeRankId = tuple[int, int]  # rank and generation


class Machine(RuleBasedStateMachine):
    @initialize(
        size=st.sampled_from([1, 2, 3]),
        started=st.booleans(),
        subshells=st.sampled_from([None, 0, 1, 2]),
    )
    def begin(self, size: int, started: bool, subshells: int | None) -> None:
        """``subshells``: how many clients ask for first of all, or None: there are none."""
        self.world = CommWorld(size, subshells is not None)
        self.subshells: list[str] = []  # that a client knows, or once knew
        for _ in range(subshells or 0):
            self.create_subshell("control")
        if started:
            self.world.settle()
        self.printed: list[tuple[str, int, str]] = []  # (cell, rank, line), in order
        self.cleared: set[str] = set()  # lines that their rank has cleared: they may show
        self.live: set[str] = set()  # lines after a clear: they may show in a live display
        self.clearing: set[FakeRankId] = set()
        self.told: list[tuple[str, bytes, tuple[Any, ...]]] = []  # comm messages of ranks
        self.capturing: dict[FakeRankId, list[tuple[str, str]]] = {}  # parent and Output widget
        self.captured: dict[str, list[str]] = {}  # lines that are for each Output widget
        self.serial = 0

    @property
    def ranks(self) -> list[FakeRank]:
        return [fake for fake in self.world.ranks.values() if fake.alive]

    @property
    def busy(self) -> list[FakeRank]:
        return [fake for fake in self.ranks if fake.inbox]

    @property
    def servable(self) -> list[FakeRank]:
        return [fake for fake in self.busy if not fake.waits]

    @property
    def may_ask(self) -> list[FakeRank]:
        """ipykernel asks only while it runs a cell that allows it, and then it waits."""
        return [
            fake
            for fake in self.busy
            if not (fake.questions or fake.debuggee.stopped) and self.allows(fake.inbox[0])
        ]

    def allows(self, request: Message) -> bool:
        if request.msg_id.split()[0] not in self.world.sent:  # one of the kernel's own
            return False
        content = json.loads(request.content)
        return request.msg_type == "execute_request" and bool(content["allow_stdin"])

    # ---------------------------------------------------------------- clients

    @rule(
        code=st.sampled_from(CELLS),
        stop=st.booleans(),
        stdin=st.booleans(),
        silent=st.booleans(),
        store=st.booleans(),
        client=st.sampled_from(CLIENTS),
    )
    def execute(
        self, code: str, stop: bool, stdin: bool, silent: bool, store: bool, client: bytes
    ) -> None:
        self.world.execute(
            code,
            client,
            stop_on_error=stop,
            allow_stdin=stdin,
            silent=silent,
            store_history=store,
        )

    @rule(raw=st.sampled_from(GARBAGE))
    def execute_garbage(self, raw: bytes) -> None:
        self.world.ask("execute_request", None, raw=raw)

    @rule(
        kind=st.sampled_from(
            ["complete", "inspect", "is_complete", "history", "kernel_info", "comm_info", "odd"]
        ),
        client=st.sampled_from(CLIENTS),
        channel=st.sampled_from(["shell", "shell", "control"]),
    )
    def query(self, kind: str, client: bytes, channel: str) -> None:
        content = {"code": "pri", "cursor_pos": 3}
        self.world.ask(f"{kind}_request", content, client=client, channel=channel)

    def any_shell(self, data: st.DataObject) -> dict[str, Any]:
        """The part of a header that names the shell."""
        self.subshells += [s for s in self.world.hub.subshells.ids if s not in self.subshells]
        return {"subshell_id": data.draw(st.sampled_from([*self.subshells, None, "unknown"]))}

    @rule(data=st.data(), code=st.sampled_from(CELLS), stop=st.booleans(), store=st.booleans())
    def execute_beside(self, data: st.DataObject, code: str, stop: bool, store: bool) -> None:
        self.world.execute(
            code, stop_on_error=stop, store_history=store, header=self.any_shell(data)
        )

    @rule(kind=st.sampled_from(["complete", "history", "is_complete"]), data=st.data())
    def query_beside(self, kind: str, data: st.DataObject) -> None:
        self.world.ask(f"{kind}_request", {"code": "a"}, **self.any_shell(data))

    @rule(channel=st.sampled_from(["control", "control", "shell"]))
    def create_subshell(self, channel: str) -> None:
        self.world.ask("create_subshell_request", {}, channel=channel)

    @rule(data=st.data())
    def delete_subshell(self, data: st.DataObject) -> None:
        self.world.ask("delete_subshell_request", self.any_shell(data), channel="control")

    @rule()
    def list_subshells(self) -> None:
        before = self.world.hub.subshells.ids
        listed = self.world.ask("list_subshell_request", {}, channel="control")
        if listed.replies:
            assert listed.reply["subshell_id"] == before

    @rule(client=st.sampled_from(CLIENTS))
    def ask_usage(self, client: bytes) -> None:
        self.world.ask("usage_request", {}, channel="control", client=client)

    @rule(
        kind=st.sampled_from(COMM_KINDS),
        comm_id=st.sampled_from(COMMS),
        data=st.data(),
        buffers=st.sampled_from([(), (b"\0\1",)]),
    )
    def client_comm(
        self, kind: str, comm_id: str, data: st.DataObject, buffers: tuple[bytes, ...]
    ) -> None:
        content = {"comm_id": comm_id, "target_name": "t", "data": {}}
        self.world.ask(kind, content, buffers=buffers, **self.any_shell(data))

    @rule(
        request=st.sampled_from(CONTROL),
        channel=st.sampled_from(["control", "control", "shell"]),
    )
    def control(self, request: tuple[Any, Any], channel: str) -> None:
        command, arguments = request
        content = {"command": command, "arguments": arguments}
        self.world.ask("spmd_request", content, channel=channel)

    @rule(request=st.sampled_from(DEBUG), ranks_go_on=st.booleans())
    def debug(self, request: tuple[Any, dict[str, Any]], ranks_go_on: bool) -> None:
        command, arguments = request
        self.world.debug(command, **arguments)
        if ranks_go_on:
            self.world.quiet()

    @rule(raw=st.sampled_from(GARBAGE))
    def debug_garbage(self, raw: bytes) -> None:
        self.world.ask("debug_request", None, channel="control", raw=raw)

    @rule(raw=st.sampled_from(GARBAGE))
    def control_garbage(self, raw: bytes) -> None:
        self.world.ask("spmd_request", None, channel="control", raw=raw)

    @rule(
        kind=st.sampled_from(["comm_open", *COMM_KINDS]),
        comm_id=st.sampled_from(STATUS_COMMS),
        resources=st.booleans(),
    )
    def status_comm(self, kind: str, comm_id: str, resources: bool) -> None:
        content = {"comm_id": comm_id, "target_name": "spmd.status", "data": {}}
        content["data"] = {"resources": resources}
        self.world.ask(kind, content)

    @rule(client=st.sampled_from(CLIENTS), opens=st.booleans())
    def client_restores_widgets(self, client: bytes, opens: bool) -> None:
        if opens:
            content = {"comm_id": "control", "target_name": "jupyter.widget.control", "data": {}}
            self.world.ask("comm_open", content, client=client)
        content = {"comm_id": "control", "data": {"method": "request_states"}}
        self.world.ask("comm_msg", content, client=client)

    @rule(kind=st.sampled_from(COMM_KINDS), raw=st.sampled_from(GARBAGE))
    def client_comm_garbage(self, kind: str, raw: bytes) -> None:
        self.world.ask(kind, None, raw=raw)

    @rule(
        sure=st.sampled_from([False] * 9 + [True]),
        restart=st.booleans(),
        channel=st.sampled_from(["shell", "control"]),
    )
    def shut_down(self, sure: bool, restart: bool, channel: str) -> None:
        if sure:  # seldom: little happens afterwards
            self.world.ask("shutdown_request", {"restart": restart}, channel=channel)

    @rule(client=st.sampled_from(CLIENTS), code=st.sampled_from(CELLS), data=st.data())
    def client_sends_much_in_one_go(self, client: bytes, code: str, data: st.DataObject) -> None:
        kinds = st.sampled_from(["execute", "complete", "kernel_info", "history"])
        for ms, kind in enumerate(("execute", *data.draw(st.lists(kinds, max_size=4)))):
            header = {"date": f"2026-01-01T00:00:00.00{ms:04}Z"}
            if kind == "execute":
                self.world.execute(code, client=client, header=header)
            else:
                content = {"code": code, "cursor_pos": 0}
                self.world.ask(f"{kind}_request", content, client=client, **header)

    @rule(control=st.booleans())
    def interrupt(self, control: bool) -> None:
        if control:
            self.world.ask("interrupt_request", {}, channel="control")
        else:
            self.world.feed(Signalled(self.world.tick(), 2))

    @precondition(lambda self: self.world.asking is not None)
    @rule(value=st.text(max_size=3))
    def answer_input(self, value: str) -> None:
        self.world.answer(value)

    @rule(value=st.text(max_size=3), client=st.sampled_from(CLIENTS))
    def answer_what_may_not_be_asked(self, value: str, client: bytes) -> None:
        if not self.world.question_open:
            self.world.ask("input_reply", {"value": value}, channel="stdin", client=client)

    @rule(data=st.data())
    def answer_what_is_asked_no_more(self, data: st.DataObject) -> None:
        """A page names the question that it answers; and only the page that was asked may."""
        asked = [e for e in self.world.effects if _is_question(e)]
        if not asked:
            return
        question = data.draw(st.sampled_from(asked))
        if question is asked[-1]:
            client = next(c for c in CLIENTS if (c,) != question.idents)
        else:
            client = data.draw(st.sampled_from(CLIENTS))
        header = {"msg_id": f"late {len(self.world.events)}", "msg_type": "input_reply"}
        reply = Message(header, {"msg_id": question.msg_id}, {}, b'{"value": "late"}')
        before = len(self.world.effects)
        self.world.feed(FromFront(self.world.tick(), "stdin", (client,), reply))
        sent = [e for e in self.world.effects[before:] if isinstance(e, ToRank)]
        assert not [e for e in sent if e.channel == "stdin"], "answered"

    # ---------------------------------------------------------------- honest ranks

    @rule(steps=st.integers(1, 6))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()

    @precondition(lambda self: self.servable)
    @rule(data=st.data(), error=st.booleans())
    def serve(self, data: st.DataObject, error: bool) -> None:
        self.world.answer_shell(pick(data, self.servable), error)

    @property
    def busy_beside(self) -> list[tuple[FakeRank, str]]:
        return [(fake, s) for fake in self.ranks for s, inbox in fake.subshells.items() if inbox]

    @precondition(lambda self: self.busy_beside)
    @rule(data=st.data(), error=st.booleans(), prints=st.booleans())
    def serve_beside(self, data: st.DataObject, error: bool, prints: bool) -> None:
        fake, subshell = data.draw(st.sampled_from(self.busy_beside))
        if prints:
            self.print_beside(fake, subshell)
        else:
            self.world.answer_subshell(fake, subshell, error)

    def print_beside(self, fake: FakeRank, subshell: str) -> None:
        request = fake.subshells[subshell][0]
        if request.msg_type == "execute_request" and not self.world.hub.stage.is_own(
            request.header
        ):
            self.serial += 1
            line = f"line-{self.serial}-of-{fake.rank}"
            self.printed.append((request.msg_id.split()[0], fake.rank, line))
            content = {"name": "stdout", "text": line + "\n"}
            self.world.say(fake, "iopub", "stream", content, request)

    @precondition(lambda self: any(fake.control for fake in self.ranks))
    @rule(data=st.data(), refuses=st.booleans())
    def serve_control(self, data: st.DataObject, refuses: bool) -> None:
        fake = pick(data, [fake for fake in self.ranks if fake.control])
        if refuses and fake.control[0].msg_type == "create_subshell_request":
            request = fake.control.popleft()
            raw = data.draw(st.sampled_from([b'{"status": "error"}', *GARBAGE]))
            self.world.say(fake, "control", "create_subshell_reply", raw, request)
        else:
            self.world.answer_control(fake)

    @property
    def may_stop(self) -> list[FakeRank]:
        """A debugger stops them."""
        return [f for f in self.servable if f.debuggee.attached and not f.liar]

    @precondition(lambda self: self.may_stop)
    @rule(data=st.data(), everybody=st.booleans(), exception=st.booleans())
    def stop(self, data: st.DataObject, everybody: bool, exception: bool) -> None:
        for fake in self.may_stop if everybody else [pick(data, self.may_stop)]:
            self.world.stop(fake, "exception" if exception else "breakpoint")

    @precondition(lambda self: any(f.control or f.debuggee.events for f in self.ranks))
    @rule(steps=st.integers(1, 9))
    def debuggers_go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step_of_debuggers()

    @precondition(lambda self: self.ranks)
    @rule(
        data=st.data(),
        command=st.sampled_from(["threads", "variables", "debugInfo", "initialize", "dumpCell"]),
        silent=st.booleans(),
    )
    def debugger_fails(self, data: st.DataObject, command: str, silent: bool) -> None:
        made = pick(data, self.ranks).debuggee
        (made.silent if silent else made.fails).add(command)

    @precondition(lambda self: self.ranks)
    @rule(data=st.data(), event=st.sampled_from([b"[]", b"{", b'{"event": 5}', b'{"event": "stopped", "body": 3}', b'{"event": "stopped", "body": {"threadId": "x"}}', b'{"event": "output"}', b'{"event": "odd", "body": {"threadId": 1}}']))  # fmt: skip
    def debugger_lies(self, data: st.DataObject, event: bytes) -> None:
        self.world.say(pick(data, self.ranks), "iopub", "debug_event", event, None)

    # ---------------------------------------------------------------- editors

    @precondition(lambda self: self.world.port is None)
    @rule()
    def open_port(self) -> None:
        self.world.execute("%debugport")

    @precondition(lambda self: self.world.wanted_ports)
    @rule(problem=st.sampled_from(["", "", "port 80: not yours"]))
    def port_opens(self, problem: str) -> None:
        self.world.port_opened(problem)

    @property
    def editors(self) -> list[FakeEditor]:
        return [e for e in self.world.editors if not (e.gone or e.hung_up)]

    @precondition(lambda self: self.world.port is not None and len(self.editors) < 3)
    @rule(attach=st.booleans())
    def editor_comes(self, attach: bool) -> None:
        editor = self.world.connect()
        if attach:
            data = editor.request("initialize") + editor.request("attach", token=self.world.token)
            self.world.tell(editor, data)

    @precondition(lambda self: self.editors)
    @rule(
        data=st.data(),
        requests=st.lists(st.sampled_from(EDITS), min_size=1, max_size=3),
        cut=st.integers(1, 200),
        ranks_go_on=st.booleans(),
    )
    def edit(
        self,
        data: st.DataObject,
        requests: list[tuple[Any, dict[str, Any]]],
        cut: int,
        ranks_go_on: bool,
    ) -> None:
        editor, said = pick(data, self.editors), b""
        for command, arguments in requests:
            if command == 5:  # that ends the connection: see `editor_lies`
                continue
            if arguments.get("token") is True:
                arguments = {"token": self.world.token}
            said += editor.request(command, **arguments)
        self.world.tell(editor, said[:cut])
        self.world.tell(editor, said[cut:])
        if ranks_go_on:
            self.world.quiet()

    @precondition(lambda self: self.editors)
    @rule(
        data=st.data(), raw=st.sampled_from([b"GET / HTTP/1.1\r\n", b"Content-Length: 2\r\n\r\n[]"])
    )
    def editor_lies(self, data: st.DataObject, raw: bytes) -> None:
        editor = pick(data, self.editors)
        self.world.tell(editor, raw)
        assert editor.hung_up

    @precondition(lambda self: any(not e.gone for e in self.world.editors))
    @rule(data=st.data())
    def editor_leaves(self, data: st.DataObject) -> None:
        self.world.leave(pick(data, [e for e in self.world.editors if not e.gone]))

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), stream=st.sampled_from(["stdout", "stderr"]))
    def print_line(self, data: st.DataObject, stream: str) -> None:
        """A rank prints a line of its own into the cell that it runs."""
        self.print_on(pick(data, self.busy), stream)

    def print_on(self, fake: FakeRank, stream: str) -> None:
        request = fake.inbox[0]
        if request.msg_type == "execute_request" and request.msg_id.split()[0] in self.world.sent:
            self.serial += 1
            line = f"line-{self.serial}-of-{fake.rank}"
            if widget := self.widget_of(fake, request):
                self.captured.setdefault(widget, []).append(line)
            else:
                if (fake.rank, fake.generation) in self.clearing:
                    self.live.add(line)
                self.printed.append((request.msg_id.split()[0], fake.rank, line))
            content = {"name": stream, "text": line + "\n"}
            self.world.say(fake, "iopub", "stream", content, request)

    def widget_of(self, fake: FakeRank, request: Message) -> str:
        """The Output widget that captures what a rank says in a request; empty if none does."""
        stack = self.capturing.get((fake.rank, fake.generation), [])
        return next((w for parent, w in reversed(stack) if parent == request.msg_id), "")

    @property
    def may_capture(self) -> list[FakeRank]:
        return [
            fake
            for fake in self.busy
            if fake.inbox[0].msg_type == "execute_request"
            and fake.inbox[0].msg_id.split()[0] in self.world.sent
        ]

    @precondition(lambda self: self.may_capture)
    @rule(data=st.data(), everybody=st.booleans(), lines=st.integers(0, 2), ends=st.booleans())
    def capture(self, data: st.DataObject, everybody: bool, lines: int, ends: bool) -> None:
        """``with Output(): print()`` in the cell that a rank runs, or all ranks at once."""
        fakes = self.may_capture if everybody else [pick(data, self.may_capture)]
        for fake in fakes:
            self.begin_capture(fake)
        for fake in fakes * lines:
            self.print_on(fake, "stdout")
        for fake in fakes if ends else []:
            self.switch(fake, self.capturing[fake.rank, fake.generation].pop()[1], "")

    def begin_capture(self, fake: FakeRank) -> None:
        self.serial += 1
        widget, request = f"out-{self.serial}", fake.inbox[0]
        stack = self.capturing.setdefault((fake.rank, fake.generation), [])
        stack.append((request.msg_id, widget))
        state = {"_model_name": "OutputModel", "msg_id": ""}
        content = {"comm_id": widget, "target_name": "jupyter.widget", "data": {"state": state}}
        self.world.say(fake, "iopub", "comm_open", content, request)
        self.switch(fake, widget, request.msg_id)

    @precondition(lambda self: any(self.capturing.values()))
    @rule(data=st.data())
    def end_capture(self, data: st.DataObject) -> None:
        fake = pick(data, self.ranks) if self.ranks else None
        if fake and (stack := self.capturing.get((fake.rank, fake.generation))):
            self.switch(fake, stack.pop()[1], "")

    def switch(self, fake: FakeRank, widget: str, msg_id: str) -> None:
        data = {"method": "update", "state": {"msg_id": msg_id}, "buffer_paths": []}
        parent = fake.inbox[0] if fake.inbox else None
        self.world.say(fake, "iopub", "comm_msg", {"comm_id": widget, "data": data}, parent)

    @precondition(lambda self: self.ranks)
    @rule(data=st.data(), output=st.sampled_from(OUTPUTS))
    def publish(self, data: st.DataObject, output: tuple[str, Any]) -> None:
        fake = pick(data, self.ranks)
        parent = fake.inbox[0] if fake.inbox else None
        if output[0] == "clear_output":
            self.clearing.add((fake.rank, fake.generation))
            self.cleared |= {line for _, rank, line in self.printed if rank == fake.rank}
        self.world.say(fake, "iopub", *output, parent)

    @precondition(lambda self: self.may_ask)
    @rule(
        data=st.data(),
        prompt=st.sampled_from(["a", "b"]),
        password=st.sampled_from([False, False, False, True]),
        everybody=st.booleans(),
    )
    def input(self, data: st.DataObject, prompt: str, password: bool, everybody: bool) -> None:
        asking = self.may_ask if everybody else [pick(data, self.may_ask)]
        for fake in asking:
            self.world.question(fake, prompt, password)

    @precondition(lambda self: self.ranks)
    @rule(
        data=st.data(),
        kind=st.sampled_from(COMM_KINDS),
        comm_id=st.sampled_from(COMMS),
        buffers=st.sampled_from([(), (b"\2",)]),
    )
    def rank_comm(
        self, data: st.DataObject, kind: str, comm_id: str, buffers: tuple[bytes, ...]
    ) -> None:
        fake = pick(data, self.ranks)
        self.serial += 1
        content = {"comm_id": comm_id, "target_name": "t", "data": {"n": self.serial}}
        raw = json.dumps(content).encode()
        if kind != "comm_close" or not self.world.owners.get(comm_id, set()) - {fake.rank}:
            self.told.append((kind, raw, buffers))  # else: other ranks still have it
        parent = fake.inbox[0] if fake.inbox else None
        self.world.say(fake, "iopub", kind, raw, parent, {}, buffers)

    @precondition(lambda self: self.ranks)
    @rule(data=st.data(), what=st.sampled_from(["jax", "torch"]), starts=st.booleans())
    def bind(self, data: st.DataObject, what: str, starts: bool) -> None:
        """A rank joins, or leaves, what restarts must know of."""
        live = pick(data, self.ranks).live
        live.add(what) if starts else live.discard(what)

    # ---------------------------------------------------------------- dying and lying ranks

    @precondition(lambda self: self.world.ranks)
    @rule(data=st.data(), code=st.sampled_from([None, 0, 3]), words=st.sampled_from(["", "\x1f\n"]))
    def die(self, data: st.DataObject, code: int | None, words: str) -> None:
        fake = pick(data, self.world.ranks.values())
        cause = Cause(signal=9) if code is None else Cause(code=code)
        self.world.die(fake, cause, "last words", (("stdout", words), ("stderr", "")))

    @precondition(lambda self: self.world.graves)
    @rule(data=st.data())
    def speak_from_the_grave(self, data: st.DataObject) -> None:
        fake = pick(data, self.world.graves)
        self.world.say(fake, "iopub", "comm_open", {"comm_id": "k1"}, None)
        self.world.say(fake, "shell", "execute_reply", {"status": "ok"}, self.any_parent(data))
        self.world.die(fake)

    @precondition(lambda self: self.ranks)
    @rule(data=st.data(), kind=st.sampled_from(["execute_reply", "complete_reply", "x"]))
    def lie(self, data: st.DataObject, kind: str) -> None:
        """A reply that nobody is owed, or one too early, or for the second time, or nonsense."""
        fake = pick(data, self.ranks)
        fake.liar = True
        content = data.draw(st.sampled_from([{"status": "ok"}, {"status": "error"}, *GARBAGE]))
        self.world.say(fake, "shell", kind, content, self.any_parent(data))

    @precondition(lambda self: self.ranks)
    @rule(data=st.data(), subshell=st.sampled_from([5, "", "x", "s"]))
    def lie_about_subshells(self, data: st.DataObject, subshell: Any) -> None:
        fake = pick(data, self.ranks)
        fake.liar = True
        content = {"status": "ok", "subshell_id": subshell}
        kind = data.draw(st.sampled_from(["create_subshell_reply", "delete_subshell_reply"]))
        self.world.say(fake, "control", kind, content, self.any_parent(data))

    @precondition(lambda self: self.ranks)
    @rule(data=st.data(), raw=st.sampled_from(GARBAGE), kind=st.sampled_from(
        ["stream", "display_data", "error", "status", "comm_open", "comm_close", "execute_result"]
    ))  # fmt: skip
    def publish_garbage(self, data: st.DataObject, raw: bytes, kind: str) -> None:
        fake = pick(data, self.ranks)
        fake.liar = True
        self.world.say(fake, "iopub", kind, raw, self.any_parent(data))

    @precondition(lambda self: self.ranks)
    @rule(data=st.data(), prompt=st.sampled_from(["a", "b"]))
    def ask_out_of_turn(self, data: st.DataObject, prompt: str) -> None:
        """A question in the middle of another one, or outside of any cell."""
        fake = pick(data, self.ranks)
        fake.liar = True
        if data.draw(st.booleans()):
            self.world.question(fake, prompt, parent=self.any_parent(data))
        else:
            kind = data.draw(st.sampled_from(["input_request", "x"]))
            raw = data.draw(st.sampled_from([b"", b"[]", b'{"prompt": 5}', b"\xff"]))
            self.world.say(fake, "stdin", kind, raw, self.any_parent(data))

    def any_parent(self, data: st.DataObject) -> Message | None:
        known = {sent.message.msg_id: sent.message for sent in self.world.sent.values()}
        inboxes = [
            inbox
            for fake in self.world.ranks.values()
            for inbox in (fake.inbox, fake.control, *fake.subshells.values())
        ]
        known |= {message.msg_id: message for inbox in inboxes for message in inbox}
        return known.get(data.draw(st.sampled_from(["", *known])))

    # ---------------------------------------------------------------- time

    @precondition(lambda self: self.world.timers)
    @rule()
    def time_passes(self) -> None:
        timers = self.world.timers
        self.world.fire(min(timers, key=lambda key: timers[key]))

    # ---------------------------------------------------------------- what must hold

    @precondition(lambda self: self.world.lookouts)
    @rule()
    def engine_looks(self) -> None:
        self.world.look()

    @precondition(lambda self: self.world.lookouts)
    @rule()
    def engine_never_answers(self) -> None:
        self.world.lookouts.popleft()

    @precondition(lambda self: self.world.ranks)
    @rule(data=st.data(), frames=st.sampled_from(FRAMES), closed=st.integers(0, 2))
    def stands_somewhere(self, data: st.DataObject, frames: Any, closed: int) -> None:
        """What the rank's next dumps say; ``None``: nothing."""
        fake = pick(data, self.world.ranks.values())
        self.world.stacks.pop(fake.rank, None)
        if frames is not None:
            self.world.stacks[fake.rank] = dump("pass", *frames, rank=fake.rank)
            self.world.pulses[fake.rank] = Pulse(1, 0.0)
            self.world.closed[fake.rank] = closed

    @invariant()
    def no_internal_error(self) -> None:
        bad = [log.text for log in self.world.logs if "Error" in log.text and log.level == "error"]
        assert not [text for text in bad if not text.startswith("rank ")], bad

    @invariant()
    def one_story_per_request(self) -> None:
        for sent in self.world.sent.values():
            check_story(sent, finished=False)

    @invariant()
    def no_exit_before_the_ranks_are_gone(self) -> None:
        """8: no orphan."""
        if self.world.exits:
            assert not self.world.ranks and self.world.exits == [0]

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.settle()
        for sent in self.world.sent.values():
            check_story(sent, finished=True)
        self.check_prints()
        self.check_counts()
        self.check_world()
        self.check_timings()
        self.check_log()
        self.check_status()
        assert self.world.forwarded == self.told  # 7: in order, as they came, closed by the last
        self.check_widgets()
        self.check_stops()
        self.check_editors()
        self.check_end()
        self.check_replay()
        assert not self.world.timers

    def check_widgets(self) -> None:
        """7: an Output widget takes what its rank said, unlabelled; all states are one answer."""
        shown = {
            widget: "".join(json.loads(raw)["text"] for raw in taken)
            for widget, taken in self.world.taken.items()
        }
        assert shown == {
            widget: "".join(f"{line}\n" for line in lines)
            for widget, lines in self.captured.items()
        }
        for msg_id, sent in self.world.sent.items():
            answers = [e for e in sent.of("comm_msg") if b'"update_states"' in e.content]
            ranks = sorted(self.world.told_states.get(msg_id, ()))
            assert len(answers) <= 1
            data = json.loads(answers[0].content)["data"] if answers else {"states": {}}
            assert sorted(data["states"]) == sorted(f"widget-{rank}" for rank in ranks)
            if ranks:
                assert answers[0].buffers == tuple(bytes([rank]) for rank in ranks)

    def check_stops(self) -> None:
        """6: a client that shows one stopped thread never sees two, nor goes on from none."""
        shown: Any = None
        sent = [s for s in self.world.sent.values() if s.message.msg_type == "debug_request"]
        # It may show another one by itself, and step there: a rank picker does.
        chosen = {thread for s in sent if (thread := _thread_of(s.message.content))}
        for event in self.world.debug_events:
            match event["event"]:
                case "stopped":
                    assert shown is None or shown != event["body"]["threadId"]
                    shown = event["body"]["threadId"]
                    assert shown >> 16 > 0
                case "continued":
                    assert event["body"]["threadId"] in {shown, *chosen}
                    shown = None
                case "terminated":
                    shown = None

    def check_editors(self) -> None:
        """6: each request is answered once and in order, and strangers are told nothing."""
        for editor in self.world.editors:
            editor.check(served=not (editor.gone or editor.hung_up))
        served = [e for e in self.world.editors if e.attached and not e.gone]
        assert len(served) <= 1
        names = {f"tcp-{editor.number}" for editor in served}
        if not self.world.hub.closing:
            assert {session.name for session in self.world.hub.debugger.sessions} == names | {
                "jupyter"
            }

    def check_end(self) -> None:
        """8: after shutdown every rank that was ever started has ended."""
        ended = self.world.ask("shutdown_request", {"restart": False}, channel="control")
        self.world.settle()
        check_story(ended, finished=True)
        self.no_exit_before_the_ranks_are_gone()
        assert self.world.exits == [0]

    def check_log(self) -> None:
        """What clients can ask for again is what was published."""
        for log in self.world.hub.stage.journal.cells:
            published = [
                e for e in self.world.sent[log.msg_id].effects if e.msg_type in OUTPUT_TYPES
            ]
            kept = [(m.msg_type, m.content, m.buffers) for _, m in log.since(0)]
            if log.msg_id in self.world.hooks:  # no output of the cell is what a widget took
                said = b"".join(content or b"" for _, content, _ in kept)
                taken = itertools.chain(*self.captured.values())
                assert not [line for line in taken if f'"{line}\\n"'.encode() in said]
            else:
                assert kept == [(e.msg_type, e.content, e.buffers) for e in published]
            assert not log.running

    def check_status(self) -> None:
        """Who has put the changes together knows what is, and was told twice a second at most."""
        hub = self.world.hub
        for comm_id in hub.status_comms.targets:
            status = self.world.pushed[comm_id]
            true = snapshot(hub.desk)
            if any("rss" in entry for entry in status["ranks"]):
                true = with_resources(true, self.world.facts)
            assert status == json.loads(json.dumps(true))
        times = self.world.changed_at
        gaps = [later - before for before, later in itertools.pairwise(times)]
        assert all(gap >= 0.499 for gap in gaps), times

    def check_counts(self) -> None:
        """The numbers of cells that are stored rise by one; nobody else takes one."""
        numbers = self.world.hub.cells.numbers
        assert self.world.hub.closing or (numbers.open, numbers.mixed) == (0, False)
        if any(sent.message.header.get("subshell_id") for sent in self.world.sent.values()):
            return  # they run in another order
        count = 0
        for sent in self.world.sent.values():
            for shown in sent.of("execute_input"):
                content, asked = json.loads(shown.content), json.loads(sent.message.content)
                assert content["execution_count"] == count + 1
                stores = asked["store_history"] and bool(asked["code"].strip())
                aborted = any(b'"aborted"' in reply.content for reply in sent.replies)
                count += stores and not aborted

    def check_world(self) -> None:
        """11: live ranks agree on their world, and are numbered below its size."""
        size = self.world.hub.group.size
        seen = {tuple(fake.env.get(name) for name in sorted(SHARED)) for fake in self.ranks}
        assert len(seen) <= 1, seen
        for fake in self.ranks:
            assert (fake.env["WORLD_SIZE"], fake.env["RANK"]) == (str(size), str(fake.rank))
            assert fake.rank < size

    def check_timings(self) -> None:
        """Of each rank that ran a cell, since the cell was sent to it."""
        for timing in json.loads(json.dumps(self.world.hub.timings.as_json())):
            assert timing["seconds"].keys() == {str(rank) for rank in timing["ranks"]}
            assert 0 <= timing["min"] <= timing["median"] <= timing["max"] <= self.world.at
            assert timing["seconds"][str(timing["slowest"])] == timing["max"]
            assert set(timing["failed"]) <= set(timing["ranks"])

    def check_prints(self) -> None:
        """3: nothing lost, doubled or mis-tagged; order per rank kept."""
        shown: dict[tuple[str, int], list[str]] = {}
        for msg_id, sent in self.world.sent.items():
            for line in "".join(whole_streams(sent)).splitlines():
                _, found, rest = line.rpartition("line-")
                if found:
                    label = line[: -len("line-" + rest)]
                    rank = int(rest.rpartition("-")[2])
                    assert not label.strip() or label.strip(" │").split(",")[0].split("-")[
                        0
                    ] == str(rank), f"mis-tagged: {line!r}"
                    shown.setdefault((msg_id, rank), []).append("line-" + rest)
        for msg_id, rank, line in self.printed:
            lines = shown.get((msg_id, rank), [])
            if line not in lines[:1] and (line in self.cleared or self.is_displayed(msg_id, line)):
                continue
            assert lines and lines.pop(0) == line, (msg_id, line)
        assert not any(shown.values()), shown

    def is_displayed(self, msg_id: str, line: str) -> bool:
        displays = self.world.sent[msg_id].of("display_data", "update_display_data")
        text = line.encode()
        return line in self.live and any(text in display.content for display in displays)

    def check_replay(self) -> None:
        """10: the same events give the same effects."""
        hub = Hub(self.world.hub.settings)
        effects = [effect for event in self.world.events for effect in hub.handle(event)]
        assert effects == self.world.effects


def pick(data: st.DataObject, fakes: Iterable[FakeRank]) -> FakeRank:
    """Drawn by its place in the list: examples stay readable."""
    found = list(fakes)
    return found[data.draw(st.integers(0, len(found) - 1))]


def whole_streams(sent: Sent) -> list[str]:
    return [json.loads(effect.content).get("text", "") for effect in readable(sent.of("stream"))]


def readable(effects: list[ToFront]) -> list[ToFront]:
    starts = (b'{"name":"std', b'{"name": "std')
    return [effect for effect in effects if effect.content.startswith(starts)]


def check_story(sent: Sent, *, finished: bool) -> None:
    """1: exactly one reply, to its own parent.  2: busy first, idle last and once."""
    comm = sent.message.msg_type in COMM_KINDS
    if not comm and not sent.message.msg_type.endswith("_request"):
        return
    replies, states = sent.replies, sent.states
    assert len(replies) <= (not comm)
    assert states in ([], ["busy"], ["busy", "idle"])
    if states:
        assert sent.kinds[0] == "status"
    if states == ["busy", "idle"]:
        assert replies or comm
    if finished:
        assert states == ["busy", "idle"], (sent.message, sent.kinds)
    if finished and not comm:
        assert len(replies) == 1, (sent.message, sent.kinds)
        assert replies[0].msg_type == sent.message.msg_type.replace("_request", "_reply")
        assert replies[0].idents == sent.idents
        assert replies[0].channel == sent.channel


TestHub = Machine.TestCase
TestHub.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)


# ---------------------------------------------------------------- 7: Output widgets

STEPS = ["with", "with", "end", "print", "print", "print", "serve", "tick", "restore", "die"]


@given(
    size=st.sampled_from([1, 2, 3]),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2)), max_size=30),
)
@settings(max_examples=200, deadline=None)
def test_output_widgets_of_all_ranks_at_once(size: int, steps: list[tuple[str, int]]) -> None:
    """The same clients and ranks, doing little else: the machine above does everything, seldom."""
    machine = Machine()
    machine.begin(size=size, started=True, subshells=None)
    for code in ("a", "%rank -1 x\ny = 1", "b"):
        machine.world.execute(code, stop_on_error=False)
    for step, number in steps:
        if machine.world.ranks:
            take_step(
                machine, step, list(machine.world.ranks.values())[number % len(machine.world.ranks)]
            )
    machine.teardown()


def take_step(machine: Machine, step: str, fake: FakeRank) -> None:
    stack = machine.capturing.get((fake.rank, fake.generation))
    if step == "with" and fake in machine.may_capture:
        machine.begin_capture(fake)
    elif step == "end" and stack:
        machine.switch(fake, stack.pop()[1], "")
    elif step == "print" and fake.inbox:
        machine.print_on(fake, "stdout")
    elif step == "serve" and fake.inbox:
        machine.world.answer_shell(fake)
    elif step == "restore":
        machine.client_restores_widgets(b"client", True)
    elif step == "die":
        machine.world.die(fake)
    elif step == "tick" and machine.world.timers:
        machine.time_passes()


# ---------------------------------------------------------------- subshells

BESIDE = [
    "create", "delete", "main", "beside", "beside", "beside", "query", "comm", "control", "serve",
    "serve beside", "serve beside", "serve beside", "print", "print", "die", "restart", "resize",
    "tick", "tick", "interrupt", "rest", "refuse", "fail", "fail beside",
]  # fmt: skip


@given(
    size=st.sampled_from([1, 2, 3]),
    steps=st.lists(st.tuples(st.sampled_from(BESIDE), st.integers(0, 5)), max_size=40),
)
@settings(max_examples=300, deadline=None)
def test_cells_of_several_shells_at_once(size: int, steps: list[tuple[str, int]]) -> None:
    """The same clients and ranks, in two subshells and the main shell."""
    machine = Machine()
    machine.begin(size=size, started=True, subshells=2)
    for step, number in steps:
        step_beside(machine, step, number)
        machine.no_internal_error()
        machine.one_story_per_request()
    machine.teardown()


def step_beside(machine: Machine, step: str, number: int) -> None:
    world, known = machine.world, machine.world.hub.subshells.ids
    header = {"subshell_id": known[number % len(known)] if known else "none"}
    fakes = [fake for fake in machine.ranks for _ in range(2)] or [None]
    fake = fakes[number % len(fakes)]
    beside = machine.busy_beside
    match step:
        case "create":
            machine.create_subshell("control")
        case "delete":
            world.ask("delete_subshell_request", header, channel="control")
        case "main" | "beside":
            code = ["pass", "%%rank 0\nprint()", "x = 1", "", "%rank -1 x\ny = 1", "%ranks"][number]
            world.execute(code, header=header if step == "beside" else None)
        case "restart":
            world.execute(["%restart 0", "%restart dead", "%processes 2 --keep"][number % 3])
        case "resize":
            world.execute(f"%processes {1 + number % 3} --fresh")
        case "query":
            world.ask("complete_request", {"code": "a", "cursor_pos": 1}, **header)
        case "comm":
            kind = COMM_KINDS[number % 3]
            world.ask(kind, {"comm_id": "k1", "target_name": "t", "data": {}}, **header)
        case "interrupt":
            machine.interrupt(control=True)
        case "rest":
            for _ in range(20 * number):
                world.step()
        case "tick" if world.timers:
            machine.time_passes()
        case "serve" | "fail" if fake is not None and fake in machine.servable:
            world.answer_shell(fake, step == "fail")
        case "serve beside" | "fail beside" if beside:
            world.answer_subshell(*beside[number % len(beside)], step == "fail beside")
        case "print" if beside:
            machine.print_beside(*beside[number % len(beside)])
        case "control" if fake is not None and fake.control:
            world.answer_control(fake)
        case "refuse" if fake is not None and fake.control:
            kind = fake.control[0].msg_type.replace("_request", "_reply")
            if kind.startswith("create"):
                world.say(fake, "control", kind, {"status": "error"}, fake.control.popleft())
        case "die" if fake is not None and number > 2:
            world.die(fake)


# ---------------------------------------------------------------- 9: one rank is transparent

KINDS = st.sampled_from(
    ["stream", "display_data", "update_display_data", "execute_result", "error", "clear_output",
     "comm_open", "comm_msg", "comm_close", "unheard_of"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
OBJECTS = st.builds(
    lambda value, comm_id, indent: json.dumps(
        value | {"comm_id": comm_id}, indent=indent, ensure_ascii=bool(indent)
    ).encode("utf-8", "surrogatepass"),
    st.dictionaries(st.sampled_from(["name", "text", "data", "odd"]), JSON),
    st.sampled_from(COMMS),
    st.sampled_from([None, 1]),
)
MESSAGES = st.tuples(
    KINDS,
    OBJECTS,
    st.dictionaries(st.text(max_size=3), JSON, max_size=2),
    st.lists(st.binary(max_size=4), max_size=2).map(tuple),
)


@given(
    published=st.lists(MESSAGES, max_size=8),
    reply=OBJECTS,
    status=st.sampled_from(["ok", "error"]),
    silent=st.booleans(),
    store=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_one_rank_is_transparent(
    published: list[tuple[str, bytes, dict[str, Any], tuple[bytes, ...]]],
    reply: bytes,
    status: str,
    silent: bool,
    store: bool,
) -> None:
    world = start(1)
    cell = world.execute("x", silent=silent, store_history=store)
    rank = world.ranks[0]
    request = rank.inbox.popleft()
    for kind, content, metadata, buffers in published:
        world.say(rank, "iopub", kind, content, request, metadata, buffers)
    world.say(rank, "iopub", "status", {"execution_state": "idle"}, request)
    reply = reply[:-1].rstrip() + b', "status": "%b"}' % status.encode()
    world.say(rank, "shell", "execute_reply", reply, request, {"m": 1}, (b"b",))
    got = [(e.msg_type, e.content, e.metadata, e.buffers) for e in cell.effects]
    head = ["status"] if silent else ["status", "execute_input"]
    assert cell.kinds[: len(head)] == head
    assert got[len(head) : -2] == published
    assert got[-2] == ("execute_reply", reply, {"m": 1}, (b"b",))
    assert cell.states == ["busy", "idle"]
