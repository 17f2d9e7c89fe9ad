"""``breakpoint()`` in one of several ranks: the debugger if one is attached, else a warning.

N ranks that each opened a prompt would compete for one reader; ipykernel, without a debugger, says
nothing at all.  `setup.py` runs this file in each Python rank; a world of one keeps what it had.
Whoever set ``sys.breakpointhook`` or ``PYTHONBREAKPOINT`` is obeyed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

# Where the hooks come from that nobody has chosen: debugpy's, which ipykernel imports.
ORDINARY = ("debugpy._vendored.force_pydevd", "pydevd", "_pydevd_bundle.pydevd")
HINT = "hint: turn on the debugger to stop here; pdb.set_trace() asks in the notebook\n"


class Hook:
    """What ``sys.breakpointhook`` is; ``instead_of``: what it was."""

    def __init__(self, instead_of: Any) -> None:
        self.instead_of = instead_of
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
        else:
            self.warn(frame)
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
    """``debugpy.breakpoint()`` for a caller's frame: it would stop in ours."""
    pydevd: Any = sys.modules["pydevd"]
    pydevd.settrace(
        suspend=True,
        trace_only_current_thread=True,
        patch_multiprocessing=False,
        stop_at_frame=frame,
    )


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


def install(many: bool) -> None:
    """``many``: whether there are other ranks."""
    current = sys.breakpointhook
    if type(current).__name__ == Hook.__name__ and hasattr(current, "instead_of"):
        if not many:  # ours, maybe of an earlier run of this file
            sys.breakpointhook = current.instead_of
    elif many and is_ordinary(current):
        sys.breakpointhook = Hook(current)
