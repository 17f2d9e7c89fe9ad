"""A zygote process as the kernel process sees it: commands out, events in, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..rank.messages import Wire
from ..rank.processes import kill, reap
from .early import ZygoteProcess
from .output import OutputPipe
from .plan import Plan

READY_SECONDS = 20.0  # without modules of the user's: its imports hang

Hear = Callable[["Supervisor", dict[str, Any], list[int]], None]
Ended = Callable[["Supervisor", int, str], None]


class Supervisor:
    """Its messages are those of `rank.zygote`.

    ``hear`` gets each event; ``ended`` the exit code (minus the signal) and last words of the
    process, once, after its last event.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: ZygoteProcess,
        plan: Plan,
        hear: Hear,
        ended: Ended,
    ) -> None:
        self.plan = plan
        self.pid = process.pid
        self.ready = False
        self.reason = ""  # why it does not fork
        self.problems: Mapping[str, str] = {}  # of modules to preload
        self.leaving = False
        self.hung = False  # it was killed because it never got ready
        self._loop = loop
        self._wire = Wire(process.socket)
        self._output = OutputPipe(loop, process.output)
        self._hear = hear
        self._ended = ended
        self._places: Mapping[str, float] = {}
        self._patience = None if plan.preload else loop.call_later(READY_SECONDS, self._give_up)
        loop.add_reader(process.socket, self._read)

    def start(
        self, number: int, argv: Sequence[str], environ: Mapping[str, str], output: int
    ) -> None:
        """Start a process; ``output``, ours no longer, becomes its stdout and stderr."""
        words = argv[argv.index("-m") + 2 :] if self.plan.module else ()
        self.send(
            "start", (output,), id=number, argv=list(argv), env=dict(environ),
            module=self.plan.module, words=list(words),
        )  # fmt: skip

    def send(self, command: str, fds: Sequence[int] = (), **content: Any) -> None:
        self._wire.put({"do": command, **content}, fds)
        self._write()

    def kill(self) -> None:
        """Of no use once ranks live: they die with it, but what they started may not."""
        kill(self.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Have it end everything below it, and itself."""
        self.leaving = True
        if not self.ready:
            self.kill()
            return
        with contextlib.suppress(OSError):
            self._wire.socket.shutdown(1)  # SHUT_WR: we still hear of the ends

    def _give_up(self) -> None:
        self.hung = True
        self.kill()

    def serves(self, wanted: Plan) -> bool:
        """Whether it can start ranks so planned.

        Not if packages were installed since it imported its own: a new interpreter may see others.
        """
        return not self.leaving and self.plan == wanted and _modified(self._places) == self._places

    def _write(self) -> None:
        if self._wire.flush():
            self._loop.remove_writer(self._wire.socket)
        else:
            self._loop.add_writer(self._wire.socket, self._write)

    def _read(self) -> None:
        open_ = self._wire.fill()
        while item := self._wire.take():
            event, fds = item
            if event["event"] == "ready":
                self._is_ready(event)
            self._hear(self, event, fds)
        if not open_:
            self._end()

    def _is_ready(self, event: Mapping[str, Any]) -> None:
        self.ready = True
        self._stop_waiting()
        self.reason = event["reason"]
        self.problems = dict(event["problems"])
        self._places = _modified(p for p in event["paths"] if p.endswith("-packages"))

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _end(self) -> None:
        self._stop_waiting()
        self._loop.remove_reader(self._wire.socket)
        self._loop.remove_writer(self._wire.socket)
        self._wire.close()
        code = reap(self.pid)  # it closed the socket by ending
        self._ended(self, code, self._output.close())


def _modified(places: Iterable[str]) -> dict[str, float]:
    """When something was last added to each directory, or removed."""
    times = {}
    for place in places:
        with contextlib.suppress(OSError):
            times[place] = os.stat(place).st_mtime
    return times
