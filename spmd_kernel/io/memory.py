"""Memory that was freed is used again (glibc): fresh pages cost more than all we do with them.

By itself malloc gives a megabyte back as soon as it is free, and an image passes through some ten
buffers: with that, it took 3.5 ms, without 0.8.  After a cell with big output all that is free goes
back to the system: else a kernel process of 22 MB stayed at 40 to 60.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Any

from ..core.model import Message, ToFront

# mallopt(3)
M_TRIM_THRESHOLD, KEPT = -1, 256 << 20  # bytes that are kept
M_MMAP_THRESHOLD, LARGE = -3, 32 << 20  # bytes of a buffer from which on it is not kept
M_ARENA_MAX, ARENAS = -8, 1  # what libzmq's threads take is else given back in part only
MUCH = 10 << 20  # bytes of messages, from which on it is worth it
REST = 1.0  # s after a cell


class Memory:
    """Is told of every message that came, and of every one that went to clients.

    Text leaves its memory in small pieces, which go back at once.  What images leave is of use to the
    next ones (fresh pages for 40 of them cost 50 ms): it goes back when no other such cell follows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._size = self._text = 0
        self._timer: asyncio.TimerHandle | None = None

    def came(self, message: Message) -> None:
        size = len(message.content)
        if message.buffers:
            size += sum(map(len, message.buffers))
        self._size += size
        if message.msg_type == "stream":
            self._text += size

    def went(self, effect: ToFront) -> None:
        if self._size > MUCH and effect.msg_type == "status" and b'"idle"' in effect.content:
            if self._text > MUCH:
                self._loop.call_soon(give_back)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(REST, give_back)
            self._size = self._text = 0


def keep() -> None:
    """From now on; before there are threads."""
    if mallopt := _libc("mallopt"):
        mallopt(M_MMAP_THRESHOLD, LARGE)
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """Give what is not used back to the system.  Takes milliseconds."""
    gc.collect()
    if malloc_trim := _libc("malloc_trim"):
        malloc_trim(0)


def _libc(name: str) -> Callable[..., Any] | None:
    """A function of this process's C library, if it is one that has it."""
    return getattr(ctypes.CDLL(None), name, None)
