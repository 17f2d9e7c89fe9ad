"""What a kernel process and its zygote say to each other, and how: used at both ends.

JSON objects; ``fds`` says how many file descriptors come along.  To the zygote (``do``)::

    start       id argv env module words fds=1  the descriptor becomes its stdout and stderr
    signal      ids signum                      to their process groups
    expect_end  ids                             what they have started goes with them
    stop        ids now                         SIGTERM, after a grace SIGKILL (now: at once)
    own         directory                       to be removed when the kernel process is gone

and from it (``event``)::

    ready       reason problems paths           reason: why ranks cannot be forked
    started     id pid how fds=0|1              how: fork or spawn; the descriptor is a pidfd
    failed      id errno
    exited      id code killed                  code: minus the signal; killed: by us
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
from collections.abc import Iterable, Sequence
from typing import Any

Message = dict[str, Any]

CHUNK = 1 << 16  # bytes
MOST_FDS = 64  # in one piece of a message


class Wire:
    """Messages on a stream socket: four bytes of length, JSON, file descriptors beside the first.

    Used by both ends.  The kernel process's socket does not block, ours does.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._in = bytearray()
        self._fds: list[int] = []
        self._out: list[tuple[bytes, Sequence[int]]] = []

    def put(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Queue a message for `flush`.  The descriptors are ours from now on, and closed once sent."""
        data = json.dumps({**message, "fds": len(fds)}).encode()
        self._out.append((len(data).to_bytes(4, "big") + data, fds))

    def flush(self) -> bool:
        """Send what the socket takes; whether that was all.  A peer that is gone takes anything."""
        while self._out:
            data, fds = self._out[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                sent = self.socket.sendmsg([data], rights)
            except BlockingIOError:
                return False
            except OSError:
                sent = len(data)
            close_all(fds)
            self._out[0] = (data[sent:], ())
            if sent == len(data):
                del self._out[0]
        return True

    def fill(self) -> bool:
        """Receive once; False at the end of the stream."""
        space = socket.CMSG_SPACE(MOST_FDS * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self.socket.recvmsg(CHUNK, space, _CLOEXEC)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self._fds.extend(fds)
        self._in += data
        return bool(data)

    def take(self) -> tuple[Message, list[int]] | None:
        """The next message that has come in whole, and its descriptors, which are the caller's."""
        end = 4 + int.from_bytes(self._in[:4], "big")
        if len(self._in) < max(end, 5):
            return None
        message = json.loads(bytes(self._in[4:end]))
        count = message["fds"]
        fds, self._fds = self._fds[:count], self._fds[count:]
        del self._in[:end]
        return message, fds

    def close(self) -> None:
        self.socket.close()
        close_all(self._fds)
        for _, fds in self._out:
            close_all(fds)
        self._fds, self._out = [], []


_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
