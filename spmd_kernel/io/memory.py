"""Memory that was freed is used again (glibc): fresh pages cost more than all we do with them.

By itself malloc gives a megabyte back as soon as it is free, and an image passes through some ten
buffers: with that, it took 3.5 ms, without 0.8.  At the end of a cell with big output all that is free
goes back to the system: else a kernel process of 22 MB stayed at 40 to 60.
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
MUCH = 10 << 20  # bytes of messages: 100 ms of work, and to give back takes 2
AGAIN = 1.0  # s later nothing is on its way to the clients any more


class Memory:
    """Is told of every message that came, and of every one that went to clients."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._size = 0

    def came(self, message: Message) -> None:
        self._size += len(message.content)
        if message.buffers:
            self._size += sum(map(len, message.buffers))

    def went(self, effect: ToFront) -> None:
        if self._size > MUCH and effect.msg_type == "status" and b'"idle"' in effect.content:
            # What the last cell said is kept until the next begins: worth a second look after that.
            self._size = MUCH if self._size > 2 * MUCH else 0
            self._loop.call_soon(give_back)
            self._loop.call_later(AGAIN, give_back)


def keep() -> None:
    """From now on."""
    if mallopt := _libc("mallopt"):
        mallopt(M_MMAP_THRESHOLD, LARGE)
        mallopt(M_TRIM_THRESHOLD, KEPT)


def give_back() -> None:
    """Give what is not used back to the system.  Takes milliseconds."""
    gc.collect()
    if malloc_trim := _libc("malloc_trim"):
        malloc_trim(0)


def _libc(name: str) -> Callable[..., Any] | None:
    """A function of this process's C library, if it is one that has it."""
    return getattr(ctypes.CDLL(None), name, None)
