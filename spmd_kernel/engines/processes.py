"""Processes of this machine: starting one that dies with us, finding what descends from one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

LINUX = sys.platform.startswith("linux")
# prctl(2)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """From now on orphaned descendants become our children, instead of init's (Linux)."""
    if LINUX:
        _prctl()(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spawn(argv: Sequence[str], environ: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own; ``output`` becomes its stdout and stderr.

    It inherits no other file descriptor, no blocked signal, and on Linux is killed when the thread
    that called us ends: call from the main thread only.  Raises `OSError`.
    """
    with warnings.catch_warnings():
        # Python ≥ 3.12 warns of preexec_fn when there are threads (zmq's): ours takes no lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            argv,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            close_fds=True,
            start_new_session=True,
            preexec_fn=_in_child(os.getpid()),
        )


def _in_child(parent: int) -> Callable[[], None]:
    prctl = _prctl() if LINUX else None

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it died before it could have killed us
                os._exit(1)

    return prepare


def _prctl() -> Callable[..., int]:
    function: Callable[..., int] = ctypes.CDLL(None).prctl
    return function


@dataclass(frozen=True, slots=True)
class Tree:
    """The processes of the machine at one moment, from one pass over ``/proc`` (proc(5), stat).

    Not ``/proc/PID/task/TID/children``: many kernels are built without it.  Empty where there is
    no ``/proc``.
    """

    children: Mapping[int, Sequence[int]]
    sessions: Mapping[int, int]

    @classmethod
    def now(cls) -> Tree:
        children: dict[int, list[int]] = {}
        sessions: dict[int, int] = {}
        for pid, parent, session in _stats():
            children.setdefault(parent, []).append(pid)
            sessions[pid] = session
        return cls(children, sessions)

    def below(self, pid: int, without: Iterable[int] = ()) -> list[int]:
        """Every descendant of a process, nearest first; ``without``: not these nor theirs."""
        found = [child for child in self.children.get(pid, ()) if child not in without]
        for child in found:  # grows while we walk
            found.extend(self.children.get(child, ()))
        return found


def _stats() -> Iterable[tuple[int, int, int]]:
    """(pid, parent, session) of every process."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                    yield int(name), int(fields[1]), int(fields[3])


def kill(pid: int, signum: int) -> None:
    """Signal a process; one that is gone or somebody else's is left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def kill_group(pid: int, signum: int) -> None:
    """Signal the process group that ``pid`` leads, if there is any of it left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)


def has_ended(pid: int) -> bool:
    """Whether a child is a zombie; it stays one, so that its pid and group remain its own."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def ended_child() -> int | None:
    """The pid of some child that is a zombie, if any."""
    try:
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return info.si_pid if info else None


def reap(pid: int) -> int:
    """Collect a zombie child: its exit code, or minus the signal that ended it."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0  # somebody else did; nothing more can be known
