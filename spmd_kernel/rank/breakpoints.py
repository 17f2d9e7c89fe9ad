"""``breakpoint()`` in one of several ranks: the debugger if one is attached, else a warning.

N ranks that each opened a prompt would compete for one reader; ipykernel, without a debugger, says
nothing at all.  debugpy stops at the next line, which in a cell's last line never comes; here the stop
is at the call itself.  `setup.py` runs this file in each Python rank, `debugging.py` before a debugger
comes; without one, a world of one keeps what it had.  Whoever set ``sys.breakpointhook`` or
``PYTHONBREAKPOINT`` is obeyed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Any

# Where the hooks come from that nobody has chosen: debugpy's, which ipykernel imports.
ORDINARY = ("debugpy._vendored.force_pydevd", "pydevd", "_pydevd_bundle.pydevd")
HINT = "hint: turn on the debugger to stop here; pdb.set_trace() asks in the notebook\n"


class Hook:
    """What ``sys.breakpointhook`` is; ``instead_of``: what it was."""

    def __init__(self, instead_of: Any) -> None:
        self.instead_of = instead_of
        self.many = False  # there are other ranks
        self.cell: Any = None
        self.told: set[tuple[str, int]] = set()  # places in that cell

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        chosen = os.environ.get("PYTHONBREAKPOINT", "")
        if chosen == "0":
            return None
        if chosen:
            return sys.__breakpointhook__(*args, **kwargs)
        frame = sys._getframe(1)
        if is_attached():
            stop_in(frame)
        elif self.many:
            self.warn(frame)
        else:
            return self.instead_of(*args, **kwargs)
        return None

    def warn(self, frame: Any) -> None:
        """Once for a place and a cell, however often the cell comes by."""
        shell = running_shell()
        cell = getattr(shell, "execution_count", None)
        if cell != self.cell:
            self.cell, self.told = cell, set()
        place = frame.f_code.co_filename, frame.f_lineno
        if place in self.told or sys.stderr is None:
            return
        self.told.add(place)
        what = f"breakpoint() at {name_of(frame, shell)} skipped: no debugger is attached\n"
        sys.stderr.write(what + HINT)


def is_attached() -> bool:
    """Whether a debugger listens to this process; debugpy is imported by who attaches one."""
    debugpy = sys.modules.get("debugpy")
    with contextlib.suppress(Exception):  # a debugpy that is half imported, or another module
        return bool(debugpy and debugpy.is_client_connected())
    return False


def stop_in(frame: Any) -> None:
    """Suspend this thread where it is, as pydevd does at a line with a breakpoint.

    That is within a trace function, where nothing is traced: what the user evaluates meanwhile must
    not be here either, or it would be suspended, too.
    """
    pydevd, debugpy = sys.modules["pydevd"], sys.modules["debugpy"]
    thread = threading.current_thread()
    info = pydevd.set_additional_thread_info(thread)
    # An expression of the debug console: its answer is waited for, nobody could let it go on.
    if info.is_in_wait_loop or getattr(thread, "is_pydev_daemon_thread", False):
        return
    debugger = pydevd.get_global_debugger()
    debugpy.trace_this_thread(False)
    try:
        debugger.set_suspend(thread, pydevd.CMD_SET_BREAK)
        debugger.do_wait_suspend(thread, frame, "line", None)
    except BaseException:  # the user pressed Stop
        info.pydev_state, info.pydev_step_cmd, info.pydev_step_stop = pydevd.STATE_RUN, -1, None
        raise
    finally:
        debugpy.trace_this_thread(True)


def running_shell() -> Any:
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython is not None else None


def name_of(frame: Any, shell: Any) -> str:
    """``cell line 3``, ``line 3 of cell [2]`` or ``model.py:3``: the same text on every rank."""
    file, line = frame.f_code.co_filename, frame.f_lineno
    counts = getattr(getattr(shell, "compile", None), "_filename_map", None) or {}
    if file not in counts:
        return f"{file.removeprefix(os.getcwd() + os.sep)}:{line}"
    running = ""
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if code.co_filename in counts and code.co_name.startswith(("<module>", "<cell line")):
            running = code.co_filename
    return f"cell line {line}" if file == running else f"line {line} of cell [{counts[file]}]"


def is_ordinary(hook: Any) -> bool:
    return hook is sys.__breakpointhook__ or getattr(hook, "__module__", "") in ORDINARY


def install(many: bool, debugged: bool = False) -> None:
    """``many``: whether there are other ranks; ``debugged``: whether a debugger is about to come."""
    current: Any = sys.breakpointhook
    wanted = many or debugged or is_attached()
    if type(current).__name__ == Hook.__name__ and hasattr(current, "instead_of"):
        if not wanted:  # ours, maybe of an earlier run of this file
            sys.breakpointhook = current = current.instead_of
    elif wanted and is_ordinary(current):
        sys.breakpointhook = current = Hook(current)
    if hasattr(current, "instead_of"):
        current.many = many
