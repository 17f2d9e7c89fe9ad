"""Start the process that forks and supervises ranks: `__main__` does so before any other import.

It takes 0.3 s to import what ranks need, and we 0.15 s to import our own: both at once.  So this
module imports next to nothing.  What the ranks' kernelspec is we do not know yet; that they run in
our own Python is the usual case, and a guess that was wrong is thrown away.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

ZYGOTE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "rank/zygote.py")
LAUNCHER = "ipykernel_launcher"
# `ps` shows the command of a rank in the place of the zygote's own, which must be as long.
ROOM = " " * 240


class ZygoteProcess:
    """A process that runs ``rank/zygote.py``, and our ends of its socket and its output."""

    __slots__ = ("environ", "output", "pid", "preload", "socket", "words")

    def __init__(
        self, words: Sequence[str], environ: Mapping[str, str], module: str, preload: Sequence[str]
    ) -> None:
        """``words``: the interpreter and its options. Raises `OSError` if there is no such program.

        Call from the main thread: while it imports ``preload`` it dies with its parent thread.
        """
        self.words, self.environ, self.preload = tuple(words), dict(environ), tuple(preload)
        self.socket, theirs = socket.socketpair()
        self.output, output = os.pipe()
        try:
            os.set_inheritable(theirs.fileno(), True)
            options = [module, *preload, ROOM] if module else []
            self.pid = os.posix_spawnp(
                words[0],
                [*words, ZYGOTE, str(theirs.fileno()), *options],
                self.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                ],
                setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ],
                setsigmask=[],
            )
        except OSError:
            self.socket.close()
            os.close(self.output)
            raise
        finally:
            theirs.close()
            os.close(output)
        self.socket.setblocking(False)

    @classmethod
    def spawning(cls) -> Self:
        """One that forks no warm interpreter: it needs nothing, and starts anything."""
        return cls((sys.executable, "-I", "-S"), os.environ, "", ())


_guess: ZygoteProcess | None = None


def guess() -> None:
    """Start one for ranks in our own Python."""
    global _guess
    if sys.platform.startswith("linux"):
        try:
            _guess = ZygoteProcess((sys.executable,), os.environ, LAUNCHER, ())
        except OSError:
            _guess = None  # the engine will say what is wrong


def taken() -> ZygoteProcess | None:
    """The one that `guess` has started; the caller's from now on."""
    global _guess
    process, _guess = _guess, None
    return process
