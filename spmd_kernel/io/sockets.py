"""A plain zmq socket on asyncio's loop, with every trap of that marriage in one place.

* ``zmq.FD`` is edge-triggered: it says "something changed", once.  So read until EAGAIN, or come
  back by ourselves; and read once after registering.
* A send processes the socket's commands, and with them the wake-up of a message that has just
  arrived: it would wait for the next one.  So each send looks whether there is something to read.
* The FD belongs to libzmq: it is never read, and no longer watched when the socket closes, for its
  number is reused at once.

Sends never wait: what finds no room is dropped and the caller told.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq

# A turn of the loop for one socket, so that many flooding ones starve nobody: messages, seconds.
SLICE, SECONDS = 200, 0.003
PARTS = 7  # ident, delimiter, …, content; what follows are buffers, which may be of any size
ZERO_COPY = 1 << 20  # bytes; below this a copy is cheaper than sharing memory with libzmq's thread

# As plain integers: combining enumerations takes longer than sending a frame.
NOW: Final = int(zmq.NOBLOCK)
MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
READABLE: Final = int(zmq.POLLIN)

Receive = Callable[[list[Any]], None]  # of bytes, and frames that libzmq keeps (`PARTS`)
OnError = Callable[[Exception], None]


class LoopSocket:
    """Calls ``receive(frames)`` on the loop for every message, in order, once `start`ed.

    ``receive`` may send on this socket, and may close it.  What it raises goes to ``on_error``, by
    default the loop's exception handler, and costs that one message only.
    """

    def __init__(
        self, socket: zmq.Socket[bytes], receive: Receive, on_error: OnError | None = None
    ) -> None:
        self.socket = socket
        self._receive = receive
        self._on_error = on_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._scheduled = False
        self._held = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._fd = int(self.socket.get(zmq.FD))
        loop.add_reader(self._fd, self._turn)
        self._schedule()

    def send(self, frames: Sequence[bytes | memoryview]) -> bool:
        """Send now or drop (``False``): no room at the high-water mark, or the socket is closed."""
        if self.socket.closed:
            return False
        try:
            send = self.socket.send
            for frame in frames[:-1]:
                send(frame, MORE, copy=len(frame) < ZERO_COPY)
            send(frames[-1], NOW, copy=len(frames[-1]) < ZERO_COPY)
            self._listen_on()
        except zmq.Again:
            self._schedule()
            return False
        except zmq.ZMQError as error:
            if not isinstance(error, zmq.ContextTerminated):
                self._report(error)
            return False
        return True

    def _listen_on(self) -> None:
        """What a send has swallowed the wake-up of is read all the same."""
        if not self._scheduled and self._is_readable():
            self._schedule()

    def drain(self) -> None:
        """Receive everything that is here now.  For peers that have stopped sending.

        Called from inside ``receive``, the later messages arrive before that call returns.
        """
        while not self._read(SLICE):
            pass

    def listen(self, on: bool) -> None:
        """Whether messages are received; meanwhile they wait, as far as the high-water mark allows."""
        self._held = not on
        if on:
            self._schedule()

    def pause(self) -> None:
        """Hear nothing more; sending still works."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = None

    def close(self, linger: int = 0) -> None:
        """Idempotent.  ``linger``: ms for which unsent messages survive, until the context ends."""
        self.pause()
        self.socket.close(linger)

    def _schedule(self) -> None:
        if self._loop is not None and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._held:
            return
        if self._loop is not None and not self._read(SLICE, time.perf_counter() + SECONDS):
            self._schedule()

    def _read(self, limit: int, until: float = math.inf) -> bool:
        """Receive up to ``limit`` messages, until that time; whether none is left."""
        recv, get, more = self.socket.recv, self.socket.get, zmq.RCVMORE
        for _ in range(limit):
            try:
                if not self._is_readable():
                    return True
                frames: list[bytes | zmq.Frame] = [recv(NOW)]
                while get(more):
                    frames.append(recv(copy=len(frames) < PARTS))
            except zmq.Again:
                return True
            except zmq.ZMQError as error:
                return self._broken(error)
            try:
                self._receive(frames)
            except Exception as error:
                self._report(error)
            if self._held or time.perf_counter() > until:
                break
        return False

    def _is_readable(self) -> bool:
        """To be told so by `zmq.Again` takes ten times as long."""
        return bool(int(self.socket.get(zmq.EVENTS)) & READABLE)

    def _broken(self, error: zmq.ZMQError) -> bool:
        """Closed by ``receive`` or by the end of the context, or out of order: nothing to read."""
        if not (self.socket.closed or isinstance(error, zmq.ContextTerminated)):
            self._report(error)
        self.pause()
        return True

    def _report(self, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(error)
        elif self._loop is not None:
            self._loop.call_exception_handler({"message": "zmq receive", "exception": error})
