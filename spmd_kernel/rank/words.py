"""What a rank printed last, kept where it outlives the rank.

ipykernel collects text for some ten milliseconds before it sends it, and whatever was collected when
the process crashes, or is killed, is lost: often just the line that tells where it was.  So the first
`ROOM` bytes since the text was sent last are also written to a file in memory, which the kernel process
reads when the rank is dead.

The file has two halves, one for what is being collected and one for what was sent last: libzmq's thread
may not have passed that on.  The id of the message it was sent in tells whether it has arrived.
Executed by path in a rank; read by `engines.words`.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct

HEADER = struct.Struct("<BII100s")  # half in use; bytes in it; bytes in the other; message of those
START = 128  # of the halves
ROOM = 1 << 14  # bytes of each
SIZE = START + 2 * ROOM
CODEC = "utf-8", "surrogatepass"


class Words:
    """Those of one stream.  Its lock is held by whoever calls."""

    def __init__(self, path: str):
        """Makes the file.  Raises `OSError`."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Written, not truncated: a page that finds no room on the device later is a SIGBUS.
            if os.write(fd, bytes(SIZE)) != SIZE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self._map: mmap.mmap | None = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        self._half = self._used = self._before = 0
        self._message = b""
        os.register_at_fork(after_in_child=self._let_go)

    def _let_go(self) -> None:
        """A forked child speaks for itself."""
        self._map = None

    def keep(self, text: str) -> None:
        if self._map is None:
            return
        room = ROOM - self._used
        data = text[:room].encode(*CODEC)[:room]
        begin = START + self._half * ROOM + self._used
        self._map[begin : begin + len(data)] = data
        self._used += len(data)
        self._note()

    def leave(self) -> None:
        """What was collected is about to be sent."""
        if self._used:
            self._half, self._before, self._used = 1 - self._half, self._used, 0
            self._message = b""
            self._note()

    def left(self, msg_id: bytes) -> None:
        """In that message, or in one before it."""
        if msg_id:
            self._message = msg_id
            self._note()

    def _note(self) -> None:
        if self._map is not None:
            HEADER.pack_into(self._map, 0, self._half, self._used, self._before, self._message)
