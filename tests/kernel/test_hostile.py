"""Whatever is thrown at the sockets of a live kernel costs its sender, at most, its own answer.

A fuzzer sends batches over the wire. Each message of a batch is either *bad* (not authentic, or no
message at all): then it leaves one line in the log and nothing else; or it is *odd* (signed, but with
contents that nobody would send): then it is a request and gets its one reply, or gets none.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jupyter_client.session import Session

from .client import ANSI, DEADLINE, Kernel, alive, descendants

DELIMITER = b"<IDS|MSG>"
STATUSES = {"ok", "error", "aborted", "complete", "incomplete", "invalid", "unknown"}
ROUTERS = ("shell", "control", "stdin")


class Target(Kernel):
    """Two ranks, and the log of the kernel process."""

    def __init__(self, log: Path):
        self.log = log
        with log.open("w") as file:
            super().__init__(stderr=file, env={**os.environ, "SPMD_PROCESSES": "2"})

    def lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def dropped(self, count: int, begin: int) -> list[str]:
        """The log from line ``begin`` on, once ``count`` messages were dropped since then."""
        deadline = time.monotonic() + DEADLINE
        while True:
            said = self.lines()[begin:]
            dropped = sum(" dropped a message " in line for line in said)
            if dropped >= count or time.monotonic() > deadline:
                assert dropped == count, said
                return said
            time.sleep(0.01)  # a file tells nobody that it grew


class Attacker:
    """Raw sockets, and the key: what it forges it can also sign."""

    def __init__(self, target: Kernel):
        info = target.client.get_connection_info()
        self.session = Session(key=info["key"], signature_scheme=info["signature_scheme"])
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.info = info
        self.replies: dict[Any, dict[str, Any]] = {}  # by the id of their request
        self.sockets = {name: self.dealer(name) for name in (*ROUTERS, "hb", "iopub")}

    def dealer(self, name: str) -> zmq.Socket[bytes]:
        made = self.context.socket(zmq.SUB if name == "iopub" else zmq.DEALER)
        made.linger = 0
        made.connect(f"tcp://{self.info['ip']}:{self.info[name + '_port']}")
        return made

    def sign(self, *parts: bytes) -> list[bytes]:
        return [DELIMITER, self.session.sign(list(parts)), *parts]

    def header(self, msg_type: Any, **other: Any) -> dict[str, Any]:
        date = "2020-01-01T00:00:00.000000Z"
        return {**self.session.msg_header("x"), "msg_type": msg_type, "date": date, **other}

    def request(self, msg_type: str, content: bytes = b"{}") -> tuple[str, list[bytes]]:
        """A well signed one; its id and its frames."""
        header = self.header(msg_type)
        return header["msg_id"], self.sign(json.dumps(header).encode(), b"{}", b"{}", content)

    def reply_to(self, msg_id: str, channel: str, seconds: float = DEADLINE) -> dict[str, Any]:
        """The reply, which may have come before that to an earlier request."""
        made = self.sockets[channel]
        while msg_id not in self.replies:
            if not made.poll(seconds * 1000):
                raise AssertionError(f"no reply to {msg_id} on {channel}")
            _, frames = self.session.feed_identities(made.recv_multipart())
            message: dict[str, Any] = self.session.deserialize(frames)
            parent = message["parent_header"].get("msg_id")
            assert parent not in self.replies, "a second reply"
            self.replies[parent] = message
        return self.replies[msg_id]

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target(tmp_path_factory.mktemp("hostile") / "log") as target:
        target.ok("import os; kept = os.getpid()")
        yield target


@pytest.fixture(scope="module")
def attacker(target: Target) -> Iterator[Attacker]:
    attacker = Attacker(target)
    yield attacker
    attacker.close()


def check_unharmed(target: Target) -> None:
    """The same two ranks answer another client, whose cells get what they should."""
    result = target.ok("print(kept == os.getpid())")
    said = [line.rpartition("│ ")[2] for line in result.stdout.splitlines()]
    assert set(said) == {"True"}, result.stdout  # one line, if the ranks were equally fast
    assert target.request("kernel_info_request", {}, "control")["status"] == "ok"


# ---------------------------------------------------------------- the fuzzer


@dataclass(frozen=True)
class Attack:
    """``frames`` on ``channel``; ``wanted``: "line" in the log, "reply", or "anything" that is harmless."""

    channel: str
    make: Callable[[Attacker], tuple[str, list[bytes]]]
    wanted: str
    name: str

    def __repr__(self) -> str:
        return f"{self.name} on {self.channel}"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\ud800", "\udcff", "\x00", "\n", "9" * 5000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
KINDS = (
    "execute_request", "complete_request", "inspect_request", "is_complete_request", "history_request",
    "kernel_info_request", "comm_info_request", "connect_request", "usage_request", "debug_request",
    "create_subshell_request", "list_subshell_request", "delete_subshell_request", "spmd_request",
)  # fmt: skip
FIELDS = (
    "code", "cursor_pos", "detail_level", "silent", "store_history", "user_expressions", "stop_on_error",
    "hist_access_type", "n", "output", "raw", "session", "start", "pattern", "unique", "target_name",
    "comm_id", "data", "command", "arguments", "seq", "type", "subshell_id", "status", "value",
)  # fmt: skip
contents = st.one_of(
    json_values,
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=5),
)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "replace")


@st.composite
def bad(draw: st.DrawFn) -> Attack:
    """Nothing that a key's owner would have sent."""
    way = draw(st.sampled_from(("noise", "unsigned", "wrong", "cut", "flipped", "replayed")))
    channel = draw(st.sampled_from(ROUTERS))
    noise = draw(st.lists(st.binary(max_size=50), min_size=1, max_size=8))
    content = dumped(draw(contents))
    at = draw(st.integers(0, 10_000))

    def make(attacker: Attacker) -> tuple[str, list[bytes]]:
        msg_id, frames = attacker.request("execute_request", content)
        match way:
            case "noise":
                frames = noise
            case "unsigned":
                frames[1] = b""
            case "wrong":
                frames[1] = b"0" * 64
            case "cut":
                frames = frames[: at % len(frames)] or [b""]
            case "flipped":
                body = bytearray(frames[2])
                body[at % len(body)] ^= 1
                frames[2] = bytes(body)
            case "replayed":
                attacker.sockets[channel].send_multipart(first := attacker.request("no_such")[1])
                frames = first
        return msg_id, frames

    return Attack(channel, make, "line", way)


@st.composite
def malformed(draw: st.DrawFn) -> Attack:
    """Signed by its owner, and no message all the same."""
    part = draw(st.integers(0, 2))
    raw = draw(
        st.sampled_from(
            [b"", b"[]", b"\xff\xfe", b"{", b"1", b'"x"', b"[" * 70_000, b'{"a":' * 5000]
        )
        | st.binary(max_size=30).filter(lambda value: b"{" not in value and value != b"null")
    )

    def make(attacker: Attacker) -> tuple[str, list[bytes]]:
        parts = [json.dumps(attacker.header("execute_request")).encode(), b"{}", b"{}", b"{}"]
        parts[part] = raw
        return "", attacker.sign(*parts)

    return Attack(draw(st.sampled_from(ROUTERS)), make, "line", f"part {part} is {raw[:9]!r}")


@st.composite
def odd(draw: st.DrawFn) -> Attack:
    """A request with contents that nobody would send. It is answered, for it can be."""
    kind = draw(st.sampled_from(KINDS) | st.text(max_size=10).map(lambda text: f"{text}_request"))
    content = draw(
        contents.map(dumped)
        | st.sampled_from([b"", b"\xff", b"{", b"[" * 100_000 + b"]" * 100_000, b'{"code":' * 900])
    )
    header = draw(
        st.dictionaries(st.sampled_from(("date", "session", "username", "version")), json_values)
    )
    metadata = draw(st.dictionaries(st.text(max_size=5), json_values, max_size=3))

    def make(attacker: Attacker) -> tuple[str, list[bytes]]:
        sent = attacker.header(kind, **header)
        parts = [dumped(sent), b"{}", dumped(metadata), content]
        return sent["msg_id"], attacker.sign(*parts)

    return Attack(draw(st.sampled_from(("shell", "control"))), make, "reply", f"{kind} {content[:40]!r}")  # fmt: skip


@st.composite
def stray(draw: st.DrawFn) -> Attack:
    """No request, or not where it belongs."""
    kinds = (
        "comm_open",
        "comm_msg",
        "comm_close",
        "input_reply",
        "execute_reply",
        "status",
        "",
        "x\ny",
    )
    kind = draw(st.sampled_from(kinds))
    content = dumped(draw(contents))
    channel = draw(st.sampled_from((*ROUTERS, "hb")))

    def make(attacker: Attacker) -> tuple[str, list[bytes]]:
        return attacker.request(kind, content)

    return Attack(channel, make, "anything", f"stray {kind!r}")


@pytest.mark.timeout(600)
@settings(
    max_examples=int(os.environ.get("SPMD_FUZZ_EXAMPLES", "40")),
    deadline=None,
    derandomize=not os.environ.get("SPMD_FUZZ_EXAMPLES"),
    suppress_health_check=list(HealthCheck),
)
@given(batch=st.lists(st.one_of(bad(), malformed(), odd(), stray()), min_size=1, max_size=12))
def test_fuzz(target: Target, attacker: Attacker, batch: list[Attack]) -> None:
    before = len(target.lines())
    owed = []
    for attack in batch:
        msg_id, frames = attack.make(attacker)
        attacker.sockets[attack.channel].send_multipart(frames)
        if attack.wanted == "reply":
            owed.append((attack, msg_id))
    for attack, msg_id in owed:
        reply = attacker.reply_to(msg_id, attack.channel)
        assert reply["msg_type"].endswith("_reply"), attack
        content = reply[
            "content"
        ]  # a debugger's has what DAP wants, and ipykernel's usage_reply nothing
        without = reply["msg_type"] == "usage_reply" or content.get("type") == "response"
        assert without or content["status"] in STATUSES, attack
    check_after(target, attacker)
    end = 1  # what `check_after` sends
    said = target.dropped(end + sum(attack.wanted == "line" for attack in batch), before)
    assert all(line.startswith("[spmd_kernel W") for line in said), said


def check_after(target: Target, attacker: Attacker) -> None:
    """Each socket has been read to here, and the other client is served."""
    for channel in ("shell", "control"):
        msg_id, frames = attacker.request("connect_request")
        attacker.sockets[channel].send_multipart(frames)
        attacker.reply_to(msg_id, channel)
    attacker.sockets["stdin"].send_multipart([b"end"])
    check_unharmed(target)


# ---------------------------------------------------------------- size, and clients that do not read


@pytest.mark.parametrize("forged", [True, False], ids=["unsigned", "signed"])
def test_a_huge_message(target: Target, attacker: Attacker, forged: bool) -> None:
    before = len(target.lines())
    content = json.dumps({"code": "#" * (64 << 20)}).encode()
    msg_id, frames = attacker.request("is_complete_request", content)
    if forged:
        frames[1] = b""
    attacker.sockets["shell"].send_multipart(frames)
    check_unharmed(target)
    if forged:
        target.dropped(1, before)
    else:
        assert attacker.reply_to(msg_id, "shell")["content"]["status"] in ("complete", "ok")


def test_a_message_of_very_many_frames(target: Target, attacker: Attacker) -> None:
    before = len(target.lines())
    attacker.sockets["shell"].send_multipart([b"x"] * 50_000)
    msg_id, frames = attacker.request("connect_request")
    attacker.sockets["shell"].send_multipart([*frames, *[b"x"] * 50_000])
    assert attacker.reply_to(msg_id, "shell")["content"]["status"] == "ok"
    target.dropped(1, before)
    check_unharmed(target)


def test_clients_that_never_read(target: Target, attacker: Attacker) -> None:
    deaf = attacker.dealer("iopub")
    deaf.rcvhwm = 1
    deaf.subscribe(b"")
    asker = attacker.dealer("shell")
    for _ in range(5000):
        asker.send_multipart(attacker.request("kernel_info_request")[1])
    text = "x" * 999
    lines = target.ok(f"%%rank 0\nfor i in range(3000): print({text!r})").stdout.splitlines()
    assert lines == [text] * 3000
    check_unharmed(target)
    deaf.close()
    asker.close()


def test_connections_that_say_nothing_or_nonsense(target: Target, attacker: Attacker) -> None:
    opened = []
    for name in (*ROUTERS, "iopub", "hb"):
        for greeting in (
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" * 64,
            b"\xff" + b"\0" * 8 + b"\x7f\3",
        ):
            for _ in range(5):
                made = socket.create_connection(
                    (attacker.info["ip"], attacker.info[name + "_port"])
                )
                made.sendall(greeting)
                opened.append(made)
    check_unharmed(target)
    for made in opened:
        made.close()
    check_unharmed(target)


def test_clients_that_come_and_go(target: Target, attacker: Attacker) -> None:
    """Gone before the answer, in the middle of a cell, under the same identity twice."""
    for _ in range(30):
        for name in ("shell", "control"):
            made = attacker.dealer(name)
            made.linger = 90_000  # what it sent arrives
            made.send_multipart(attacker.request("execute_request", b'{"code":"1/1"}')[1])
            made.close()
    check_unharmed(target)


# ---------------------------------------------------------------- what strangers can reach


def family(target: Kernel) -> set[int]:
    return {target.pid, *descendants(target.pid)}


def inodes(pids: set[int]) -> set[str]:
    found = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                name = os.readlink(link)
            except OSError:
                continue
            if name.startswith("socket:["):
                found.add(name[8:-1])
    return found


def listening(pids: set[int]) -> list[str]:
    """Addresses in the kernel's own notation (proc(5), /proc/net/tcp) on which they listen."""
    ours, found = inodes(pids), []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in ours:
                found.append(fields[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def test_only_loopback_is_listened_on(target: Target) -> None:
    found = listening(family(target))
    assert len(found) >= 5
    assert set(found) <= LOOPBACK


def test_files_and_sockets_are_private(target: Target) -> None:
    assert stat.S_IMODE(os.stat(target.manager.connection_file).st_mode) == 0o600
    words = "import sys; print(*[w for w in sys.orig_argv if w.endswith('.json')])"
    paths = {
        Path(word) for word in ANSI.sub("", target.ok(words).stdout).split() if ".json" in word
    }
    assert len(paths) == 2
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.parent.stat().st_uid == os.geteuid()
    sockets = set(paths.pop().parent.glob("r*-*"))
    assert len(sockets) == 2 * 5
    assert all(stat.S_ISSOCK(found.stat().st_mode) for found in sockets)


def test_nobody_was_hurt(target: Target) -> None:
    """After all of the above: the processes of the beginning, and no error of ours."""
    check_unharmed(target)
    assert alive(target.pid)
    assert not [line for line in target.lines() if "spmd_kernel E" in line or "Traceback" in line]
