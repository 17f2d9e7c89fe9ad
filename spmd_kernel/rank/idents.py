"""``kernel._parent_ident`` of ipykernel 7: who has asked.  Private, but much code reads it.

It says what the kernel in front would say: the session of the client, not the one connection that a
rank has.  Whatever is sent to a client by it, as questions are, goes over that connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq


class Stdin(zmq.Socket):  # type: ignore[type-arg]
    """A ROUTER with one peer: what is sent goes there."""

    peer: Any = b""  # its routing id

    def send_multipart(self, msg_parts: Any, *args: Any, **kwargs: Any) -> Any:
        return super().send_multipart([self.peer, *msg_parts[1:]], *args, **kwargs)


def install(kernel: Any) -> None:
    """In a request of ours.  Raises AttributeError and such for kernels that are not ipykernel 7's."""
    real = kernel._parent_ident
    (ours,) = real["shell"]
    if isinstance(real, dict):  # older ones send by it themselves
        return

    def asker(channel: str) -> Callable[[], Any]:
        def ident() -> Any:
            session = kernel.get_parent(channel).get("header", {}).get("session")
            return [session.encode()] if real[channel] == [ours] and session else real[channel]

        return ident

    stdin = Stdin.shadow(kernel.stdin_socket)
    stdin.peer = ours
    kernel.stdin_socket = stdin
    kernel._parent_ident = type(real)({channel: asker(channel) for channel in ("control", "shell")})
