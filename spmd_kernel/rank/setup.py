"""Run silently in every Python rank once it is ready; the rank's own cells come after.

Executed by path in a throw-away namespace: the rank's environment need not have our package, may
have an older Python than ours, and need not be ipykernel's.  Each step is for itself, and none may
harm a kernel for which it makes no sense.

Run again when a world of one grows, or becomes one: then what depends on WORLD_SIZE changes.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import contextvars
import faulthandler
import logging
import os
import select
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import Any

FLUSH_INTERVAL = 0.05  # seconds; ipykernel's 0.2 is visible when N ranks print in turn
WORLD_SIZE = os.environ.get("WORLD_SIZE", "1")
MANY = WORLD_SIZE not in ("", "1")
PIPE_READ = 1 << 16  # bytes: all that a pipe holds
DRAIN = 1.0  # seconds; the thread that reads the pipe needs one turn
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


def allow_ddp(module: Any) -> None:
    """Lightning refuses ``strategy="ddp"`` in notebooks, where it could not start the processes.

    They are there already, as under torchrun.
    """
    if hasattr(module, "_IS_INTERACTIVE"):
        module._IS_INTERACTIVE = False


FOR_MANY = {
    "mpi4py": warn_of_mpi,
    "lightning.fabric.utilities.imports": allow_ddp,
    "lightning_fabric.utilities.imports": allow_ddp,  # as pytorch-lightning
}


def run_beside(name: str) -> dict[str, Any]:
    """Run a file of this folder, which is no package here: its namespace."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    namespace: dict[str, Any] = {"__name__": f"spmd_kernel.rank.{name}", "__file__": path}
    exec(SourceFileLoader("", path).get_code(""), namespace)  # type: ignore[arg-type]
    return namespace


def from_file(name: str, function: str) -> Callable[[Any], None]:
    """A function of a file beside this one, which is read when it is called."""

    def call(module: Any) -> None:
        with contextlib.suppress(Exception):  # another version of the library has other names
            run_beside(name)[function](module)

    return call


def tune_streams() -> None:
    """ipykernel: flush sooner."""
    for stream in streams():
        own = getattr(stream, "__dict__", {})
        if hasattr(stream, "flush_interval") and MANY:
            stream.flush_interval = FLUSH_INTERVAL
        elif own.get("flush_interval") == FLUSH_INTERVAL:
            del stream.flush_interval  # that of its class counts again


def bound_memory() -> None:
    """ipykernel: who prints faster than it is read waits; IPython: what cells said is not all kept."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    book: Any = None
    with contextlib.suppress(AttributeError, OSError):
        book = run_beside("remembered")["install"](shell)
    with contextlib.suppress(AttributeError, OSError):
        iostream = sys.modules.get("ipykernel.iostream")
        flow = run_beside("flow")["install"]((sys.stdout, sys.stderr), iostream, last_words)
        if flow is not None and book is not None:
            flow.flushed = book.trim


def last_words(stream: Any) -> Any:
    """What keeps them for the kernel process; None where there is no place for it."""
    path = stacks_file(sys.argv)
    if not path:
        return None
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return run_beside("words")["Words"](f"{path.removesuffix('.stacks')}.{stream.name}")
    return None


def streams() -> list[Any]:
    """ipykernel's, which publish what is written to them."""
    return [s for s in (sys.stdout, sys.stderr) if hasattr(s, "pub_thread")]


def look_after(published: list[Any]) -> None:
    """Their text at the end of the process and in forked children."""
    # After what the user registers, before ipykernel closes.
    atexit.register(flush, published)
    os.register_at_fork(after_in_child=lambda: speak_as_child(published))


def flush(published: list[Any]) -> None:
    """ipykernel's thread, which would do so in a moment, is about to be stopped."""
    for stream in published:
        with contextlib.suppress(Exception):
            stream.flush()


def speak_as_child(published: list[Any]) -> None:
    """In a forked child: nothing of the parent's is said twice, no lock of its threads is held.

    ipykernel sends whatever a child writes at once, a word of a ``print`` at a time, in between
    those of its siblings: here it is whole lines.
    """
    if os.environ.get("WORLD_SIZE", "1") in ("", "1"):
        return
    for stream in published:
        if hasattr(getattr(stream, "_buffers", None), "default_factory"):
            stream._buffers.clear()
            stream._buffer_lock = threading.RLock()
            stream.write = line_writer(stream)


def line_writer(stream: Any) -> Callable[[str], int]:
    write = type(stream).write

    def write_lines(text: str) -> int:
        # What is pending already is not sent again, until somebody flushes.
        stream._subprocess_flush_pending = "\n" not in text and "\r" not in text
        write(stream, text)
        return len(text)

    return write_lines


class Piped(str):
    """Text of C code or of a child process: it came through a pipe, in pieces that mean nothing."""


def mark_writes() -> None:
    """ipykernel: let the text that is sent tell which lines came in one ``write`` call.

    The place is the buffer below ``OutStream.write``: what wraps or replaces ``write`` (IPython
    does, around each cell) or reads the text back in this process never meets a mark.
    """
    buffer: Any = getattr(sys.modules.get("ipykernel.iostream"), "StringIO", None)
    if not hasattr(buffer, "mark"):
        return
    if MANY and not buffer.knows_pipes:
        buffer.knows_pipes = True
        for stream in streams():
            watch_pipe(stream)
    buffer.mark = staticmethod(marked_text) if MANY else None


def marked_text(text: str, pieces: list[str]) -> str:
    """``text``, which is all ``pieces`` together."""
    if needs_no_mark(text, pieces):
        return text
    return "".join([marked(piece) for piece in pieces])


def needs_no_mark(text: str, pieces: list[str]) -> bool:
    """As many newlines as pieces that end in one: none is inside a piece."""
    newlines = text.count("\n")
    if MARK in text:
        return False
    # `print` writes the newline apart, which is counted in no time.
    return newlines == pieces.count("\n") or newlines == sum([p[-1:] == "\n" for p in pieces])


def watch_pipe(stream: Any) -> None:
    """Read file descriptor 1 or 2 as ipykernel does, but so that its text is known by its type.

    ipykernel's own thread keeps its pipe, which nobody writes to any more.  ``OutStream.close``
    wakes and joins the thread that stands in ``watch_fd_thread``.
    """
    fd, copy = (getattr(stream, f"_original_stdstream_{name}", None) for name in ("fd", "copy"))
    if not (isinstance(fd, int) and isinstance(copy, int) and hasattr(stream, "watch_fd_thread")):
        return
    source, write_end = os.pipe()
    os.dup2(write_end, fd)
    os.close(write_end)
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    write, flush, pid = type(stream).write, stream.flush, os.getpid()
    taken = threading.Condition()
    ready = select.poll()
    ready.register(source, select.POLLIN)

    def take() -> bool:
        ready.poll()
        with taken:
            data = os.read(source, PIPE_READ)
            if text := decode(data):  # the rest of a character may still come
                write(stream, Piped(text))
            taken.notify_all()
        os.write(copy, data)
        return bool(data) and stream._should_watch

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):
            while take():
                pass

    def flush_both() -> None:
        """What was written to the descriptor before is sent too: at a cell's end, before its idle.

        One chunk is all that the pipe can hold.  A flood through the pipe may have to wait; Stop and
        queries, which come in other threads, do not wait for it.
        """
        if os.getpid() == pid and threading.current_thread() is threading.main_thread():
            with taken:
                if ready_now.poll(0):
                    taken.wait(DRAIN)
        flush()

    ready_now = select.poll()  # a poll object serves one thread at a time
    ready_now.register(source, select.POLLIN)
    stream.flush = flush_both

    # An empty context: what it reads belongs to the cell at hand, not to the one that began it.
    run = contextvars.Context().run
    name = f"spmd-kernel fd {fd}"
    stream.watch_fd_thread = threading.Thread(target=run, args=(watch,), name=name, daemon=True)
    stream.watch_fd_thread.start()


def marked(text: str) -> str:
    """A mark after each inner newline, but for ``\\r\\n``: so come lines of a ``!command``."""
    doubled = text.replace(MARK, MARK + MARK)  # the program's own
    if isinstance(text, Piped) or text.find("\n", 0, -1) < 0:
        return doubled
    head, last = doubled[:-1], doubled[-1:]
    return head.replace("\n", "\n" + MARK).replace("\r\n" + MARK, "\r\n") + last


def report_crashes() -> None:
    """The stack of a SIGSEGV goes where it outlives the process, not into ipykernel's own pipe."""
    stderr = getattr(sys.stderr, "_original_stdstream_copy", None)
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        faulthandler.enable(file=stderr if isinstance(stderr, int) else 2, all_threads=False)


def hide_from_debuggers() -> None:
    """ipykernel: a step that leaves a cell stops in no file of this folder, as in none of its own."""
    here = os.path.dirname(os.path.abspath(__file__))
    with contextlib.suppress(Exception):
        shell = sys.modules["IPython"].get_ipython()
        hidden: list[str] = shell.kernel.debugger.kernel_modules
        hidden += [os.path.join(here, name) for name in os.listdir(here) if name.endswith(".py")]


def change_kernel(name: str) -> None:
    """ipykernel: with a file of this folder, if this is one."""
    with contextlib.suppress(Exception):
        kernel = sys.modules["IPython"].get_ipython().kernel
        run_beside(name)["install"](kernel)


def installed_hooks() -> Any:
    """Those of an earlier run of this file, whose class is not the one above."""
    for finder in sys.meta_path:
        kind = type(finder)
        if (kind.__module__, kind.__name__) == (__name__, "PostImport"):
            return finder
    return None


def report_stacks() -> None:
    """faulthandler writes the main thread's stack into the FIFO beside our connection file.

    At a signal that nobody else uses; in C, so also while the interpreter cannot run.  Of that thread
    alone: the others may run on, and who reads their frames then reads memory that is no longer there.
    """
    signum = getattr(signal, "SIGRTMAX", 0) - 3
    path = stacks_file(sys.argv)
    if signum <= 0 or not path or not hasattr(faulthandler, "register"):
        return
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        # A signal handler must not wait for a reader: what does not fit into the pipe is lost.
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        faulthandler.register(signum, file=fd, all_threads=False, chain=False)


def stacks_file(argv: list[str]) -> str:
    """The FIFO beside the connection file, which some word names (``-f FILE``, ``--f=FILE``)."""
    for word in argv[1:]:
        name = word.rpartition("=")[2]
        path = name[: -len(".json")] + ".stacks"
        with contextlib.suppress(OSError, ValueError):
            if name.endswith(".json") and stat.S_ISFIFO(os.stat(path).st_mode):
                return path
    return ""


def mend_cache(cache: Any) -> None:
    """Jedi's parser keeps files that a killed rank leaves empty: then nothing is completed any more."""
    load = cache._load_from_file_system

    def load_if_whole(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            return load(*args, **kwargs)
        return None  # it is parsed, and written, again

    cache._load_from_file_system = load_if_whole


def hush_routing() -> None:
    """ipykernel looks a comm up to route a message to it, when it may not have been opened yet.

    Whoever opens one and at once asks it something, as widgets do after a reload, would find a
    warning in the notebook, though nothing is lost: the thread that serves it knows it by then.
    """
    routing = "Shell channel"
    logging.getLogger("Comm").addFilter(lambda record: record.threadName != routing)


def main() -> None:
    hooks = installed_hooks()
    if hooks is None:
        hooks = PostImport()
        hooks.when_imported("jax._src.clusters", from_file("jax_cluster", "register"))
        hooks.when_imported("jax._src.distributed", from_file("rendezvous", "gather"))
        hooks.when_imported("torch.distributed.rendezvous", from_file("rendezvous", "open_store"))
        groups = "torch.distributed.distributed_c10d"
        hooks.when_imported(groups, from_file("rounds", "keep_store"))
        sys.meta_path.insert(0, hooks)
        report_crashes()
        report_stacks()
        bound_memory()
        look_after(streams())
        hush_routing()
        for name in ("idents", "first_completion", "one_writer", "interrupts"):
            change_kernel(name)
        if "parso.cache" in sys.modules:
            mend_cache(sys.modules["parso.cache"])
        else:
            hooks.when_imported("parso.cache", mend_cache)
        hide_from_debuggers()
    tune_streams()
    mark_writes()
    run_beside("breakpoints")["install"](MANY)
    for name, action in FOR_MANY.items():
        hooks.actions.pop(name, None)
        if MANY and name not in sys.modules:
            hooks.when_imported(name, action)


main()
