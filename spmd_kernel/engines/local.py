"""Ranks on this machine, each a process started from the target's kernelspec.

Who ends a rank, and how we know:

* a supervisor (`rank.zygote`) forks or spawns the ranks, signals, stops and reaps them and tells us;
  it is a subreaper: what a rank leaves behind becomes its child;
* it ends everything below it when we are gone, however that came;
* if it is gone, its ranks die of that (Linux: ``PR_SET_PDEATHSIG``); what they had started becomes
  our child, for we are a subreaper too, and is killed.

All children of the kernel process are the engine's, except those that were there before it.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import kernelspecs
from ..core.errors import UsageError
from ..core.model import Cause, LaunchRequest, Rank, RankSpec
from ..kernelspecs import Kernelspec
from ..rank.processes import (
    PR_SET_CHILD_SUBREAPER,
    Tree,
    ended_child,
    kill,
    kill_group,
    prctl,
    reap,
)
from . import cgroup, early, rundir
from .base import Endpoint, EngineContext
from .output import OutputPipe
from .place import Place
from .plan import Plan, plan
from .rundir import RunDirectory
from .stacks import Done, Stacks
from .supervisor import Supervisor
from .supervisors import Supervisors
from .unblock import unblock
from .words import last_words

CLOSE_LIMIT = 2.0  # seconds; a process in uninterruptible sleep must not hold up the kernel's exit
# What configures this kernel, not the next one: a notebook that a rank runs decides for itself.
# SPMD_MAX_PROCESSES is inherited on purpose: it is about the machine.
OURS = frozenset({"SPMD_PROCESSES"})
HISTORY = "--HistoryManager.hist_file"
STOPPED = "it was stopped before it started"


@dataclass(slots=True, eq=False)
class _Launch:
    """The ranks of one request; they share a directory, removed with the last of them."""

    request: LaunchRequest
    kernelspec: Kernelspec
    plan: Plan
    directory: RunDirectory
    left: int  # how many have not been reported gone
    places: dict[Rank, Place] = field(default_factory=dict)  # of those


@dataclass(slots=True, eq=False)
class _Process:
    """One rank that was asked for, or runs, or whose end is still to be reported."""

    spec: RankSpec
    launch: _Launch
    supervisor: Supervisor
    output: OutputPipe
    endpoint: Endpoint | None = None  # once it runs
    pidfd: int | None = None

    @property
    def rank(self) -> Rank:
        return self.spec.rank

    @property
    def generation(self) -> int:
        return self.launch.request.generation


class LocalEngine:
    """`Engine` of the machine we run on.  Create and use it in the main thread."""

    name = "local"

    def __init__(
        self,
        context: EngineContext,
        find_kernelspec: Callable[[str], Kernelspec] = kernelspecs.find,
    ):
        self._context = context
        self._loop = context.loop
        self._find = find_kernelspec
        self._waiting: deque[tuple[LaunchRequest, RankSpec]] = deque()
        self._launches: dict[int, _Launch] = {}  # by generation
        self._processes: dict[int, _Process] = {}  # by the number that the supervisor knows
        self._numbers = 0
        self._closed = False
        self._stacks = Stacks(context.loop)
        self._changed = asyncio.Event()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        guess = early.taken()
        children = set(Tree().below(os.getpid()))
        self._foreign = frozenset(children - {guess.pid} if guess else children)
        self._supervisors = Supervisors(
            self._loop, self._hear, self._supervisor_ended, self._is_used, guess
        )
        self._oom_kills = cgroup.oom_kills()
        rundir.sweep(context.environ)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap_orphans)

    # -- start

    def start(self, request: LaunchRequest) -> None:
        """See `Engine.start`.  One process per turn of the loop, which so stays responsive."""
        self._waiting.extend((request, spec) for spec in request.ranks)
        self._loop.call_soon(self._start_next)

    def _start_next(self) -> None:
        if not self._waiting:
            return
        request, spec = self._waiting.popleft()
        try:
            launch = self._launch_of(request)
            self._files(launch, spec.rank)
            self._spawn(launch, spec, self._supervisors.of(launch.plan))
        except (OSError, UsageError) as error:
            self._report_missing(request, spec, error)
        if self._waiting:
            self._loop.call_soon(self._start_next)

    def _launch_of(self, request: LaunchRequest) -> _Launch:
        launch = self._launches.get(request.generation)
        if launch is None:
            if self._closed:
                raise UsageError("the kernel is shutting down")
            kernelspec = self._find(request.kernel)
            how = plan(kernelspec, self._context.environ, request.ranks, request.preload)
            directory = RunDirectory.create(self._context.environ)
            launch = _Launch(request, kernelspec, how, directory, len(request.ranks))
            self._launches[request.generation] = launch
            self._supervisors.retire(how)
        return launch

    def _spawn(self, launch: _Launch, spec: RankSpec, supervisor: Supervisor) -> None:
        connection_file = os.path.join(launch.directory.path, f"r{spec.rank}.json")
        arguments = rank_arguments(launch.kernelspec, spec.rank, launch.request.argv)
        output = OutputPipe(self._loop)
        self._numbers += 1
        self._processes[self._numbers] = _Process(spec, launch, supervisor, output)
        supervisor.send("own", directory=launch.directory.path)
        supervisor.start(
            self._numbers,
            launch.kernelspec.command(connection_file, arguments),
            rank_environ(launch.kernelspec, self._context.environ, spec),
            output.handed_over(),
        )

    def _files(self, launch: _Launch, rank: Rank) -> None:
        """What a rank finds in the run directory when it starts."""
        prefix = os.path.join(launch.directory.path, f"r{rank}")
        place = launch.places[rank] = Place.of(launch.kernelspec, prefix)
        key = rank_key(launch.kernelspec, self._context.key)
        launch.directory.write(f"r{rank}.json", place.connection(launch.kernelspec.name, key))
        self._stacks.prepare(rank, prefix)

    def _report_missing(self, request: LaunchRequest, spec: RankSpec, error: Exception) -> None:
        self._forget(request.generation, spec.rank)
        cause = Cause(missing=_why_missing(request.kernel, error))
        self._context.events.rank_exited(spec.rank, request.generation, cause, "")

    # -- supervisors

    def preload(self, request: LaunchRequest, done: Callable[[str], None]) -> None:
        """See `Engine.preload`."""
        try:
            kernelspec = self._find(request.kernel)
            environ = self._context.environ
            self._supervisors.preload(
                plan(kernelspec, environ, request.ranks, request.preload), done
            )
        except (OSError, UsageError) as error:
            done(_why_missing(request.kernel, error))

    def _is_used(self, supervisor: Supervisor) -> bool:
        return any(process.supervisor is supervisor for process in self._processes.values())

    def _hear(self, supervisor: Supervisor, event: Mapping[str, Any], fds: Sequence[int]) -> None:
        process = self._processes.get(event["id"])
        if process is None:  # given up meanwhile
            for fd in fds:
                os.close(fd)
        elif event["event"] == "started":
            self._started(process, event["pid"], event["how"], fds)
        elif event["event"] == "failed":
            self._bury(event["id"], None)
            program = process.launch.kernelspec.command("")[0]
            error = OSError(event["errno"], os.strerror(event["errno"]), program)
            self._report_missing(process.launch.request, process.spec, error)
        elif event["event"] == "exited":
            ran_out = self._memory_ran_out() and not event["killed"]
            self._bury(event["id"], _cause(event["code"], ran_out))

    def _started(self, process: _Process, pid: int, how: str, fds: Sequence[int]) -> None:
        process.pidfd = fds[0] if fds else None
        process.endpoint = Endpoint(
            process.rank,
            process.generation,
            pid,
            process.launch.places[process.rank].addresses,
            rank_key(process.launch.kernelspec, self._context.key),
            process.launch.kernelspec.interrupt_mode,
            "fork" if how == "fork" else "spawn",
        )
        self._context.events.rank_started(process.endpoint)

    def _supervisor_ended(self, supervisor: Supervisor, code: int, words: str) -> None:
        lost = {n: p for n, p in self._processes.items() if p.supervisor is supervisor}
        ended = f"{_cause(code, self._memory_ran_out())}"
        if code > 0 and words:
            ended += f": {words.splitlines()[-1]}"
        self._kill_orphans()
        for number, process in lost.items():
            if process.endpoint is None and supervisor.plan.module and not self._closed:
                self._start_without_zygote(number, process)
            else:
                self._bury(number, Cause(supervisor=ended))
        self._changed.set()

    def _start_without_zygote(self, number: int, process: _Process) -> None:
        """The one that should have forked it did not come up, or was killed while it did."""
        del self._processes[number]
        process.output.close()
        try:
            self._spawn(process.launch, process.spec, self._supervisors.of(Plan()))
        except OSError as error:
            self._report_missing(process.launch.request, process.spec, error)

    # -- the living

    def pids(self) -> Mapping[Rank, int]:
        """See `Engine.pids`."""
        return {p.rank: p.endpoint.pid for p in self._processes.values() if p.endpoint is not None}

    def pidfds(self) -> Mapping[Rank, int]:
        """Handles of the live processes that no other process can get; they stay the engine's."""
        return {p.rank: p.pidfd for p in self._processes.values() if p.pidfd is not None}

    def signal(self, ranks: Sequence[Rank], signum: int) -> None:
        """See `Engine.signal`.

        SIGINT to the group is enough for shell commands too: IPython runs them in a session of
        their own (a pty), but ends them itself when it is interrupted.  Done at once, not by the
        supervisor, so that what the caller sends to the rank next comes after it.
        """
        if signum == signal.SIGKILL:
            self._command("signal", ranks, signum=int(signum))  # it has to know whose doing that is
            return
        for number in self._numbers_of(ranks):
            process = self._processes[number]
            if process.endpoint is not None and not _is_over(process.pidfd):
                kill_group(process.endpoint.pid, signum)

    def dump(self, ranks: Sequence[Rank], done: Done) -> None:
        """See `Engine.dump`."""
        self._stacks.dump({rank: pid for rank, pid in self.pids().items() if rank in ranks}, done)

    def unblock(
        self, ranks: Sequence[Rank], ports: Sequence[int], *, store: bool
    ) -> tuple[dict[Rank, int], dict[Rank, tuple[tuple[int, int], ...]]]:
        """See `Engine.unblock`."""
        return unblock(self.pids(), ranks, ports, store=store)

    def expect_end(self, ranks: Sequence[Rank]) -> None:
        """See `Engine.expect_end`.  Once a rank is gone, nothing tells which orphans were its own."""
        self._command("expect_end", ranks)

    def stop(self, ranks: Sequence[Rank], *, now: bool) -> None:
        """See `Engine.stop`."""
        self._cancel_waiting(set(ranks))
        self._command("stop", ranks, now=now)
        for number in self._numbers_of(ranks):  # those asked of a zygote that still imports
            process = self._processes[number]
            if not process.supervisor.ready:
                del self._processes[number]
                process.output.close()
                error = UsageError(STOPPED)
                self._loop.call_soon(
                    self._report_missing, process.launch.request, process.spec, error
                )

    def _command(self, command: str, ranks: Sequence[Rank], **content: Any) -> None:
        by_supervisor: dict[Supervisor, list[int]] = {}
        for number in self._numbers_of(ranks):
            by_supervisor.setdefault(self._processes[number].supervisor, []).append(number)
        for supervisor, numbers in by_supervisor.items():
            supervisor.send(command, ids=numbers, **content)

    def _numbers_of(self, ranks: Iterable[Rank]) -> list[int]:
        wanted = set(ranks)
        return [number for number, process in self._processes.items() if process.rank in wanted]

    def _cancel_waiting(self, ranks: set[Rank]) -> None:
        """Ranks that were not even spawned are gone at once."""
        cancelled = [item for item in self._waiting if item[1].rank in ranks]
        self._waiting = deque(item for item in self._waiting if item[1].rank not in ranks)
        for request, spec in cancelled:
            self._loop.call_soon(self._report_missing, request, spec, UsageError(STOPPED))

    # -- the dead

    def _bury(self, number: int, cause: Cause | None) -> None:
        """``cause``: None if that is reported otherwise."""
        process = self._processes.pop(number)
        if process.pidfd is not None:
            os.close(process.pidfd)
        stderr = process.output.close()
        if cause is not None:
            words = last_words(os.path.join(process.launch.directory.path, f"r{process.rank}"))
            self._forget(process.generation, process.rank)
            self._context.events.rank_exited(process.rank, process.generation, cause, stderr, words)

    def _memory_ran_out(self) -> bool:
        before, self._oom_kills = self._oom_kills, cgroup.oom_kills()
        return self._oom_kills > before

    def _forget(self, generation: int, rank: Rank) -> None:
        """One rank fewer of a launch; after the last its directory goes."""
        launch = self._launches.get(generation)
        if launch is not None:
            if place := launch.places.pop(rank, None):
                place.close()
            launch.left -= 1
            if launch.left <= 0:
                del self._launches[generation]
                launch.directory.remove()

    def _orphans(self) -> list[int]:
        """What a supervisor that is gone has left to us."""
        return Tree().below(
            os.getpid(), {*self._foreign, *(supervisor.pid for supervisor in self._supervisors)}
        )

    def _kill_orphans(self) -> None:
        for pid in self._orphans():
            kill(pid, signal.SIGKILL)

    def _reap_orphans(self) -> None:
        """Some child has ended: of supervisors `Supervisor` knows better."""
        self._changed.set()
        others = {supervisor.pid for supervisor in self._supervisors} | self._foreign
        reaped = False
        while (pid := ended_child()) and pid not in others:
            reap(pid)
            reaped = True
        if reaped:
            self._kill_orphans()  # what it had started is ours now

    # -- the end

    async def close(self) -> None:
        """See `Engine.close`."""
        self._closed = True
        self._stacks.close()
        self._cancel_waiting({spec.rank for _, spec in self._waiting})
        for supervisor in self._supervisors:
            supervisor.hang_up()
        deadline = self._loop.time() + CLOSE_LIMIT
        while (self._supervisors or self._orphans()) and self._loop.time() < deadline:
            self._changed.clear()
            try:
                # The limit is a net: what forks while we look is found in the next round.
                await asyncio.wait_for(self._changed.wait(), 0.05)
            except TimeoutError:
                self._kill_orphans()
        for pid in Tree().below(os.getpid(), self._foreign):
            kill(pid, signal.SIGKILL)
        await asyncio.sleep(0)  # those cancelled above are reported
        self._loop.remove_signal_handler(signal.SIGCHLD)
        for launch in self._launches.values():
            for place in launch.places.values():
                place.close()
            launch.directory.remove()


def rank_key(kernelspec: Kernelspec, key: bytes) -> bytes:
    """Empty for ipykernel, whose messages are then not signed, which for an image takes a millisecond.

    Its sockets are files of a directory that only this user can enter.  Other kernels may not know
    of an empty key.
    """
    return b"" if kernelspec.is_ipykernel else key


def _is_over(pidfd: int | None) -> bool:
    """Whether a process has ended, and its number may soon be another's."""
    if pidfd is None:
        return False
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def rank_arguments(kernelspec: Kernelspec, rank: Rank, argv: Sequence[str]) -> list[str]:
    """What follows the kernelspec's own argv.  Only rank 0 writes the user's history."""
    if rank == 0 or not kernelspec.is_ipykernel:
        return list(argv)
    return [word for word in argv if not word.startswith(HISTORY)] + [f"{HISTORY}=:memory:"]


def rank_environ(
    kernelspec: Kernelspec, inherited: Mapping[str, str], spec: RankSpec
) -> dict[str, str]:
    """The whole environment of a rank: inherited, kernelspec's, the rank's; the later wins."""
    environ = kernelspec.environment(inherited)
    for name in OURS | spec.unset:
        environ.pop(name, None)
    return {**environ, **spec.env}  # and JPY_PARENT_PID, which the supervisor sets


def _cause(code: int, out_of_memory: bool) -> Cause:
    if code >= 0:
        return Cause(code=code)
    return Cause(signal=-code, out_of_memory=out_of_memory and -code == signal.SIGKILL)


def _why_missing(kernel: str, error: Exception) -> str:
    if isinstance(error, UsageError):
        return f"{error} ({error.hint})" if error.hint else str(error)
    what = f"kernelspec {kernel!r} could not be started: {error}"
    if isinstance(error, FileNotFoundError):
        return f"{what} (is its environment still there? `jupyter kernelspec list` shows the file)"
    return what
