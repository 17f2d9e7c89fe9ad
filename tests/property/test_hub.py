"""The invariants of the whole hub, against clients and ranks that do anything in any order.

The numbers are those of the list in docs/adr/0001-sans-io-core.md.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from spmd_kernel.core.hub import Hub
from spmd_kernel.core.model import Cause, Message, Signalled, ToFront

from ..world import FakeRank, Sent, World

CELLS = [
    "pass",
    "x = 1",
    "%ranks",
    "%processes 2",
    "%processes 3 --fresh",
    "%processes 1",
    "%processes 0",
    "%%rank 0\nprint()",
    "%%rank -1\nprint()",
    "%%rank 7\nprint()",
    "%rank 0 x\ny = 1",
    "x = 1\n%processes 2",
    "",
]
OUTPUTS: list[tuple[str, Any]] = [
    ("display_data", {"data": {"text/plain": "d"}, "metadata": {}, "transient": {}}),
    ("execute_result", {"data": {"text/plain": "5"}, "metadata": {}, "execution_count": 1}),
    ("error", {"ename": "E", "evalue": "v", "traceback": ["E: v"]}),
    ("clear_output", {"wait": False}),
    ("unheard_of", {"a": 1}),
]
GARBAGE = [b"", b"[]", b"{", b"null", b'{"name": 5, "text": []}', b'{"data": 3}', b"\xff\xfe"]


class Machine(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([1, 2, 3]))
    def begin(self, size: int) -> None:
        self.world = World(size)
        self.printed: list[tuple[str, int, str]] = []  # (cell, rank, line), in order
        self.serial = 0
        self.liars = False

    def ranks(self) -> list[FakeRank]:
        return [fake for fake in self.world.ranks.values() if fake.ready and not fake.stopping]

    # ---------------------------------------------------------------- clients

    @rule(code=st.sampled_from(CELLS), stop=st.booleans(), stdin=st.booleans())
    def execute(self, code: str, stop: bool, stdin: bool) -> None:
        self.world.execute(code, stop_on_error=stop, allow_stdin=stdin)

    @rule(raw=st.sampled_from(GARBAGE))
    def execute_garbage(self, raw: bytes) -> None:
        self.world.ask("execute_request", None, raw=raw)

    @rule(
        kind=st.sampled_from(
            ["complete", "inspect", "is_complete", "history", "kernel_info", "comm_info", "odd"]
        )
    )
    def query(self, kind: str) -> None:
        self.world.ask(f"{kind}_request", {"code": "pri", "cursor_pos": 3})

    @rule(control=st.booleans())
    def interrupt(self, control: bool) -> None:
        if control:
            self.world.ask("interrupt_request", {}, channel="control")
        else:
            self.world.feed(Signalled(self.world.tick(), 2))

    @rule(value=st.text(max_size=3))
    def answer_input(self, value: str) -> None:
        self.world.ask("input_reply", {"value": value}, channel="stdin")

    # ---------------------------------------------------------------- honest ranks

    @rule(steps=st.integers(1, 6))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()

    @rule(data=st.data(), error=st.booleans())
    def serve(self, data: st.DataObject, error: bool) -> None:
        busy = [fake for fake in self.ranks() if fake.inbox]
        if busy:
            self.world.answer_shell(data.draw(st.sampled_from(busy)), error)

    @rule(data=st.data(), stream=st.sampled_from(["stdout", "stderr"]))
    def print_line(self, data: st.DataObject, stream: str) -> None:
        """A rank prints a line of its own into the cell that it runs."""
        busy = [fake for fake in self.ranks() if fake.inbox]
        if not busy:
            return
        fake = data.draw(st.sampled_from(busy))
        request = fake.inbox[0]
        if request.msg_type == "execute_request" and request.msg_id.split()[0] in self.world.sent:
            self.serial += 1
            line = f"line-{self.serial}-of-{fake.rank}"
            self.printed.append((request.msg_id.split()[0], fake.rank, line))
            content = {"name": stream, "text": line + "\n"}
            self.world.say(fake, "iopub", "stream", content, request)

    @rule(data=st.data(), output=st.sampled_from(OUTPUTS))
    def publish(self, data: st.DataObject, output: tuple[str, Any]) -> None:
        if ranks := self.ranks():
            fake = data.draw(st.sampled_from(ranks))
            parent = fake.inbox[0] if fake.inbox else None
            self.world.say(fake, "iopub", *output, parent)

    @rule(data=st.data(), prompt=st.sampled_from(["a", "b"]))
    def input(self, data: st.DataObject, prompt: str) -> None:
        busy = [fake for fake in self.ranks() if fake.inbox]
        if busy:
            fake = data.draw(st.sampled_from(busy))
            content = {"prompt": prompt, "password": False}
            self.world.say(fake, "stdin", "input_request", content, fake.inbox[0])

    # ---------------------------------------------------------------- dying and lying ranks

    @rule(data=st.data(), code=st.sampled_from([None, 0, 3]))
    def die(self, data: st.DataObject, code: int | None) -> None:
        if self.world.ranks:
            fake = data.draw(
                st.sampled_from(sorted(self.world.ranks.values(), key=lambda fake: fake.rank))
            )
            cause = Cause(signal=9) if code is None else Cause(code=code)
            self.world.die(fake, cause, "last words")

    @rule(data=st.data())
    def speak_from_the_grave(self, data: st.DataObject) -> None:
        if self.world.graves:
            fake = data.draw(st.sampled_from(self.world.graves))
            self.world.say(fake, "shell", "execute_reply", {"status": "ok"}, self.any_parent(data))
            self.world.die(fake)

    @rule(data=st.data(), kind=st.sampled_from(["execute_reply", "complete_reply", "x"]))
    def lie(self, data: st.DataObject, kind: str) -> None:
        """A reply that nobody is owed, or one too early, or for the second time, or nonsense."""
        if ranks := self.ranks():
            fake = data.draw(st.sampled_from(ranks))
            content = data.draw(st.sampled_from([{"status": "ok"}, {"status": "error"}, *GARBAGE]))
            self.world.say(fake, "shell", kind, content, self.any_parent(data))

    @rule(data=st.data(), raw=st.sampled_from(GARBAGE), kind=st.sampled_from(
        ["stream", "display_data", "error", "status", "comm_open", "comm_close", "execute_result"]
    ))  # fmt: skip
    def publish_garbage(self, data: st.DataObject, raw: bytes, kind: str) -> None:
        if ranks := self.ranks():
            fake = data.draw(st.sampled_from(ranks))
            self.world.say(fake, "iopub", kind, raw, self.any_parent(data))

    def any_parent(self, data: st.DataObject) -> Message | None:
        known = [None, *(sent.message for sent in self.world.sent.values())]
        known += [message for fake in self.world.ranks.values() for message in fake.inbox]
        return data.draw(st.sampled_from(known))

    # ---------------------------------------------------------------- time

    @precondition(lambda self: self.world.timers)
    @rule()
    def time_passes(self) -> None:
        timers = self.world.timers
        self.world.fire(min(timers, key=lambda key: timers[key]))

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def no_internal_error(self) -> None:
        bad = [log.text for log in self.world.logs if "Error" in log.text and log.level == "error"]
        assert not [text for text in bad if not text.startswith("rank ")], bad

    @invariant()
    def one_story_per_request(self) -> None:
        for sent in self.world.sent.values():
            check_story(sent, finished=False)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.settle()
        for sent in self.world.sent.values():
            check_story(sent, finished=True)
        self.check_prints()
        self.check_replay()
        assert not self.world.timers

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
        wanted: dict[tuple[str, int], list[str]] = {}
        for msg_id, rank, line in self.printed:
            wanted.setdefault((msg_id, rank), []).append(line)
        for key, lines in wanted.items():
            assert shown.get(key, []) == lines, key

    def check_replay(self) -> None:
        """10: the same events give the same effects."""
        hub = Hub(self.world.hub.settings)
        effects = [effect for event in self.world.events for effect in hub.handle(event)]
        assert effects == self.world.effects


def whole_streams(sent: Sent) -> list[str]:
    return [json.loads(effect.content).get("text", "") for effect in readable(sent.of("stream"))]


def readable(effects: list[ToFront]) -> list[ToFront]:
    return [effect for effect in effects if effect.content.startswith(b'{"name":"std') or (
        effect.content.startswith(b'{"name": "std'))]  # fmt: skip


def check_story(sent: Sent, *, finished: bool) -> None:
    """1: exactly one reply, to its own parent.  2: busy first, idle last and once."""
    if not sent.message.msg_type.endswith("_request"):
        return
    replies, states = sent.replies, sent.states
    assert len(replies) <= 1
    assert states in ([], ["busy"], ["busy", "idle"])
    kinds = [effect.msg_type for effect in sent.effects]
    if states:
        assert kinds[0] == "status"
    if states == ["busy", "idle"]:
        assert replies
    if finished:
        assert len(replies) == 1, (sent.message, kinds)
        assert states == ["busy", "idle"]
        assert replies[0].msg_type == sent.message.msg_type.replace("_request", "_reply")
        assert replies[0].idents == (b"client",)


TestHub = Machine.TestCase
TestHub.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
