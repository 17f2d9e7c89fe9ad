"""Which zygote starts which ranks: one for each way to start them, the idle ones are let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from . import early
from .early import ZygoteProcess
from .plan import Plan
from .supervisor import Ended, Hear, Supervisor

Done = Callable[[str], None]


class Supervisors:
    """``hear`` and ``ended`` as in `Supervisor`; ``is_used``: it has ranks, or will have."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        hear: Hear,
        ended: Ended,
        is_used: Callable[[Supervisor], bool],
        guess: ZygoteProcess | None,
    ) -> None:
        self._loop = loop
        self._hear = hear
        self._ended = ended
        self._is_used = is_used
        self._all: list[Supervisor] = []
        self._unfit: set[tuple[str, ...]] = set()  # interpreters that do not work as a zygote
        self._awaited: list[tuple[Supervisor, Done]] = []  # who hears of a preload
        if guess is not None:
            self._adopt(guess, early.LAUNCHER)

    def __iter__(self) -> Iterator[Supervisor]:
        return iter(tuple(self._all))

    def __bool__(self) -> bool:
        return bool(self._all)

    def of(self, wanted: Plan) -> Supervisor:
        """The one that starts ranks as planned. Raises `OSError` if not even a spawning one starts."""
        if wanted.words in self._unfit:
            wanted = Plan()
        for supervisor in self._all:
            if supervisor.serves(wanted):
                return supervisor
        if not wanted.module:
            return self._adopt(ZygoteProcess.spawning(), "")
        environ = dict(wanted.environ)
        try:
            process = ZygoteProcess(wanted.words, environ, wanted.module, wanted.preload)
        except OSError:  # to spawn from it tells what is wrong
            self._unfit.add(wanted.words)
            return self.of(Plan())
        return self._adopt(process, wanted.module)

    def _adopt(self, process: ZygoteProcess, module: str) -> Supervisor:
        made = Plan()
        if module:
            environ = tuple(sorted(process.environ.items()))
            made = Plan(process.words, module, environ, process.preload)
        supervisor = Supervisor(self._loop, process, made, self._heard, self._has_ended)
        self._all.append(supervisor)
        return supervisor

    def retire(self, wanted: Plan) -> None:
        """Those that have no rank go, except the one that is wanted."""
        for supervisor in self._all:
            if not self._is_used(supervisor) and not supervisor.serves(wanted):
                supervisor.hang_up()

    def preload(self, wanted: Plan, done: Done) -> None:
        """Have the modules imported; ``done`` hears why that failed, or "". Raises `OSError`."""
        supervisor = self.of(wanted)
        if not supervisor.plan.module:
            done(wanted.why or f"{wanted.words[0]} does not work as a fork server")
        elif supervisor.ready:
            done(_problem(supervisor))
        else:
            self._awaited.append((supervisor, done))

    def _heard(self, supervisor: Supervisor, event: dict[str, Any], fds: list[int]) -> None:
        if event["event"] != "ready":
            self._hear(supervisor, event, fds)
            return
        problem = _problem(supervisor)
        self._tell(supervisor, problem)
        if problem and supervisor.plan.preload and not self._is_used(supervisor):
            supervisor.hang_up()  # what is wrong may be mended before the next attempt

    def _has_ended(self, supervisor: Supervisor, code: int, words: str) -> None:
        self._all.remove(supervisor)
        if not supervisor.ready and (code >= 0 or supervisor.hung):
            self._unfit.add(supervisor.plan.words)
        last = words.splitlines()[-1:] or ["it was killed"]
        self._tell(supervisor, f"the process that imports them is gone: {last[0]}")
        self._ended(supervisor, code, words)

    def _tell(self, supervisor: Supervisor, problem: str) -> None:
        told = [done for awaited, done in self._awaited if awaited is supervisor]
        self._awaited = [item for item in self._awaited if item[0] is not supervisor]
        for done in told:
            done(problem)


def _problem(supervisor: Supervisor) -> str:
    for module, error in supervisor.problems.items():
        return f"{module} cannot be imported: {error}"
    return supervisor.reason
