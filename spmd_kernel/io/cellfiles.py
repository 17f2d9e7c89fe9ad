"""The files of cells that debuggers open: one private folder per user, the same for all kernels.

The names are hashes of the cells' code, so that two kernels never disagree on a file's text.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress

KEPT_SECONDS = 30 * 24 * 3600.0  # a file that nobody wrote again for so long is of no use


class CellFiles:
    def __init__(self, folder: str, bad: Callable[[str], None]):
        """``bad`` hears, once, why files cannot be written; breakpoints work without them."""
        self._folder = folder
        self._bad = bad
        self._usable: bool | None = None

    def keep(self, path: str, text: str) -> None:
        if self._usable is None:
            self._usable = self._prepare()
        if not self._usable or os.path.dirname(path) != os.path.dirname(self._folder):
            return
        try:
            draft = f"{path}.{os.getpid()}"
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(text)
            os.replace(draft, path)
        except OSError as error:
            self._bad(f"the file of a cell cannot be written: {error}")
            self._usable = False

    def _prepare(self) -> bool:
        try:
            with suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            status = os.lstat(self._folder.rstrip(os.sep))
        except OSError as error:
            self._bad(f"no folder for the files of cells: {error}")
            return False
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            self._bad(f"{self._folder} is not ours: the files of cells are not written")
            return False
        os.chmod(self._folder, 0o700)
        self._sweep()
        return True

    def _sweep(self) -> None:
        oldest = time.time() - KEPT_SECONDS
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and entry.stat().st_mtime < oldest:
                    os.unlink(entry.path)
