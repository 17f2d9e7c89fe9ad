"""Text that is too much to be shown, in files that only their owner can read.

They are in the user's cache directory: whoever cleans that up may delete them, and we do when they
are old.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

KEPT_DAYS = 7
RESERVE = 1 << 30  # bytes that stay free on the disk: a loop that prints must not fill it
LOOK = 16 << 20  # bytes written between two looks at how much is free


class TextFiles:
    """Appends.  ``failed`` hears (path, reason) once; nothing is written to that file then."""

    def __init__(self, failed: Callable[[str, str], None]):
        self._failed = failed
        self._file: BinaryIO | None = None  # the one written last
        self._path = ""
        self._given_up: set[str] = set()
        self._until_look = 0

    def append(self, path: str, text: bytes) -> None:
        if path in self._given_up:
            return
        try:
            self._require_space(path, len(text))
            self._opened(path).write(text)
        except OSError as error:
            self._given_up.add(path)
            self._failed(path, error.strerror or str(error))

    def drop(self, path: str) -> None:
        """It is not needed after all."""
        if path == self._path:
            self.close()
        with contextlib.suppress(OSError):
            os.unlink(path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path = ""

    def _opened(self, path: str) -> BinaryIO:
        if self._file is None or path != self._path:
            self.close()
            descriptor = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
            )
            self._file = open(descriptor, "ab", buffering=0)  # noqa: SIM115
            self._path = path
        return self._file

    def _require_space(self, path: str, size: int) -> None:
        """Raises `OSError`."""
        if path != self._path:
            folder = Path(path).parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sweep(folder)
            self._until_look = 0
        self._until_look -= size
        if self._until_look <= 0:
            self._until_look = LOOK
            disk = os.statvfs(os.path.dirname(path))
            if disk.f_bavail * disk.f_frsize < RESERVE + size:
                raise OSError("less than 1 GB is free on that disk")


def sweep(folder: Path, now: Callable[[], float] = time.time) -> None:
    """Delete what is older than `KEPT_DAYS`."""
    for path in folder.glob("output-*.txt"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < now() - KEPT_DAYS * 86400:
                path.unlink()
