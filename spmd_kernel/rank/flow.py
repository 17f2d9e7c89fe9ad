"""Whoever prints faster than it is read waits, and nothing is lost or piled up meanwhile.

ipykernel hands all that a cell says to its IOPub thread, that hands it to ZeroMQ, and none of the two
has a bound in bytes.  Here each has one, and beyond it the thread that prints waits, as it would for
a terminal.  Stop ends that wait.  Executed by path in a rank; must not need our package.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

CHUNK = 1 << 15  # characters of text that are sent without waiting for the next flush
UNSENT = 1 << 16  # bytes of messages that may wait for the IOPub thread
# Messages that may wait in ZeroMQ's.  Not fewer: libzmq counts what its thread has taken in steps of
# half the mark that held before, so up to so many that were sent already may still count as waiting.
# With a mark that they reach nothing would be sent ever again.
QUEUE = 32
LONG = 3600.0  # seconds: `flush` waits as long as its text does
CHECK = 1.0  # s; whether the thread that would end the wait is there at all


class Flow:
    """What all messages of one ipykernel's IOPub thread pass."""

    def __init__(self, thread: Any):
        self._thread = thread
        self._schedule = thread.schedule
        self._pid = os.getpid()
        self._unsent = 0
        self._changed = threading.Condition()
        self._send = thread.send_multipart
        thread.send_multipart = self.send_multipart
        thread.schedule(self._bound)  # sockets are not thread-safe

    def _bound(self) -> None:
        """Where ZeroMQ's queue is full, a send waits and drops nothing."""
        import zmq

        socket = self._thread.socket
        # Changes the connections that exist. Later ones get what the socket was bound with: so this
        # must run once the kernel's front has connected.
        with contextlib.suppress(Exception):
            socket.setsockopt(zmq.XPUB_NODROP, 1)
            socket.set_hwm(QUEUE)

    def send_multipart(self, frames: Any, *args: Any, **kwargs: Any) -> None:
        if os.getpid() != self._pid:  # a forked child, which has no thread
            self._send(frames, *args, **kwargs)
            return
        size = sum([memoryview(frame).nbytes for frame in frames])
        self._add(size)

        def send() -> None:
            try:
                self._thread._really_send(frames, *args, **kwargs)
            finally:
                self._add(-size)

        self._schedule(send)
        self.wait()

    def relieve(self, stream: Any) -> None:
        """Send what waits in this stream, now."""
        if not self._may_wait():
            self._schedule(stream._flush)
            return
        flushed = threading.Event()

        def flush() -> None:
            try:
                stream._flush()
            finally:
                flushed.set()

        self._schedule(flush)
        while not flushed.wait(CHECK) and self._thread.thread.is_alive():
            pass
        self.wait()

    def wait(self) -> None:
        """Until not too much waits."""
        if self._unsent > UNSENT and self._may_wait():
            with self._changed:
                while self._unsent > UNSENT and self._thread.thread.is_alive():
                    self._changed.wait(CHECK)

    def _may_wait(self) -> bool:
        """The IOPub thread would wait for itself, and what Stop needs shall not wait for anybody."""
        me = threading.current_thread()
        return me is not self._thread.thread and me.name != "Control" and os.getpid() == self._pid

    def _add(self, size: int) -> None:
        with self._changed:
            self._unsent += size
            if size < 0:
                self._changed.notify_all()


class Buffer(list):  # type: ignore[type-arg]
    """What ipykernel collects the text of one parent in, instead of a ``StringIO``.

    Which lines came together is found out when they are sent (``mark``).
    """

    mark: Any = None  # what is made of the pieces' text, for all of them
    knows_pipes = False  # what other processes wrote is told apart
    is_full = False  # one of them
    size = 0

    def write(self, text: str) -> None:
        self.append(text)
        self.size += len(text)
        if self.size > CHUNK:
            Buffer.is_full = True

    def chunks(self) -> Iterator[str]:
        """The text, in parts that end where a call of ``write`` ended, if that is not too long."""
        begin = size = 0
        if self.size > CHUNK:
            for index, piece in enumerate(self):
                size += len(piece)
                if size > CHUNK:
                    yield from _parted(self._text(self[begin : index + 1]))
                    begin, size = index + 1, 0
        if rest := self[begin:] if begin else self:
            yield self._text(rest)

    def getvalue(self) -> str:
        return self._text(self)

    def _text(self, pieces: list[str]) -> str:
        text = "".join(pieces)
        return text if Buffer.mark is None else Buffer.mark(text, pieces)

    def close(self) -> None:
        self.clear()


def _parted(text: str) -> Iterator[str]:
    """At the end of a line, if there is one."""
    start = 0
    while len(text) - start > 2 * CHUNK:
        end = text.rfind("\n", start + CHUNK, start + 2 * CHUNK) + 1 or start + 2 * CHUNK
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def collect(stream: Any, flow: Flow) -> None:
    """Let a stream collect its text in `Buffer`, and send it in chunks."""
    stream._buffers.default_factory = Buffer
    schedule_flush = stream._schedule_flush
    stream.flush_timeout = LONG

    def schedule() -> None:
        if Buffer.is_full:
            Buffer.is_full = False
            flow.relieve(stream)
        else:
            schedule_flush()

    def flush_buffers() -> Iterator[Any]:
        for parent, buffer in stream._rotate_buffers().items():
            for text in buffer.chunks():
                yield dict(parent), text
            buffer.close()

    stream._schedule_flush = schedule
    stream._flush_buffers = flush_buffers


def install(streams: Any, iostream: Any) -> None:
    """For ipykernel's streams; once.  Older ones have a single buffer and stay as they are."""
    thread = getattr(streams[0], "pub_thread", None)
    if not (hasattr(thread, "schedule") and hasattr(thread, "_really_send")):
        return
    flow = Flow(thread)
    if all(hasattr(getattr(s, "_buffers", None), "default_factory") for s in streams):
        for stream in streams:
            collect(stream, flow)
        iostream.StringIO = Buffer
