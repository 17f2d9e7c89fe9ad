"""A Stop that comes at the very edge of a cell costs nobody a rank.

ipykernel lets SIGINT raise `KeyboardInterrupt` only between two hooks, around each request.  Raised in
one of the hooks themselves it would end the kernel's loop, and so the process, with exit code 0.

Executed by path in a rank; must not need our package.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

AGAIN = 0.05  # s; by then the cell has begun, and if it is over SIGINT means nothing


def install(kernel: Any) -> None:
    before, after = kernel.pre_handler_hook, kernel.post_handler_hook
    kernel.pre_handler_hook = lambda: begin(before)
    kernel.post_handler_hook = lambda: end(after)


def begin(hook: Callable[[], None]) -> None:
    """The cell that is about to run was stopped: it will be."""
    try:
        hook()
    except KeyboardInterrupt:
        main = threading.main_thread().ident
        if main is not None:
            timer = threading.Timer(AGAIN, signal.pthread_kill, (main, signal.SIGINT))
            timer.daemon = True
            timer.start()


def end(hook: Callable[[], None]) -> None:
    """The cell that was to be stopped is over."""
    try:
        hook()
    except KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            hook()
