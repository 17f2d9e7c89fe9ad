"""Fork server and supervisor of the ranks: the one process between the kernel process and them.

Executed by path, by the interpreter of the ranks' kernelspec, which need not have our package and
may be older than ours: the standard library only, and no thread, loop or zmq context before a fork.

    python [-X …] zygote.py FD [MODULE [PRELOAD …]]

``FD`` is a stream socket to the kernel process (`messages`).  With ``MODULE`` (what ``python -m``
runs in a rank) ranks are forked from this process, which has imported ipykernel and ``PRELOAD``;
without, and wherever that is not possible, they are spawned.  Either way they end with us, and we
end, with everything below us, when the kernel process hangs up or dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

PARENT = os.getppid()
NAME = "_spmd_kernel_zygote"  # our folder, as a package: not to be mistaken for anybody's
_package = types.ModuleType(NAME)
_package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
sys.modules[NAME] = _package
messages: Any = import_module(f"{NAME}.messages")
processes: Any = import_module(f"{NAME}.processes")
supervision: Any = import_module(f"{NAME}.supervision")

# What a kernel imports while it starts.
WARM = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.zmqshell", "ipykernel.debugger",
    "IPython.core.completerlib", "IPython.core.debugger", "IPython.core.history",
    "IPython.core.logger", "IPython.core.oinspect", "IPython.extensions.storemagic",
    "tornado.platform.asyncio", "tornado.queues", "debugpy.server.api", "sqlite3", "http.client", "encodings.ascii", "encodings.idna",
    "encodings.latin_1", "faulthandler", "pdb", "runpy",
)  # fmt: skip
LATER = (  # and for our set-up, its first cell and its first traceback
    "IPython.core.magics.basic", "IPython.core.magics.history",
    "stack_data", "executing", "asttokens", "pure_eval",
)  # fmt: skip


def warm_up(preload: Sequence[str]) -> tuple[str, list[list[str]]]:
    """Import what ranks need: why they cannot be forked, and which of ``preload`` failed, and how."""
    gc.disable()
    reason, problems = "", []
    for name in WARM:
        try:
            import_module(name)
        except Exception as error:
            if name == WARM[0]:
                reason = f"{name} could not be imported: {type(error).__name__}: {error}"
    if preload:  # it may take minutes, which nobody waits for once the kernel process is gone
        processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != PARENT:
            os._exit(1)
    sys.path.insert(0, "")  # as in a rank: modules of the notebook's folder
    for name in preload:
        try:
            import_module(name)
        except BaseException as error:
            problems.append([name, f"{type(error).__name__}: {error}"])
    with contextlib.suppress(ValueError):
        sys.path.remove("")
    processes.prctl(processes.PR_SET_PDEATHSIG, 0)
    if not settled():
        reason = f"the imports have started {processes.threads() - 1} threads"
    gc.freeze()  # a collection in a rank touches, and so copies, none of our pages
    gc.enable()
    return reason, problems


def warm_up_more() -> None:
    """What need not be done before the first rank, which somebody waits for."""
    for name in LATER:
        with contextlib.suppress(Exception):
            import_module(name)
    with contextlib.suppress(Exception):  # regular expressions that are compiled when they are used
        import_module("IPython.core.inputtransformer2").TransformerManager().transform_cell("pass")
    with contextlib.suppress(OSError):  # found by writing a file
        tempfile.gettempdir()
    gc.collect()
    gc.freeze()


def settled() -> bool:
    """Whether we have one thread only.  OpenBLAS ends its own before each fork, by a hook."""
    if processes.threads() > 1 and processes.LINUX:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            os._exit(0)
        processes.reap(pid)
        end = time.monotonic() + 0.5
        while processes.threads() > 1 and time.monotonic() < end:
            time.sleep(0.005)  # no event tells when the system is done with them
    return bool(processes.threads() == 1)


def become(rank: dict[str, Any]) -> str:
    """In a forked rank: all that an interpreter just started would have; the module to run."""
    change_environment({**rank["env"], "JPY_PARENT_PID": str(os.getppid())})
    sys.argv = ["-m", *rank["words"]]
    sys.orig_argv = list(rank["argv"])
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.getcwd())
    sys.modules["__main__"] = types.ModuleType("__main__")
    retitle(rank["argv"])
    reseed()
    return str(rank["module"])


def change_environment(wanted: dict[str, str]) -> None:
    """From what we were started with; what the interpreter or an import has set since stays."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0") if pair)
        given = {name: value for name, _, value in pairs}
    for name in given.keys() - wanted.keys():
        os.environ.pop(name, None)
    for name, value in wanted.items():
        if given.get(name) != value:
            os.environ[name] = value
    if any(given.get(name) != wanted.get(name) for name in ("TMPDIR", "TEMP", "TMP")):
        tempfile.tempdir = None


def reseed() -> None:
    """The global generators that are seeded at import; `random` does so itself."""
    for module, name in (("numpy.random", "seed"), ("torch", "seed")):
        with contextlib.suppress(Exception):
            getattr(sys.modules[module], name)()


def retitle(argv: Sequence[str]) -> None:
    """What ``ps`` shows is the memory of the first argv (proc(5), cmdline): ours is long enough.

    Its last byte not being zero tells Linux that a title, one string, was written there.
    """
    with contextlib.suppress(Exception), open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        title = os.fsencode(" ".join(argv))[: end - start - 2]
        ctypes.memmove(start, title.ljust(end - start - 1, b"\0") + b" ", end - start)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Returns in forked ranks only."""
    os.setsid()
    processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    fd, *rest = argv
    messages.close_all({int(name) for name in os.listdir("/dev/fd")} - {0, 1, 2, int(fd)})
    os.set_inheritable(int(fd), False)
    supervisor = supervision.Supervisor(messages.Wire(socket.socket(fileno=int(fd))))
    module, *preload = [word for word in rest if word.strip()] or [""]
    problems: list[list[str]] = []
    if module:
        os.environ["JPY_PARENT_PID"] = str(os.getpid())  # ipykernel reads it when it is imported
        supervisor.reason, problems = warm_up(preload)
        supervisor.spare = warm_up_more
    paths = [os.path.abspath(path) for path in sys.path]
    supervisor.send("ready", reason=supervisor.reason, problems=problems, paths=paths)
    rank: dict[str, Any] | None = supervisor.serve()
    if rank is None:
        os._exit(0)  # what was registered with atexit is the ranks' business
    return rank


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        del sys.path[0]  # our own folder
    _module = become(main(sys.argv[1:]))
    import runpy

    runpy._run_module_as_main(_module)  # type: ignore[attr-defined]  # it is what `-m` calls
