"""Magics of IPython that write what cells said into one file: the lowest rank of a cell writes it.

If all did, the second would ask whether to overwrite what the first has just written, or append it
once more; and only rank 0 knows the sessions before this one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def install(kernel: Any) -> None:
    """Raises AttributeError, KeyError where there is no IPython."""
    shell = kernel.shell
    magics = shell.magics_manager.magics["line"]
    for name in ("history", "save", "notebook"):
        if not hasattr(magics[name], "for_all"):
            magics[name] = once(shell, magics[name], name)


def once(shell: Any, magic: Callable[[str], Any], name: str) -> Callable[[str], Any]:
    def run(line: str) -> Any:
        if (name != "history" or writes(magic, line)) and not is_first(shell):
            return None
        return magic(line)

    run.__doc__ = magic.__doc__
    run.for_all = magic  # type: ignore[attr-defined]
    run.__wrapped__ = magic  # type: ignore[attr-defined]
    return run


def writes(magic: Any, line: str) -> bool:
    """Whether ``%history`` has a file to write; the parser of its arguments knows."""
    try:
        return magic.parser.parse_argstring(line).filename is not None
    except Exception:  # a wrong argument, say: its own words about that are better
        return False


def is_first(shell: Any) -> bool:
    """Of the ranks that run the cell; what else runs here knows no other."""
    lowest = shell.get_parent().get("metadata", {}).get("spmd", {}).get("lowest")
    return os.environ.get("WORLD_SIZE", "1") == "1" or lowest in (None, int(os.environ["RANK"]))
