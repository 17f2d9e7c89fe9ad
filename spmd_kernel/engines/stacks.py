"""The Python stack of every rank, from outside: a signal, and what faulthandler writes at it.

A FIFO beside the rank's connection file (``r0.json``: ``r0.stacks``) is made before the rank starts;
`rank/setup.py` opens it and registers faulthandler on `SIGNAL`, for the thread that gets it.  That
works while the main thread is in C code or holds the GIL.  Nothing here waits: the FIFO is read as
the loop finds it readable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..core import stacks
from ..core.model import Pulse, Rank
from ..rank.processes import kill_main_thread

SIGNAL: int | None = getattr(signal, "SIGRTMAX", 0) - 3 if hasattr(signal, "SIGRTMAX") else None
LIMIT = 0.5  # seconds for a rank to answer
QUIET = 0.05  # nothing more for so long: the dump is over, although its last line is not known
CHUNK = 1 << 16
PIPE_SIZE = 1 << 20  # faulthandler ends at a hundred frames; their files may have long names

Done = Callable[[Mapping[Rank, str], Mapping[Rank, Pulse]], None]


@dataclass(slots=True, eq=False)
class _Pipe:
    read_end: int
    last_line: str = ""  # the outermost frame, as a dump showed it; the first ends with `QUIET`

    def close(self) -> None:
        os.close(self.read_end)


@dataclass(slots=True, eq=False)
class _Reading:
    """One rank's dump on its way."""

    rank: Rank
    pid: int
    pipe: _Pipe
    text: bytearray = field(default_factory=bytearray)
    quiet: asyncio.TimerHandle | None = None


class Stacks:
    """The FIFOs of the ranks of one engine, and the dumps that are asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._pipes: dict[Rank, _Pipe] = {}
        self._reading: dict[Rank, list[Callable[[Rank, str | None], None]]] = {}
        self._open: dict[Rank, _Reading] = {}

    def prepare(self, rank: Rank, prefix: str) -> None:
        """Before the rank starts: its FIFO, ``prefix`` + ``.stacks``. No FIFO is no fault."""
        self._forget(rank)
        if SIGNAL is None:
            return
        with contextlib.suppress(OSError):
            os.mkfifo(prefix + ".stacks", 0o600)
            read_end = os.open(prefix + ".stacks", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._pipes[rank] = _Pipe(read_end)
            _enlarge(read_end)

    def dump(self, pids: Mapping[Rank, int], done: Done) -> None:
        """Signal these processes; ``done`` hears once, from the loop, within `LIMIT`."""
        pulses = {rank: found for rank, pid in pids.items() if (found := pulse(pid)) is not None}
        texts: dict[Rank, str] = {}
        waiting = set(pids)

        def ended(rank: Rank, text: str | None) -> None:
            waiting.discard(rank)
            if text is not None:
                texts[rank] = text
            if not waiting:
                done(texts, pulses)

        if not pids:
            self._loop.call_soon(done, texts, pulses)
        for rank, pid in pids.items():
            self._ask(rank, pid, ended)

    def close(self) -> None:
        for rank in list(self._pipes):
            self._forget(rank)

    # ---------------------------------------------------------------- inside

    def _ask(self, rank: Rank, pid: int, ended: Callable[[Rank, str | None], None]) -> None:
        if rank in self._reading:  # its dump is on the way
            self._reading[rank].append(ended)
            return
        pipe = self._pipes.get(rank)
        if pipe is None or SIGNAL is None or not catches(pid, SIGNAL):
            self._loop.call_soon(ended, rank, None)
            return
        _discard(pipe.read_end)  # what came too late for an earlier dump
        reading = _Reading(rank, pid, pipe)
        self._reading[rank] = [ended]
        self._open[rank] = reading
        self._loop.add_reader(pipe.read_end, self._read, reading)
        reading.quiet = self._loop.call_later(LIMIT, self._finish, reading, False)
        kill_main_thread(pid, SIGNAL)

    def _read(self, reading: _Reading) -> None:
        try:
            data = os.read(reading.pipe.read_end, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # it is gone
            self._finish(reading, False)
            return
        reading.text += data
        text = _text(reading.text)
        if not stacks.HEADER.startswith(text[: len(stacks.HEADER)]):
            reading.pipe.last_line = ""  # the rest of an earlier dump: that was not its last line
        if stacks.is_complete(text, reading.pipe.last_line):
            self._finish(reading, True)
            return
        if reading.quiet is not None:
            reading.quiet.cancel()
        patience = LIMIT if reading.pipe.last_line else QUIET
        reading.quiet = self._loop.call_later(patience, self._finish, reading, True)

    def _finish(self, reading: _Reading, answered: bool) -> None:
        if self._open.get(reading.rank) is not reading:
            return
        del self._open[reading.rank]
        self._loop.remove_reader(reading.pipe.read_end)
        if reading.quiet is not None:
            reading.quiet.cancel()
        text = _text(reading.text)
        if answered and text.endswith("\n") and not text.endswith("  ...\n"):
            reading.pipe.last_line = text.splitlines()[-1]
        for ended in self._reading.pop(reading.rank):
            ended(reading.rank, text if answered and text else None)

    def _forget(self, rank: Rank) -> None:
        if reading := self._open.get(rank):
            self._finish(reading, False)
        if pipe := self._pipes.pop(rank, None):
            pipe.close()


def catches(pid: int, signum: int) -> bool:
    """Whether a process handles the signal: its default action would be the process's end."""
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", _status(f"/proc/{pid}/status"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (signum - 1) & 1)


def pulse(pid: int) -> Pulse | None:
    """See `Pulse`; ``None`` where there is no /proc (proc(5))."""
    found = re.search(
        r"^voluntary_ctxt_switches:\s*(\d+)$",
        _status(f"/proc/{pid}/task/{pid}/status"),
        re.MULTILINE,
    )
    fields = _status(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if found is None or len(fields) < 13:
        return None
    return Pulse(int(found[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


def _status(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _text(data: Sequence[int] | bytearray) -> str:
    return bytes(data).decode("utf-8", "replace")


def _discard(read_end: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(read_end, CHUNK):
            pass


def _enlarge(pipe: int) -> None:
    """A rank never waits for us: what does not fit is lost (Linux, fcntl(2))."""
    import fcntl

    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
