"""Private directories for the sockets and connection files of ranks.

Each is locked (``flock``) by the process that made it for as long as that lives, so that whoever
comes later can tell a stale one from one in use, however its owner ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PREFIX = "spmd-kernel-"
# The address of a unix socket has 108 bytes on Linux and 104 on macOS; `r12345-5` must fit too.
LONGEST = 85


@dataclass(slots=True)
class RunDirectory:
    """A directory of mode 0700. ``path`` is absolute and short enough for sockets in it."""

    path: str
    _lock: int

    @classmethod
    def create(cls, environ: Mapping[str, str]) -> RunDirectory:
        """Make and lock one, below ``$XDG_RUNTIME_DIR`` if possible. Raises `OSError`."""
        reason: OSError | None = None
        for base in _bases(environ):
            try:
                return cls._create_in(base)
            except OSError as error:
                reason = error
        raise reason or OSError("no directory has a path short enough for sockets")

    @classmethod
    def _create_in(cls, base: str) -> RunDirectory:
        while True:
            path = tempfile.mkdtemp(prefix=PREFIX, dir=base)  # 0700
            lock = _lock(path)
            if lock is not None and _is_open_as(path, lock):
                return cls(path, lock)
            # A sweep came between the two steps, and took it for a stale one.
            if lock is not None:
                os.close(lock)

    def remove(self) -> None:
        """Delete it with all that is in it. Idempotent."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def write(self, name: str, data: bytes) -> str:
        """A new file that only we can read; its path."""
        path = os.path.join(self.path, name)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
        return path


def sweep(environ: Mapping[str, str]) -> None:
    """Remove the directories of kernels that ended without doing so."""
    for base in _bases(environ):
        for path in _ours(base):
            lock = _lock(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _bases(environ: Mapping[str, str]) -> list[str]:
    """Where to make them, best first."""
    candidates = [environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]
    return [
        base
        for base in dict.fromkeys(os.path.abspath(c) for c in candidates if c)
        if len(os.fsencode(base)) + len(PREFIX) + 9 <= LONGEST
        and os.access(base, os.W_OK | os.X_OK)
    ]


def _ours(base: str) -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700:
                    yield entry.path


def _lock(path: str) -> int | None:
    """Open and lock a directory; None if somebody holds it, or it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _is_open_as(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False
