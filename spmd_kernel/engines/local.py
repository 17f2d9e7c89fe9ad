"""Ranks on this machine, each an ordinary process started from the target's kernelspec.

Who ends a rank, and how we know:

* every rank leads a session and process group of its own, and the kernel process's death is its
  death (Linux: ``PR_SET_PDEATHSIG``);
* we are a subreaper: what a rank leaves behind becomes our child, to be killed and reaped;
* a death is seen by pidfd (Linux) and by SIGCHLD (everywhere).  The zombie is kept until its group
  is killed, so that no stranger can have got its number.

All children of the kernel process are the engine's, except those that were there before it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .. import kernelspecs
from ..core.errors import UsageError
from ..core.model import Cause, LaunchRequest, Rank, RankSpec
from ..kernelspecs import Kernelspec
from . import cgroup, processes, rundir
from .base import Endpoint, EngineContext
from .output import OutputPipe
from .processes import Tree
from .rundir import RunDirectory
from .stacks import Done, Stacks
from .unblock import unblock

# Transport ipc has no ports; ipykernel appends the number to the path.
PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
TERM_GRACE = 0.5  # seconds between SIGTERM and SIGKILL
CLOSE_LIMIT = 2.0  # seconds; a process in uninterruptible sleep must not hold up the kernel's exit
# What configures this kernel, not the next one: a notebook that a rank runs decides for itself.
# SPMD_MAX_PROCESSES is inherited on purpose: it is about the machine.
OURS = frozenset({"SPMD_PROCESSES"})
HISTORY = "--HistoryManager.hist_file"


@dataclass(slots=True, eq=False)
class _Launch:
    """The ranks of one request; they share a directory, removed with the last of them."""

    request: LaunchRequest
    kernelspec: Kernelspec
    directory: RunDirectory
    left: int  # how many have not been reported gone


@dataclass(slots=True, eq=False)
class _Process:
    """One rank that runs, or whose end is still to be reported."""

    rank: Rank
    launch: _Launch
    pid: int
    output: OutputPipe
    pidfd: int | None = None
    killed: bool = False  # by us: its SIGKILL is no sign of missing memory
    doomed: set[int] = field(default_factory=set)  # descendants that must go with it
    grace: asyncio.TimerHandle | None = None

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
        self._live: dict[int, _Process] = {}  # by pid
        self._closed = False
        self._stacks = Stacks(context.loop)
        self._child_changed = asyncio.Event()
        processes.become_subreaper()
        self._foreign = frozenset(Tree.now().children.get(os.getpid(), ()))
        self._oom_kills = cgroup.oom_kills()
        rundir.sweep(context.environ)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)

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
            endpoint = self._spawn(self._launch_of(request), spec)
        except (OSError, UsageError) as error:
            self._report_missing(request, spec, error)
        else:
            self._context.events.rank_started(endpoint)
        if self._waiting:
            self._loop.call_soon(self._start_next)

    def _launch_of(self, request: LaunchRequest) -> _Launch:
        launch = self._launches.get(request.generation)
        if launch is None:
            if self._closed:
                raise UsageError("the kernel is shutting down")
            kernelspec = self._find(request.kernel)
            directory = RunDirectory.create(self._context.environ)
            launch = _Launch(request, kernelspec, directory, len(request.ranks))
            self._launches[request.generation] = launch
        return launch

    def _spawn(self, launch: _Launch, spec: RankSpec) -> Endpoint:
        kernelspec, prefix = launch.kernelspec, os.path.join(launch.directory.path, f"r{spec.rank}")
        connection_file = launch.directory.write(
            f"r{spec.rank}.json", self._connection(launch, prefix)
        )
        self._stacks.prepare(spec.rank, prefix)
        arguments = rank_arguments(kernelspec, spec.rank, launch.request.argv)
        environ = rank_environ(kernelspec, self._context.environ, spec)
        output = OutputPipe(self._loop)
        try:
            child = processes.spawn(
                kernelspec.command(connection_file, arguments), environ, output.write_end
            )
        except OSError:
            output.close()
            raise
        child.returncode = 0  # Popen is not to wait for it, nor to complain: we do that
        output.started()
        process = _Process(spec.rank, launch, child.pid, output)
        self._live[child.pid] = process
        self._watch(process)
        addresses = {channel: f"ipc://{prefix}-{port}" for channel, port in PORTS.items()}
        return Endpoint(
            spec.rank, process.generation, child.pid, addresses,
            rank_key(kernelspec, self._context.key), kernelspec.interrupt_mode,
        )  # fmt: skip

    def _connection(self, launch: _Launch, prefix: str) -> bytes:
        """A connection file (Jupyter client documentation, "Connection files")."""
        ports = {f"{channel}_port": port for channel, port in PORTS.items()}
        content = {
            **ports,
            "transport": "ipc",
            "ip": prefix,
            "key": rank_key(launch.kernelspec, self._context.key).decode("ascii"),
            "signature_scheme": "hmac-sha256",
            "kernel_name": launch.kernelspec.name,
        }
        return json.dumps(content).encode()

    def _watch(self, process: _Process) -> None:
        if hasattr(os, "pidfd_open"):
            process.pidfd = os.pidfd_open(process.pid)
            self._loop.add_reader(process.pidfd, self._reap)

    def _report_missing(self, request: LaunchRequest, spec: RankSpec, error: Exception) -> None:
        self._forget(request.generation)
        cause = Cause(missing=_why_missing(request.kernel, error))
        self._context.events.rank_exited(spec.rank, request.generation, cause, "")

    # -- the living

    def pids(self) -> Mapping[Rank, int]:
        """See `Engine.pids`."""
        return {process.rank: process.pid for process in self._live.values()}

    def signal(self, ranks: Sequence[Rank], signum: int) -> None:
        """See `Engine.signal`.

        SIGINT to the group is enough for shell commands too: IPython runs them in a session of
        their own (a pty), but ends them itself when it is interrupted.
        """
        for process in self._of(ranks):
            process.killed |= signum == signal.SIGKILL
            processes.kill_group(process.pid, signum)

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
        tree = Tree.now()
        for process in self._of(ranks):
            process.doomed.update(tree.below(process.pid))

    def stop(self, ranks: Sequence[Rank], *, now: bool) -> None:
        """See `Engine.stop`."""
        self._cancel_waiting(set(ranks))
        stopped = self._of(ranks)
        if now or not stopped:
            self._kill(stopped)
            return
        tree = Tree.now()
        for process in stopped:
            process.doomed.update(tree.below(process.pid))
            processes.kill_group(process.pid, signal.SIGCONT)  # a frozen process hears no SIGTERM
            processes.kill_group(process.pid, signal.SIGTERM)
            if process.grace is None:
                process.grace = self._loop.call_later(TERM_GRACE, self._kill, [process])

    def _cancel_waiting(self, ranks: set[Rank]) -> None:
        """Ranks that were not even spawned are gone at once."""
        cancelled = [item for item in self._waiting if item[1].rank in ranks]
        self._waiting = deque(item for item in self._waiting if item[1].rank not in ranks)
        error = UsageError("it was stopped before it started")
        for request, spec in cancelled:
            self._loop.call_soon(self._report_missing, request, spec, error)

    def _of(self, ranks: Iterable[Rank]) -> list[_Process]:
        wanted = set(ranks)
        return [process for process in self._live.values() if process.rank in wanted]

    def _kill(self, stopped: Sequence[_Process]) -> None:
        """SIGKILL, with every descendant; their ends are then reported by `_reap`."""
        stopped = [process for process in stopped if process.pid in self._live]
        tree = Tree.now() if stopped else None
        for process in stopped:
            process.killed = True
            process.doomed.update(tree.below(process.pid) if tree else ())
            processes.kill_group(process.pid, signal.SIGKILL)
            processes.kill(process.pid, signal.SIGKILL)
            self._kill_ours(process.doomed, tree)

    def _kill_ours(self, pids: Iterable[int], tree: Tree | None) -> None:
        """SIGKILL those that still descend from us: a number seen earlier may be reused."""
        if tree is not None and pids:
            for pid in set(pids).intersection(tree.below(os.getpid(), self._foreign)):
                processes.kill(pid, signal.SIGKILL)

    # -- the dead

    def _reap(self) -> None:
        """Collect whoever has ended, ranks and adopted orphans; called for every hint of a death."""
        self._child_changed.set()
        ended = [process for process in self._live.values() if processes.has_ended(process.pid)]
        if ended:
            self._kill_leftovers(ended)
            out_of_memory = self._memory_ran_out()
            for process in ended:
                self._bury(process, out_of_memory)
        while (pid := processes.ended_child()) and pid not in self._foreign | self._live.keys():
            processes.reap(pid)

    def _kill_leftovers(self, ended: Sequence[_Process]) -> None:
        """A dead rank's group and session; if we stopped it, every descendant."""
        tree = Tree.now()
        leaders = {process.pid for process in ended}
        left = {pid for pid, session in tree.sessions.items() if session in leaders} - leaders
        for process in ended:
            processes.kill_group(process.pid, signal.SIGKILL)
            left |= process.doomed
        self._kill_ours(left, tree)

    def _memory_ran_out(self) -> bool:
        before, self._oom_kills = self._oom_kills, cgroup.oom_kills()
        return self._oom_kills > before

    def _bury(self, process: _Process, out_of_memory: bool) -> None:
        del self._live[process.pid]
        if process.pidfd is not None:
            self._loop.remove_reader(process.pidfd)
            os.close(process.pidfd)
        if process.grace is not None:
            process.grace.cancel()
        code = processes.reap(process.pid)
        stderr = process.output.close()
        self._forget(process.generation)
        cause = _cause(code, out_of_memory and not process.killed)
        self._context.events.rank_exited(process.rank, process.generation, cause, stderr)

    def _forget(self, generation: int) -> None:
        """One rank fewer of a launch; after the last its directory goes."""
        launch = self._launches.get(generation)
        if launch is not None:
            launch.left -= 1
            if launch.left <= 0:
                del self._launches[generation]
                launch.directory.remove()

    # -- the end

    async def close(self) -> None:
        """See `Engine.close`."""
        self._closed = True
        self._stacks.close()
        self._cancel_waiting({spec.rank for _, spec in self._waiting})
        deadline = self._loop.time() + CLOSE_LIMIT
        while self._kill_all() and self._loop.time() < deadline:
            self._child_changed.clear()
            try:
                # The limit is a net: what forks while we look is found in the next round.
                await asyncio.wait_for(self._child_changed.wait(), 0.05)
            except TimeoutError:
                self._reap()
        await asyncio.sleep(0)  # those cancelled above are reported
        self._loop.remove_signal_handler(signal.SIGCHLD)
        for launch in self._launches.values():
            launch.directory.remove()

    def _kill_all(self) -> int:
        """SIGKILL everything below us; how many there still are."""
        self._reap()
        for process in self._live.values():
            process.killed = True
            processes.kill_group(process.pid, signal.SIGKILL)
        below = set(Tree.now().below(os.getpid(), self._foreign)) | self._live.keys()
        for pid in below:
            processes.kill(pid, signal.SIGKILL)
        return len(below)


def rank_key(kernelspec: Kernelspec, key: bytes) -> bytes:
    """Empty for ipykernel, whose messages are then not signed, which for an image takes a millisecond.

    Its sockets are files of a directory that only this user can enter.  Other kernels may not know
    of an empty key.
    """
    return b"" if kernelspec.is_ipykernel else key


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
    return {**environ, "JPY_PARENT_PID": str(os.getpid()), **spec.env}


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
