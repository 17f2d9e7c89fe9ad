"""Run silently in every Python rank once it is ready; the rank's own cells come after.

Executed by path in a throw-away namespace: the rank's environment need not have our package, may
have an older Python than ours, and need not be ipykernel's.  Each step is for itself, and none may
harm a kernel for which it makes no sense.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

FLUSH_INTERVAL = 0.05  # seconds; ipykernel's 0.2 is visible when N ranks print in turn
WORLD_SIZE = os.environ.get("WORLD_SIZE", "1")
MARK = "\x1f"  # after a newline: the next line is of the same `write` call


class PostImport:
    """A finder on ``sys.meta_path`` that calls a function with a module just imported.

    It finds nothing itself: it asks the other finders, and wraps ``exec_module`` of the loader that
    they give.
    """

    def __init__(self) -> None:
        self.actions: dict[str, Callable[[Any], None]] = {}

    def when_imported(self, name: str, action: Callable[[Any], None]) -> None:
        if name in sys.modules:
            action(sys.modules[name])
        else:
            self.actions[name] = action

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.actions:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                self._wrap(name, spec.loader)
                return spec
        return None

    def _wrap(self, name: str, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: Any) -> None:
            execute(module)
            action = self.actions.pop(name, None)
            if action is not None:
                with contextlib.suppress(AttributeError, ValueError, OSError):
                    action(module)

        with contextlib.suppress(AttributeError):  # a loader that takes no attributes: no action
            loader.exec_module = exec_module


def warn_of_mpi(_: Any) -> None:
    # The frames of the import machinery do not count: 3 is the line that imports mpi4py.
    warnings.warn(
        f"MPI.COMM_WORLD has size 1 in each of the {WORLD_SIZE} ranks: no mpiexec started them. "
        "hint: use torch.distributed or jax.distributed between them.",
        RuntimeWarning,
        stacklevel=3,
    )


def register_jax(clusters: Any) -> None:
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jax_cluster.py")
    namespace: dict[str, Any] = {"__name__": "spmd_kernel.rank.jax_cluster", "__file__": here}
    with open(here, "rb") as file:
        exec(compile(file.read(), here, "exec"), namespace)
    namespace["register"](clusters)


def tune_streams() -> None:
    """ipykernel: flush sooner, and let IOPub drop nothing however far its reader is behind."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "flush_interval") and WORLD_SIZE not in ("", "1"):
            stream.flush_interval = FLUSH_INTERVAL
    thread: Any = getattr(sys.stdout, "pub_thread", None)
    if hasattr(thread, "schedule"):
        thread.schedule(lambda: lift_high_water_mark(thread.socket))  # sockets are not thread-safe


def mark_writes() -> None:
    """ipykernel: let the text that is sent tell which lines came in one ``write`` call.

    The place is the buffer below ``OutStream.write``: what wraps or replaces ``write`` (IPython
    does, around each cell) or reads the text back in this process never meets a mark.
    """
    iostream: Any = sys.modules.get("ipykernel.iostream")
    if getattr(iostream, "StringIO", None) is not io.StringIO:
        return
    # Text of C code and of child processes comes through a pipe in pieces that mean nothing.
    pipes = [getattr(s, "watch_fd_thread", None) for s in (sys.stdout, sys.stderr)]

    class Buffer(io.StringIO):
        def write(self, text: str) -> int:
            if text.find("\n", 0, -1) >= 0 or MARK in text:
                text = text.replace(MARK, MARK + MARK)  # the program's own
                if threading.current_thread() not in pipes:
                    text = marked(text)
            return super().write(text)

    iostream.StringIO = Buffer
    for stream in (sys.stdout, sys.stderr):
        # Older ones have a single buffer, made anew at each flush.
        buffers: Any = getattr(stream, "_buffers", None)
        if hasattr(buffers, "default_factory"):
            buffers.default_factory = Buffer


def marked(text: str) -> str:
    """A mark after each inner newline, but for ``\\r\\n``: so come lines of a ``!command``."""
    head, last = text[:-1], text[-1:]
    return head.replace("\n", "\n" + MARK).replace("\r\n" + MARK, "\r\n") + last


def lift_high_water_mark(socket: Any) -> None:
    # Changes the connections that exist. Later ones get what the socket was bound with: so this
    # must run once the kernel's front has connected.
    with contextlib.suppress(Exception):
        socket.set_hwm(0)


def report_crashes() -> None:
    """The stack of a SIGSEGV goes where it outlives the process, not into ipykernel's own pipe."""
    stderr = getattr(sys.stderr, "_original_stdstream_copy", None)
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        faulthandler.enable(file=stderr if isinstance(stderr, int) else 2, all_threads=False)


def main() -> None:
    hooks = PostImport()
    hooks.when_imported("jax._src.clusters", register_jax)
    tune_streams()
    if WORLD_SIZE not in ("", "1"):
        hooks.when_imported("mpi4py", warn_of_mpi)
        mark_writes()
    sys.meta_path.insert(0, hooks)
    report_crashes()


main()
