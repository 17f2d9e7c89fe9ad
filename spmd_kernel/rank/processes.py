"""Processes of this machine: what descends from one, how they are killed and collected."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable

LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument; nothing where there is no such thing."""
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Tree:
    """The processes of the machine at one moment, from one pass over ``/proc`` (proc(5), stat).

    Not ``/proc/PID/task/TID/children``: many kernels are built without it.  Empty where there is
    no ``/proc``.
    """

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        self.sessions: dict[int, int] = {}
        for pid, parent, session in _stats():
            self._children.setdefault(parent, []).append(pid)
            self.sessions[pid] = session

    def below(self, pid: int, without: Iterable[int] = ()) -> list[int]:
        """Every descendant of a process, nearest first; ``without``: not these nor theirs."""
        found = [child for child in self._children.get(pid, ()) if child not in without]
        for child in found:  # grows while we walk
            found.extend(c for c in self._children.get(child, ()) if c not in without)
        return found


def _stats() -> Iterable[tuple[int, int, int]]:
    """(pid, parent, session) of every process."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError), open("/proc/" + name + "/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                    yield int(name), int(fields[1]), int(fields[3])


def kill(pid: int, signum: int) -> None:
    """Signal a process; one that is gone or somebody else's is left alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def kill_main_thread(pid: int, signum: int) -> None:
    """Signal the main thread of a process; `kill` means any of its threads."""
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)  # Linux: glibc 2.30
    if tgkill is None:
        kill(pid, signum)
    else:
        tgkill(pid, pid, signum)


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
    """Collect a child: its exit code, or minus the signal that ended it."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0  # somebody else did; nothing more can be known


def threads() -> int:
    """How many threads we have, those of C libraries too."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 2  # unknown
