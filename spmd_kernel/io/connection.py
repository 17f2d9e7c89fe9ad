"""The connection file: where clients find us, and the key they sign with.

https://jupyter-client.readthedocs.io/en/stable/kernels.html#connection-files
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import zmq

from ..core.errors import UsageError

SOCKETS = ("shell", "iopub", "stdin", "control", "hb")


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """``ports`` by socket name (shell, iopub, stdin, control, hb); 0 is chosen by `bind`.

    ``curve`` is the CurveZMQ key pair (public, secret; Z85) of a manager that asks for encryption.
    """

    path: Path
    transport: Literal["tcp", "ipc"]
    ip: str  # of the interface; for ipc the prefix of the socket paths
    ports: Mapping[str, int]
    key: bytes = field(repr=False)
    signature_scheme: str = "hmac-sha256"
    kernel_name: str = ""
    curve: tuple[bytes, bytes] | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ConnectionInfo:
        """Raises `UsageError` if the file is missing, not JSON, or lacks what it must have."""
        path = Path(path)
        raw = _load(path)
        transport = raw.get("transport", "tcp")
        if transport not in ("tcp", "ipc"):
            raise _unusable(path, f"transport {transport!r} is neither tcp nor ipc")
        default_ip = "127.0.0.1" if transport == "tcp" else f"{path.with_suffix('')}-ipc"
        ip = _text(path, raw, "ip", "") or default_ip
        return cls(
            path,
            cast(Literal["tcp", "ipc"], transport),
            "0.0.0.0" if ip == "*" else ip,  # as jupyter_client reads it
            {name: _port(path, raw, f"{name}_port") for name in SOCKETS},
            _text(path, raw, "key", "").encode("utf-8", "surrogateescape"),
            _text(path, raw, "signature_scheme", "hmac-sha256"),
            _text(path, raw, "kernel_name", ""),
            _curve(path, raw),
        )

    def address(self, socket: str, port: int | None = None) -> str:
        port = self.ports[socket] if port is None else port
        return f"{self.transport}://{self.ip}{':' if self.transport == 'tcp' else '-'}{port}"

    def bind(self, name: str, socket: zmq.Socket[bytes]) -> int:
        """Bind to the port of the file, or to a free one; the port. Raises `UsageError`."""
        if self.curve:
            socket.curve_publickey, socket.curve_secretkey = self.curve
            socket.curve_server = True
        port = self.ports[name]
        if not port and self.transport == "ipc":
            port = self._free_path()
        try:
            socket.bind(self.address(name, port))
        except zmq.ZMQError as error:
            why = zmq.strerror(error.errno or 0)
            raise UsageError(
                f"cannot bind the {name} socket to {self.address(name, port)}: {why}",
                "the connection file names an address that is taken or does not exist here",
            ) from None
        return port or int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def with_ports(self, ports: Mapping[str, int]) -> ConnectionInfo:
        return replace(self, ports=dict(ports))

    def write(self) -> None:
        """Write the ports into the file, which keeps the rest; readers see the old or the new one."""
        raw = _load(self.path)
        raw |= {"transport": self.transport, "ip": self.ip}
        raw |= {f"{name}_port": port for name, port in self.ports.items()}
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(raw, file, indent=2)
            os.replace(draft, self.path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise UsageError(
                f"cannot write the connection file {self.path}: {error.strerror}",
                "its ports are 0, so clients must be told the real ones there",
            ) from None

    def remove(self, name: str) -> None:
        """Remove the file of a bound ipc socket: libzmq leaves it."""
        if self.transport == "ipc":
            Path(f"{self.ip}-{self.ports[name]}").unlink(missing_ok=True)

    def _free_path(self) -> int:
        port = 1
        while os.path.exists(f"{self.ip}-{port}"):
            port += 1
        return port


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"cannot use the connection file {path}: {why}",
        "a Jupyter client writes it and passes it with -f; start the kernel from one",
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        raise _unusable(path, "it is not JSON") from None
    if not isinstance(raw, dict):
        raise _unusable(path, "it is not a JSON object")
    return raw


def _text(path: Path, raw: Mapping[str, Any], name: str, default: str) -> str:
    value = raw.get(name, default)
    if not isinstance(value, str):
        raise _unusable(path, f"{name} is not a string")
    return value


def _port(path: Path, raw: Mapping[str, Any], name: str) -> int:
    value = raw.get(name, 0)
    if type(value) is not int or not 0 <= value <= 65535:
        raise _unusable(path, f"{name} is not a port number")
    return value


def _curve(path: Path, raw: Mapping[str, Any]) -> tuple[bytes, bytes] | None:
    public, secret = (_text(path, raw, f"curve_{half}key", "") for half in ("public", "secret"))
    if not (public and secret):
        return None
    if not zmq.has("curve"):
        raise _unusable(path, "it asks for CurveZMQ encryption, which this pyzmq cannot do")
    return public.encode(), secret.encode()
