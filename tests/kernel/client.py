"""A client of a real kernel, as small as the tests need it: jupyter_client and nothing else."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager

DEADLINE = 90.0  # seconds; generous, for a busy machine
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Result:
    """What one cell left: its reply and its IOPub messages in order."""

    reply: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [m["content"] for m in self.messages if m["header"]["msg_type"] in kinds]

    @property
    def status(self) -> str:
        return str(self.reply.get("status"))

    @property
    def stdout(self) -> str:
        return "".join(c["text"] for c in self.of("stream") if c["name"] == "stdout")

    @property
    def errors(self) -> list[str]:
        return [ANSI.sub("", "\n".join(c["traceback"])) for c in self.of("error")]

    @property
    def text(self) -> str:
        """Everything a reader sees, as plain text."""
        parts = []
        for message in self.messages:
            content = message["content"]
            match message["header"]["msg_type"]:
                case "stream":
                    parts.append(content["text"])
                case "error":
                    parts.append("\n".join(content["traceback"]) + "\n")
                case "display_data" | "execute_result":
                    parts.append(content["data"].get("text/plain", "") + "\n")
        return ANSI.sub("", "".join(parts))


class Kernel:
    """One started kernel and its client. ``close`` shuts it down politely."""

    def __init__(self, name: str = "spmd-python3", **start: Any):
        self.manager = KernelManager(kernel_name=name)
        self.manager.start_kernel(**start)
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=DEADLINE)
        except BaseException:
            self.close()
            raise
        self.stray: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)

    def send(self, code: str, **options: Any) -> str:
        options.setdefault("allow_stdin", False)
        return str(self.client.execute(code, **options))

    def run(self, code: str, **options: Any) -> Result:
        return self.collect(self.send(code, **options))

    def ok(self, code: str, **options: Any) -> Result:
        result = self.run(code, **options)
        assert result.status == "ok", result.text
        return result

    def collect(
        self, msg_id: str, watch: Callable[[Result], None] | None = None, seconds: float = DEADLINE
    ) -> Result:
        """Read until reply and idle; ``watch`` sees the result so far after each IOPub message."""
        result, idle = Result(), False
        deadline = time.monotonic() + seconds
        while not idle:
            message = self._iopub(deadline)
            if message["parent_header"].get("msg_id") != msg_id:
                self.stray.append(message)
                continue
            result.messages.append(message)
            state = message["content"].get("execution_state")
            idle = message["header"]["msg_type"] == "status" and state == "idle"
            if watch is not None:
                watch(result)
        while not result.reply:
            message = self.client.get_shell_msg(timeout=max(0.1, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") == msg_id:
                result.reply = message["content"]
        return result

    def _iopub(self, deadline: float) -> dict[str, Any]:
        try:
            message: dict[str, Any] = self.client.get_iopub_msg(
                timeout=max(0.1, deadline - time.monotonic())
            )
        except Empty:
            raise AssertionError("no idle status before the deadline") from None
        return message

    def wait_iopub(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first IOPub message, past or to come, that ``wanted`` likes."""
        deadline = time.monotonic() + DEADLINE
        for message in self.stray:
            if wanted(message):
                return message
        while not wanted(message := self._iopub(deadline)):
            self.stray.append(message)
        return message

    def begin(
        self, msg_type: str, content: dict[str, Any], channel: str = "shell", **header: Any
    ) -> str:
        message = self.client.session.msg(msg_type, content)
        message["header"].update(header)
        getattr(self.client, f"{channel}_channel").send(message)
        return str(message["header"]["msg_id"])

    def request(
        self, msg_type: str, content: dict[str, Any], channel: str = "shell", **header: Any
    ) -> Any:
        msg_id = self.begin(msg_type, content, channel, **header)
        while True:
            reply = getattr(self.client, f"{channel}_channel").get_msg(timeout=DEADLINE)
            if reply["parent_header"].get("msg_id") == msg_id:
                return reply["content"]

    def create_subshell(self) -> str:
        reply = self.request("create_subshell_request", {}, "control")
        assert reply["status"] == "ok", reply
        return str(reply["subshell_id"])

    def send_beside(self, subshell: str, code: str, **content: Any) -> str:
        """Execute in a subshell."""
        base = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        return self.begin("execute_request", {**base, **content}, subshell_id=subshell)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)
        self.manager.cleanup_resources()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Bytes(Kernel):
    """IOPub contents and the reply as the bytes that came."""

    def contents(self, code: str, **options: Any) -> tuple[list[tuple[str, bytes]], bytes]:
        msg_id, said, state = self.send(code, **options), [], b""
        while b'"idle"' not in state:
            kind, content = self._next(self.client.iopub_channel.socket, msg_id)
            state = content if kind == "status" else b""
            if kind not in ("status", "execute_input"):
                said.append((kind, content))
        return said, self._next(self.client.shell_channel.socket, msg_id)[1]

    def _next(self, socket: Any, msg_id: str) -> tuple[str, bytes]:
        """The next message that answers ``msg_id``."""
        deadline = time.monotonic() + DEADLINE
        while socket.poll(max(0.0, deadline - time.monotonic()) * 1000):
            _, frames = self.client.session.feed_identities(socket.recv_multipart())
            if json.loads(frames[2]).get("msg_id") == msg_id:
                return json.loads(frames[1])["msg_type"], frames[4]
        raise AssertionError("no answer before the deadline")


def alive(pid: int) -> bool:
    """A process that runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, todo = set(), [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def wait_gone(pids: set[int], seconds: float = 20.0) -> None:
    """Returns when none of the processes runs any more."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            import select

            poller = select.poll()
            poller.register(handle, select.POLLIN)
            done = poller.poll(max(0, deadline - time.monotonic()) * 1000)
            assert done or not alive(pid), f"process {pid} still runs"
        finally:
            os.close(handle)
