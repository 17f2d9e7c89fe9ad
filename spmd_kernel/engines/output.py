"""The end of what a process wrote to its stdout and stderr, kept for when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os

KEPT = 64 * 1024  # bytes
LINES = 20
CRASH = "Fatal Python error"  # how a report of faulthandler begins


class OutputPipe:
    """A pipe whose read end is drained by the loop.  Hand ``write_end`` to the process.

    ``read_end``: of a pipe that the process has already.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, read_end: int | None = None):
        self._loop = loop
        self._kept = bytearray()
        self._read_end, self.write_end = os.pipe() if read_end is None else (read_end, -1)
        os.set_blocking(self._read_end, False)
        loop.add_reader(self._read_end, self._read)

    def handed_over(self) -> int:
        """The write end, the caller's from now on."""
        write_end, self.write_end = self.write_end, -1
        return write_end

    def close(self) -> str:
        """Read what is left (not waiting for others that hold the pipe); the last lines."""
        while self._read_end >= 0 and self._read():
            pass
        self._stop()
        self.write_end = _closed(self.write_end)
        return last_lines(bytes(self._kept[-KEPT:]).decode("utf-8", "replace"))

    def _read(self) -> bool:
        """Take one chunk; whether there was any."""
        try:
            data = os.read(self._read_end, KEPT)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._stop()
        self._kept += data
        if len(self._kept) > 2 * KEPT:
            del self._kept[:-KEPT]
        return bool(data)

    def _stop(self) -> None:
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            self._read_end = _closed(self._read_end)


def _closed(fd: int) -> int:
    if fd >= 0:
        with contextlib.suppress(OSError):
            os.close(fd)
    return -1


def last_lines(text: str, count: int = LINES) -> str:
    """The last lines; of a crash report the first ones, where the innermost frames are."""
    crash = text.rfind(CRASH)
    lines = text[crash if crash >= 0 else 0 :].strip("\n").splitlines()
    return "\n".join(lines[:count] if crash >= 0 else lines[-count:])
