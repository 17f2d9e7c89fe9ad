"""TCP ports that stay ours: for MASTER_PORT and the JAX coordinator.

A port that was only looked up is free for anybody until rank 0 listens on it.  A bound socket that
does not listen keeps it: nobody's ``bind(0)`` or ``connect`` is given the port, while those who ask
for it by number with SO_REUSEADDR (torch's TCPStore, JAX's gRPC) bind over it and listen.
"""

from __future__ import annotations

import socket
import sys


class HeldPorts:
    """``count`` distinct ports, held until `close`.  Elsewhere than on Linux: only looked up."""

    def __init__(self, count: int):
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                self._sockets.append(_bound())
        except OSError:
            self.close()
            raise
        self.ports: tuple[int, ...] = tuple(s.getsockname()[1] for s in self._sockets)
        if not sys.platform.startswith("linux"):
            self.close()  # BSD sockets let nobody bind over a bound address

    def close(self) -> None:
        """Give the ports back. Idempotent."""
        while self._sockets:
            self._sockets.pop().close()


def _bound() -> socket.socket:
    """A socket on a free port of every address of both families, as TCPStore binds them all."""
    try:
        return _bind(socket.AF_INET6, "::")
    except OSError:  # no IPv6 here
        return _bind(socket.AF_INET, "0.0.0.0")  # it never listens


def _bind(family: socket.AddressFamily, address: str) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind((address, 0))
    except OSError:
        held.close()
        raise
    return held
