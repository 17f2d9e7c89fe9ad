"""Kernels found by their connection files, and asked from a terminal."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zmq

from spmd_kernel import cli
from spmd_kernel.core.errors import UsageError
from spmd_kernel.io import client
from spmd_kernel.io.wire import Wire


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def port() -> Iterator[int]:
    """One that somebody listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def dead_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def put(folder: Path, name: str, port: int, at: float = 1e9, **more: Any) -> Path:
    path = folder / f"kernel-{name}.json"
    raw = {"transport": "tcp", "ip": "127.0.0.1", "control_port": port, "key": "k"}
    path.write_text(json.dumps({**raw, "kernel_name": "spmd-python3", **more}))
    os.utime(path, (at, at))
    return path


class Kernel(threading.Thread):
    """Answers one request on control with what it is given."""

    def __init__(self, content: bytes, key: bytes = b"k", curve: tuple[bytes, bytes] | None = None):
        super().__init__(daemon=True)
        self.content = content
        self.wire = Wire(key)
        self.asked: Any = None
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 1000
        if curve is not None:
            self.socket.curve_publickey, self.socket.curve_secretkey = curve
            self.socket.curve_server = True
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")

    def run(self) -> None:
        if self.socket.poll(20_000):
            idents, request = self.wire.unpack(self.socket.recv_multipart())
            self.asked = json.loads(request.content)
            reply = self.wire.compose("spmd_reply", self.content, request.header, {})
            self.socket.send_multipart([*idents, *self.wire.pack(reply)])

    def close(self) -> None:
        self.join(30)
        self.socket.close()
        self.context.term()


OK = b'{"status": "ok", "command": "status", "data": {"size": 2}}'


@pytest.mark.parametrize("encrypted", [False, True])
def test_it_asks_and_reads_the_answer(folder: Path, encrypted: bool) -> None:
    curve = zmq.curve_keypair() if encrypted else None
    kernel = Kernel(OK, curve=curve)
    names = ("curve_publickey", "curve_secretkey")
    keys = dict(zip(names, map(bytes.decode, curve), strict=True)) if curve else {}
    kernel.start()
    with closing(kernel):
        reply = client.ask(put(folder, "a", kernel.port, **keys), "status", {"resources": True})
    assert reply["data"] == {"size": 2}
    assert kernel.asked == {"command": "status", "arguments": {"resources": True}}


def test_a_file_that_a_killed_kernel_left(folder: Path) -> None:
    with pytest.raises(UsageError, match="no kernel listens at tcp"):
        client.ask(put(folder, "a", dead_port()), "status", {})


def test_who_listens_may_be_somebody_else(folder: Path, port: int) -> None:
    with pytest.raises(UsageError, match="did not answer within"):
        client.ask(put(folder, "a", port), "status", {}, seconds=0.2)


@pytest.mark.parametrize("content", [b"", b"[]", b"{"])
def test_an_answer_that_is_none(folder: Path, content: bytes) -> None:
    kernel = Kernel(content)
    kernel.start()
    with closing(kernel), pytest.raises(UsageError, match="cannot be read"):
        client.ask(put(folder, "a", kernel.port), "status", {})


def test_ours_that_run_are_found_the_newest_first(folder: Path, port: int) -> None:
    old = put(folder, "old", port, 1e9)
    new = put(folder, "new", port, 2e9)
    put(folder, "foreign", port, kernel_name="python3")
    put(folder, "dead", dead_port())
    put(folder, "strange", port, ip=5)
    (folder / "kernel-garbage.json").write_text("{")
    (folder / "other.json").write_text(old.read_text())
    assert [found.path for found in client.running()] == [new, old]


# ---------------------------------------------------------------- the command line


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert not out and "\nhint: " in err
    return err


def test_none_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no kernel of spmd-kernel runs" in refused(capsys, "request", "status")


def test_several_run_and_it_would_change_something(
    folder: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [put(folder, name, port) for name in "ab"]
    said = refused(capsys, "request", "interrupt")
    assert "2 kernels run" in said and all(str(path) in said for path in files)


def test_several_run_and_the_newest_is_asked(
    folder: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = Kernel(OK)
    kernel.start()
    put(folder, "old", port, 1e9)
    new = put(folder, "new", kernel.port, 2e9)
    with closing(kernel):
        # To find out who runs is to connect; whoever listens there must take that for nothing.
        assert cli.main(["request", "status"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"size": 2}
    assert err.splitlines()[1].strip() == str(new)


def test_an_error_is_said_with_its_hint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = Kernel(b'{"status": "error", "ename": "E", "evalue": "what", "hint": "why"}')
    kernel.start()
    path = put(folder, "a", kernel.port)
    with closing(kernel):
        assert cli.main(["request", "status", "--connection", str(path)]) == 1
    assert capsys.readouterr() == ("", "spmd-kernel: what\nhint: why\n")


@pytest.mark.parametrize("text", ["{", "[]", "5", ""])
def test_arguments_are_a_json_object(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "JSON" in refused(capsys, "request", "status", text)


def test_a_file_that_is_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "request", "status", "--connection", str(folder / "none.json"))
    assert "none.json" in said
