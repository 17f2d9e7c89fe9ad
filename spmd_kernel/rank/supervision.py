"""The supervisor of ranks: starts, signals, stops, kills and reaps them for the kernel process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .messages import CHUNK, Message, Wire
from .processes import (
    PR_SET_PDEATHSIG,
    Tree,
    ended_child,
    has_ended,
    kill,
    kill_group,
    prctl,
    reap,
    threads,
)

TERM_GRACE = 0.5  # seconds between SIGTERM and SIGKILL


class Child:
    """A rank that runs, or whose end is still to be told."""

    __slots__ = ("deadline", "doomed", "id", "killed", "pid")

    def __init__(self, number: int, pid: int) -> None:
        self.id = number
        self.pid = pid
        self.killed = False  # by us: its SIGKILL is no sign of missing memory
        self.doomed: set[int] = set()  # descendants that must go with it
        self.deadline: float | None = None  # of its grace


class Supervisor:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.reason = "it is a spawning one"
        self.spare: Callable[[], None] | None = None  # for when the first ranks are under way
        self._children: dict[int, Child] = {}  # by id
        self._directories: set[str] = set()
        self._pid = os.getpid()
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A whole container may get SIGTERM, for example: we are the last to leave.
        self._inherited = {
            s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGHUP)
        }
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def send(self, event: str, fds: Sequence[int] = (), **content: Any) -> None:
        self.wire.put({"event": event, **content}, fds)
        self.wire.flush()

    def serve(self) -> Message | None:
        """Until the kernel process hangs up.  In a forked rank it returns: what that is to be."""
        poll = select.poll()
        poll.register(self.wire.socket, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll(self._patience())}
            spare = self.spare
            if spare is not None and not ready and self._children:
                self.spare = None
                spare()
            if self._wake.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(CHUNK)
            if self.wire.socket.fileno() in ready and not self.wire.fill():
                self._end()
                return None
            while True:
                item = self.wire.take()
                if item is None:
                    break
                rank = self._obey(*item)
                if rank is not None:
                    return rank
            self._bury_the_dead()
            self._lose_patience()

    def _obey(self, message: Message, fds: Sequence[int]) -> Message | None:
        """A command; in a forked rank it is returned."""
        command = message["do"]
        if command == "start":
            return self._start(message, fds[0])
        if command == "own":
            self._directories.add(message["directory"])
            return None
        children = [self._children[i] for i in message["ids"] if i in self._children]
        if command == "signal":
            for child in children:
                child.killed |= message["signum"] == signal.SIGKILL
                kill_group(child.pid, message["signum"])
        elif command == "expect_end":
            self._doom(children, Tree())
        elif command == "stop":
            self._stop(children, message["now"])
        return None

    # -- start

    def _start(self, message: Message, output: int) -> Message | None:
        forks = bool(message["module"]) and not self.reason and threads() == 1
        try:
            pid = self._fork(output) if forks else self._spawn(message, output)
        except OSError as error:
            self.send("failed", id=message["id"], errno=error.errno)
            return None
        finally:
            os.close(output)
        if pid == 0:
            return message
        self._children[message["id"]] = Child(message["id"], pid)
        pidfds = [os.pidfd_open(pid)] if hasattr(os, "pidfd_open") else []
        how = "fork" if forks else "spawn"
        self.send("started", pidfds, id=message["id"], pid=pid, how=how)
        return None

    def _fork(self, output: int) -> int:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # else it would be said twice
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jax warns of threads, and has none yet
            pid = os.fork()
        if pid == 0:
            self._enter(output)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return pid

    def _spawn(self, message: Message, output: int) -> int:
        """fork and exec. Raises `OSError` if there is no such program."""
        told, tell = os.pipe()  # closed by a successful exec
        pid = os.fork()
        if pid == 0:
            try:
                self._enter(output)
                for signum in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(signum, signal.SIG_DFL)
                env = {**message["env"], "JPY_PARENT_PID": str(self._pid)}
                os.execvpe(message["argv"][0], message["argv"], env)
            except OSError as error:
                os.write(tell, str(error.errno).encode())
            finally:
                os._exit(127)
        os.close(tell)
        with open(told, "rb") as pipe:
            failure = pipe.read()
        if failure:
            reap(pid)
            raise OSError(int(failure), "exec")
        return pid

    def _enter(self, output: int) -> None:
        """In the child: a session of its own, nothing of ours, and our death is its death."""
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:  # it died before it could have killed us
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for signum, handler in self._inherited.items():
            signal.signal(signum, handler)
        self.wire.close()
        self._wake.close()
        self._waker.close()
        for fd in (1, 2):
            os.dup2(output, fd)

    # -- stop

    def _doom(self, children: Iterable[Child], tree: Tree) -> None:
        """Once a rank is gone, nothing tells which orphans were its own."""
        for child in children:
            child.doomed.update(tree.below(child.pid))

    def _stop(self, children: Sequence[Child], now: bool) -> None:
        if now:
            self._kill(children)
            return
        self._doom(children, Tree())
        for child in children:
            kill_group(child.pid, signal.SIGCONT)  # a frozen process hears no SIGTERM
            kill_group(child.pid, signal.SIGTERM)
            if child.deadline is None:
                child.deadline = time.monotonic() + TERM_GRACE

    def _kill(self, children: Sequence[Child]) -> None:
        """SIGKILL, with every descendant."""
        if not children:
            return
        tree = Tree()
        self._doom(children, tree)
        for child in children:
            child.killed, child.deadline = True, None
            kill_group(child.pid, signal.SIGKILL)
            kill(child.pid, signal.SIGKILL)
            self._kill_ours(child.doomed, tree)

    def _kill_ours(self, pids: Iterable[int], tree: Tree) -> None:
        """SIGKILL those that still descend from us: a number seen earlier may be reused."""
        for pid in set(pids).intersection(tree.below(self._pid)):
            kill(pid, signal.SIGKILL)

    def _patience(self) -> float | None:
        """Milliseconds until the first grace is over; none if there is other work."""
        if self.spare is not None and self._children:
            return 0.0
        deadlines = [c.deadline for c in self._children.values() if c.deadline is not None]
        return max(0.0, min(deadlines) - time.monotonic()) * 1000 + 1 if deadlines else None

    def _lose_patience(self) -> None:
        now = time.monotonic()
        self._kill([c for c in self._children.values() if c.deadline and c.deadline <= now])

    # -- death

    def _bury_the_dead(self) -> None:
        """Ranks that have ended, and orphans that became our children."""
        ended = [child for child in self._children.values() if has_ended(child.pid)]
        if ended:
            self._kill_leftovers(ended)
            for child in ended:
                del self._children[child.id]
                self.send("exited", id=child.id, code=reap(child.pid), killed=child.killed)
        ranks = {child.pid for child in self._children.values()}
        while True:
            pid = ended_child()
            if pid is None or pid in ranks:
                return
            reap(pid)

    def _kill_leftovers(self, ended: Sequence[Child]) -> None:
        """A dead rank's group and session; if we stopped it, every descendant."""
        tree = Tree()
        leaders = {child.pid for child in ended}
        left = {pid for pid, session in tree.sessions.items() if session in leaders} - leaders
        for child in ended:
            kill_group(child.pid, signal.SIGKILL)
            left |= child.doomed
        self._kill_ours(left, tree)

    def _end(self) -> None:
        """The kernel process is gone: so is everything below us, however often it forks."""
        while True:
            ranks = [child.pid for child in self._children.values()]
            for child in self._children.values():
                child.killed = True
            for pid in {*ranks, *Tree().below(self._pid)}:
                kill(pid, signal.SIGKILL)
            self._bury_the_dead()
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                break
        for directory in self._directories:
            remove(directory)


def remove(directory: str) -> None:
    """A flat directory."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
        os.rmdir(directory)
