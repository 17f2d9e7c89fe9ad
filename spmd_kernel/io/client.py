"""A client of a running kernel's control channel, for a terminal: find it, ask it, go.

Jupyter writes a connection file per kernel into its runtime directory, and kernels that were killed
leave theirs behind.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from jupyter_core.paths import jupyter_runtime_dir

from ..core.content import dumps, read
from ..core.errors import BadMessage, UsageError
from ..core.model import Message
from ..kernelspecs import all_kernelspecs
from .connection import ConnectionInfo
from .wire import Wire

KNOCK_SECONDS = 0.5  # for the system to accept or refuse a connection
SECONDS = 30.0  # for an answer; starting ranks takes some


@dataclass(frozen=True, slots=True)
class Found:
    """A connection file of ours whose kernel listens; ``at``: when it was written."""

    path: Path
    at: float


def running(folder: str | None = None) -> list[Found]:
    """Kernels of ours that run, the newest first."""
    names = {spec.name for spec in all_kernelspecs().values() if "spmd" in spec.metadata}
    files = Path(folder or jupyter_runtime_dir()).glob("kernel-*.json")
    found = [Found(path, at) for path, at in _dated(files) if _is_ours(path, names)]
    return sorted(found, key=lambda one: one.at, reverse=True)


def _dated(files: Iterable[Path]) -> Iterable[tuple[Path, float]]:
    for path in files:
        try:
            yield path, path.stat().st_mtime
        except OSError:
            continue  # gone meanwhile


def _is_ours(path: Path, names: set[str]) -> bool:
    try:
        connection = ConnectionInfo.read(path)
    except UsageError:
        return False
    return connection.kernel_name in names and _listens(connection)


def _listens(connection: ConnectionInfo) -> bool:
    """Somebody does, at the address of its control socket."""
    port = connection.ports["control"]
    try:
        if connection.transport == "tcp":
            with socket.create_connection((_reachable(connection.ip), port), KNOCK_SECONDS):
                return True
        with socket.socket(socket.AF_UNIX) as knock:
            knock.settimeout(KNOCK_SECONDS)
            knock.connect(f"{connection.ip}-{port}")
            return True
    except OSError:
        return False


def _reachable(ip: str) -> str:
    return "127.0.0.1" if ip == "0.0.0.0" else ip


def ask(
    path: str | os.PathLike[str],
    command: str,
    arguments: Mapping[str, Any],
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """The content of the ``spmd_reply``. Raises `UsageError` when there is none."""
    connection = ConnectionInfo.read(path)
    wire = Wire(connection.key, connection.signature_scheme)
    content = dumps({"command": command, "arguments": dict(arguments)})
    request = wire.compose("spmd_request", content, {}, {})
    if not _listens(connection):
        raise UsageError(
            f"no kernel listens at {connection.address('control')}",
            f"{path} is of a kernel that has ended",
        )
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        reply = _exchange(context, connection, wire, request, seconds)
    finally:
        context.destroy(linger=0)
    return reply


def _exchange(
    context: zmq.Context[zmq.Socket[bytes]],
    connection: ConnectionInfo,
    wire: Wire,
    request: Message,
    seconds: float,
) -> dict[str, Any]:
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        if connection.curve is not None:
            dealer.curve_serverkey = connection.curve[0]
            dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        address = connection.address("control")
        dealer.connect(address.replace("//0.0.0.0:", "//127.0.0.1:"))
        dealer.send_multipart(wire.pack(request))
        if not dealer.poll(int(seconds * 1000)):
            raise UsageError(
                f"the kernel did not answer within {seconds:g} s",
                "is it one of spmd-kernel, and alive? Some requests take longer: --seconds",
            )
        return _content(wire, dealer.recv_multipart(), request)


def _content(wire: Wire, frames: list[bytes], request: Message) -> dict[str, Any]:
    try:
        _, reply = wire.unpack(frames)
        if reply.parent_id != request.msg_id:
            raise BadMessage("it answers something else")
        return dict(read(reply.content))
    except BadMessage as error:
        raise UsageError(f"the kernel's answer cannot be read: {error}") from None


def parsed(text: str) -> dict[str, Any]:
    """Arguments as JSON. Raises `UsageError`."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the arguments are not JSON: {error}", "'{\"ranks\": [0]}'") from None
    if not isinstance(value, dict):
        raise UsageError("the arguments are no JSON object", "'{\"ranks\": [0]}'")
    return value
