"""Where a rank binds its sockets, and the connection file that tells it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..kernelspecs import Kernelspec
from .ports import HeldPorts

# Transport ipc has no ports; ipykernel appends the number to the path.
NUMBERS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """ipykernel: files of a directory that only this user can enter.

    Other kernels: loopback TCP, as every client gives them.  Few have ever tried ipc: xeus takes
    addresses of 31 bytes, others put a colon before the number.
    """

    transport: Literal["ipc", "tcp"]
    ip: str  # for ipc the prefix of the socket paths
    ports: Mapping[str, int]
    held: HeldPorts | None = None  # nobody else is given these ports while the rank lives

    @classmethod
    def of(cls, kernelspec: Kernelspec, prefix: str) -> Place:
        """Raises `OSError` when there are no more ports."""
        if kernelspec.is_ipykernel:
            return cls("ipc", prefix, NUMBERS)
        held = HeldPorts(len(NUMBERS))
        return cls("tcp", LOOPBACK, dict(zip(NUMBERS, held.ports, strict=True)), held)

    @property
    def addresses(self) -> dict[str, str]:
        """zmq addresses by channel."""
        separator = "-" if self.transport == "ipc" else ":"
        base = f"{self.transport}://{self.ip}{separator}"
        return {channel: f"{base}{port}" for channel, port in self.ports.items()}

    def connection(self, kernel_name: str, key: bytes) -> bytes:
        """A connection file (Jupyter client documentation, "Connection files")."""
        ports = {f"{channel}_port": port for channel, port in self.ports.items()}
        content = {
            **ports,
            "transport": self.transport,
            "ip": self.ip,
            "key": key.decode("ascii"),
            "signature_scheme": "hmac-sha256",
            "kernel_name": kernel_name,
        }
        return json.dumps(content).encode()

    def close(self) -> None:
        """Give the ports back. Idempotent."""
        if self.held is not None:
            self.held.close()
