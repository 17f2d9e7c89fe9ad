"""What each rank says, as it comes, in a file of its own: ``rank-N.log`` in a folder (`--log-dir`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ..core.model import Rank


def location(folder: str) -> Path:
    """A relative folder is one of the directory that the kernel was started in."""
    return Path(os.path.abspath(os.path.expanduser(folder)))


def probe(folder: str) -> str:
    """Why no file can be written there, empty if one can; the folder is made if need be."""
    if not folder:
        return ""
    path = location(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _reason(error)
    return "" if os.access(path, os.W_OK | os.X_OK) else "Permission denied"


class LogFiles:
    """Appends.  ``failed`` hears (folder, reason) once; nothing is written to that folder then."""

    def __init__(self, failed: Callable[[str, str], None]):
        self._failed = failed
        self._files: dict[tuple[str, Rank], BinaryIO] = {}
        self._given_up: set[str] = set()

    def append(self, folder: str, rank: Rank, text: str) -> None:
        if folder in self._given_up:
            return
        try:
            self._file(folder, rank).write(text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            self._given_up.add(folder)
            self._failed(folder, _reason(error))

    def forgive(self, folder: str) -> None:
        """It is named again: try anew."""
        self._given_up.discard(folder)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _file(self, folder: str, rank: Rank) -> BinaryIO:
        file = self._files.get((folder, rank))
        if file is None:
            path = location(folder) / f"rank-{rank}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: whoever follows the file reads what was said so far.
            file = self._files[folder, rank] = open(path, "ab", buffering=0)  # noqa: SIM115
        return file


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
