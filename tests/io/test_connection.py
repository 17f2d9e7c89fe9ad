"""The connection file: read, refused with a reason, rewritten when ports were 0."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.connect import write_connection_file

from spmd_kernel.core.errors import UsageError
from spmd_kernel.io.connection import ConnectionInfo


def test_reads_what_jupyter_client_writes(tmp_path: Path) -> None:
    path, raw = write_connection_file(
        str(tmp_path / "kernel.json"), key=b"secret", kernel_name="spmd"
    )
    info = ConnectionInfo.read(path)
    assert (info.transport, info.ip, info.key) == ("tcp", raw["ip"], b"secret")
    assert (info.signature_scheme, info.kernel_name) == ("hmac-sha256", "spmd")
    assert info.ports == {n: raw[f"{n}_port"] for n in info.ports}
    assert info.address("hb") == f"tcp://{raw['ip']}:{raw['hb_port']}"
    assert "secret" not in repr(info)


def test_defaults_are_local(connection_file: Any) -> None:
    path = connection_file()
    path.write_text('{"transport": "ipc"}')
    assert ConnectionInfo.read(path).address("shell", 1) == f"ipc://{path.with_suffix('')}-ipc-1"
    path.write_text("{}")
    assert ConnectionInfo.read(path).address("shell", 7) == "tcp://127.0.0.1:7"
    path.write_text('{"ip": "*"}')
    assert ConnectionInfo.read(path).ip == "0.0.0.0"


BAD = {
    "not JSON": b"{",
    "bytes": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "not a JSON object": b"[]",
    "transport 'udp'": b'{"transport": "udp"}',
    "ip is not a string": b'{"ip": 1}',
    "key is not a string": b'{"key": null}',
    "shell_port": b'{"shell_port": "1"}',
    "hb_port": b'{"hb_port": true}',
    "iopub_port": b'{"iopub_port": 65536}',
    "control_port": b'{"control_port": -1}',
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_unusable_files_are_the_users_error(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "kernel.json"
    path.write_bytes(raw)
    with pytest.raises(UsageError, match="connection file") as error:
        ConnectionInfo.read(path)
    assert error.value.hint
    assert str(path) in str(error.value)


def test_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError, match=r"No such file|directory"):
            ConnectionInfo.read(path)


def test_writing_keeps_what_we_do_not_know_and_is_private(connection_file: Any) -> None:
    path = connection_file(jupyter_session="abc", shell_port=0)
    path.chmod(0o644)
    info = ConnectionInfo.read(path)
    info.with_ports(dict.fromkeys(info.ports, 4711)).write()
    raw = json.loads(path.read_text())
    assert (raw["jupyter_session"], raw["shell_port"]) == ("abc", 4711)
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == [path.name]


def test_an_address_that_is_taken_is_named(connection_file: Any, context: Any) -> None:
    taken = context.socket(zmq.ROUTER)
    port = taken.bind_to_random_port("tcp://127.0.0.1")
    info = ConnectionInfo.read(connection_file(shell_port=port))
    with pytest.raises(UsageError, match=f"shell socket to tcp://127.0.0.1:{port}.*in use"):
        info.bind("shell", context.socket(zmq.ROUTER))


def test_an_ipc_path_that_is_too_long_is_named(connection_file: Any, context: Any) -> None:
    info = ConnectionInfo.read(connection_file(transport="ipc", ip="/tmp/" + "x" * 200))
    with pytest.raises(UsageError, match="cannot bind"):
        info.bind("shell", context.socket(zmq.ROUTER))
