"""IPython's first completion loads Jedi, for a second: beside a running cell nobody waits so long.

There, until it is loaded, names are completed without it, as IPython does with ``use_jedi`` off.
Its completer is not made for several threads, so they complete one after the other.
"""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any


class Loading:
    """Of Jedi, in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._thread is None:
            name = "spmd-kernel loads jedi"
            self._thread = threading.Thread(target=load, name=name, daemon=True)
            self._thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined] # no stop holds it
            self._thread.start()

    @property
    def is_over(self) -> bool:
        if self._thread is None:
            return "jedi.api" in sys.modules
        return not self._thread.is_alive()


def load() -> None:
    jedi: Any = importlib.import_module("jedi")
    for code in ("a", "a."):  # the grammar, and what it knows of builtins
        jedi.Interpreter(code, [{"a": 1}]).complete()


def install(kernel: Any) -> None:
    """Raises AttributeError for kernels that are not IPython's."""
    completer, complete = kernel.shell.Completer, kernel.do_complete
    loading, completing = Loading(), threading.RLock()

    def do_complete(*args: Any, **kwargs: Any) -> Any:
        is_main = threading.current_thread() is threading.main_thread()
        with completing:
            if is_main or not completer.use_jedi or loading.is_over:
                return complete(*args, **kwargs)
            completer.use_jedi = False
            try:
                return complete(*args, **kwargs)
            finally:
                completer.use_jedi = True
                loading.begin()

    kernel.do_complete = do_complete
