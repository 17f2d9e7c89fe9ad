"""Real sockets: what a client or a rank would be at the other end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session

from spmd_kernel.engines.base import Endpoint
from spmd_kernel.io.wire import Wire

KEY = b"a-key-that-every-test-shares"
DEADLINE = 30.0
QUEUE = 10_000  # messages a scripted rank keeps for us; ipykernel keeps 1000, and drops the rest


class KeepingContext(zmq.Context[zmq.Socket[bytes]]):
    """Keeps its sockets until its end, so that a test need not close its own."""

    kept: list[zmq.Socket[bytes]]

    def socket(self, *args: Any, **kwargs: Any) -> Any:
        socket = super().socket(*args, **kwargs)
        vars(self).setdefault("kept", []).append(socket)
        return socket


@pytest.fixture
def context() -> Iterator[KeepingContext]:
    context = KeepingContext()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def busy() -> Callable[[float], None]:
    """Keep the loop busy: that is the point."""
    return time.sleep


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Coroutine[Any, Any, None]]:
    """For what libzmq's thread does in its own time and tells nobody."""

    async def until(condition: Callable[[], Any]) -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    return until


@pytest.fixture
def popen() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a Python process, which does not survive the test."""
    started: list[subprocess.Popen[bytes]] = []

    def popen(*args: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, *args]))
        return started[-1]

    yield popen
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def session() -> Session:
    """The oracle: what Jupyter's own clients and kernels read and write."""
    return Session(key=KEY, packer="json", unpacker="json")


@pytest.fixture
def wire() -> Wire:
    return Wire(KEY, remember=0)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run to the end; an exception that reached the loop's handler fails the test."""

    def run(main: Coroutine[Any, Any, Any], deadline: float = DEADLINE) -> Any:
        unexpected: list[Any] = []

        async def guarded() -> Any:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: unexpected.append(context))
            return await asyncio.wait_for(main, deadline)

        result = asyncio.run(guarded())
        assert not unexpected
        return result

    return run


class Inbox(list[Any]):
    """Collects what a callback gets, and can be waited on."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def __call__(self, *args: Any) -> None:
        self.append(args[0] if len(args) == 1 else args)
        self._changed.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def count(self, number: int) -> None:
        await self.until(lambda: len(self) >= number)


@pytest.fixture
def inbox() -> type[Inbox]:
    return Inbox


class ScriptedRank(threading.Thread):
    """A rank by script, with jupyter_client's session: answers kernel_info and execute.

    ``welcome``: whether it greets IOPub subscribers (ipykernel >= 7 does).  ``deaf``: how many
    requests it answers on shell before its IOPub is bound.  An execute request's code is how many
    stream messages it sends, not faster than libzmq carries them off.  Socket paths are under
    ``directory``, and bound once `bind` is called.
    """

    def __init__(self, directory: Path, welcome: bool = True, deaf: int = 0) -> None:
        super().__init__(daemon=True)
        self.addresses = {
            name: f"ipc://{directory}/rank-{name}"
            for name in ("shell", "control", "stdin", "iopub")
        }
        self.endpoint = Endpoint(3, 1, os.getpid(), self.addresses, KEY)
        self.routing_ids: dict[str, bytes] = {}
        self.requests: list[dict[str, Any]] = []
        self._session = Session(key=KEY, packer="json", unpacker="json", digest_history_size=0)
        self._welcome = welcome
        self._deaf = deaf
        self._bind = threading.Event()
        self._context = zmq.Context()
        self._orders = self._context.socket(zmq.PAIR)
        self._orders.bind("inproc://orders")
        self.start()

    def bind(self) -> None:
        self._bind.set()

    def close(self) -> None:
        self._bind.set()
        self._orders.send(b"")
        self.join()
        self._orders.close()
        self._context.term()

    def run(self) -> None:
        stop = self._context.socket(zmq.PAIR)
        stop.connect("inproc://orders")
        self._bind.wait()
        types = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.XPUB}
        self.sockets = {name: self._context.socket(kind) for name, kind in types.items()}
        poller = zmq.Poller()
        poller.register(stop, zmq.POLLIN)
        for name, socket in self.sockets.items():
            socket.sndhwm = QUEUE
            if name != "iopub" or not self._deaf:
                socket.bind(self.addresses[name])
            poller.register(socket, zmq.POLLIN)
        names = {socket: name for name, socket in self.sockets.items()}
        while stop not in (ready := dict(poller.poll())):
            for socket in ready:
                self._serve(names[socket], socket.recv_multipart())
        stop.close()
        for socket in self.sockets.values():
            socket.close(0)

    def _serve(self, name: str, frames: list[bytes]) -> None:
        if name == "iopub":
            if self._welcome and frames[0][:1] == b"\1":
                content = {"subscription": frames[0][1:].decode()}
                self._session.send(self.sockets["iopub"], "iopub_welcome", content)
            return
        idents, rest = self._session.feed_identities(frames)
        request = self._session.deserialize(rest)
        self.routing_ids[name] = idents[0]
        self.requests.append(request)
        self._publish("status", {"execution_state": "busy"}, request)
        self._answer(name, idents, request)
        self._publish("status", {"execution_state": "idle"}, request)
        if self._deaf:
            self._deaf -= 1
            if not self._deaf:
                self.sockets["iopub"].bind(self.addresses["iopub"])

    def _answer(self, name: str, idents: list[bytes], request: dict[str, Any]) -> None:
        kind = request["msg_type"].removesuffix("_request")
        content = {"status": "ok", "implementation": "scripted"}
        if kind == "execute":
            for number in range(int(request["content"]["code"])):
                self._publish("stream", {"name": "stdout", "text": f"{number}"}, request)
                if number % 500 == 499:
                    time.sleep(0.01)
        if kind == "garbage":
            self.sockets["iopub"].send_multipart([b"no", b"message"])
            self.sockets[name].send_multipart([*idents, b"<IDS|MSG>", b"forged", *[b"{}"] * 4])
        self._session.send(
            self.sockets[name], f"{kind}_reply", content, parent=request["header"], ident=idents
        )

    def _publish(self, kind: str, content: dict[str, Any], request: dict[str, Any]) -> None:
        self._session.send(self.sockets["iopub"], kind, content, parent=request["header"])


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Callable[..., ScriptedRank]]:
    ranks: list[ScriptedRank] = []

    def start(**script: Any) -> ScriptedRank:
        directory = tmp_path / str(len(ranks))
        directory.mkdir()
        ranks.append(ScriptedRank(directory, **script))
        return ranks[-1]

    yield start
    for rank in ranks:
        rank.close()


@pytest.fixture
def connection_file(tmp_path: Path) -> Callable[..., Path]:
    def write(**fields: Any) -> Path:
        path = tmp_path / "kernel-front.json"
        ports = {f"{name}_port": 0 for name in ("shell", "iopub", "stdin", "control", "hb")}
        raw = {"transport": "tcp", "ip": "127.0.0.1", "key": KEY.decode(), **ports, **fields}
        path.write_text(json.dumps(raw))
        return path

    return write


@pytest.fixture
def open_fds() -> Callable[[], int]:
    return lambda: len(os.listdir("/proc/self/fd"))
