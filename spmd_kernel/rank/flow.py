"""Whoever prints faster than it is read waits, and nothing is lost or piled up meanwhile.

ipykernel hands all that a cell says to its IOPub thread, that hands it to ZeroMQ's, which pass it on
to the reader's, and none of them has a bound in bytes.  High-water marks would be one in messages,
and at it ZeroMQ drops, or loses what is under way when this process dies.  So the reader says how much
it has read (`ACK`), and a thread that prints waits while too much is under way, as it would for a
terminal.  Stop ends that wait.

Executed by path in a rank; must not need our package.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

ACK = (
    b"\0spmd-read"  # subscribed to and unsubscribed from in turn: each says that `QUANTUM` was read
)
MESSAGE = 1 << 14  # what a message weighs beside its bytes: a short one costs a reader as much time
LIGHT = 2  # bits that bytes of anything but text weigh less by: they are passed on, not looked at
QUANTUM = 1 << 19  # bytes, as all that follow
WINDOW = 1 << 20  # of messages that may be under way
UNSENT = 1 << 18  # of messages that may wait for the IOPub thread
CHUNK = 1 << 18  # characters of text that are sent without waiting for the next flush
HEADER, ID = 3, re.compile(rb'"msg_id": ?"([^"]{1,100})"')  # topic, delimiter, signature, header
KEPT = 1 << 14  # characters since the last flush that outlive a crash
CHECK = 1.0  # s; whether the thread that would end the wait is there at all


def weight(frames: Any) -> int:
    """What a message counts, whose first frame is its topic."""
    size = sum([memoryview(frame).nbytes for frame in frames])
    return MESSAGE + (size if is_text(frames) else size >> LIGHT)


def is_text(frames: Any) -> bool:
    return bytes(frames[0]).startswith(b"stream")


class Flow:
    """What all messages of one ipykernel's IOPub thread pass."""

    def __init__(self, thread: Any):
        self._thread = thread
        self._schedule = thread.schedule
        self._pid = os.getpid()
        self._unsent = 0
        self._unread = 0
        self._hears = False  # we hear what the reader has read
        self.is_too_much = False  # under way
        self._asked = self._done = 0  # messages
        self._changed = threading.Condition()
        self._queue: deque[Callable[[], None]] = deque()  # what the IOPub thread is to send
        self._is_told = False  # it will look there
        self._batch: Any = None  # what one flush sends
        self._is_flushed = threading.Event()
        self._is_flushed.set()
        self.flushed: Callable[[], None] = lambda: None  # is told of each flush
        self._has_children = False  # forked ones
        self._text_id = b""  # of the message that had text last
        self._send = thread.send_multipart
        thread.send_multipart = self.send_multipart
        thread.schedule(self._prepare)  # sockets are not thread-safe
        os.register_at_fork(after_in_parent=self._note_child)

    def _note_child(self) -> None:
        self._has_children = True

    def _prepare(self) -> None:
        # Changes the connections that exist. Later ones get what the socket was bound with: so this
        # must run once the kernel's front has connected.
        with contextlib.suppress(Exception):
            self._thread.socket.set_hwm(0)
        stream = getattr(self._thread, "_xpub_stream", None)
        if stream is not None:
            stream.on_recv(self._receive)
            self._hears = True  # by the process that had this file run

    def _receive(self, frames: Any) -> None:
        if frames[0][1:] == ACK:
            self._add(unread=-QUANTUM)
        else:
            self._thread._handle_subscription(frames)

    def _listen(self) -> None:
        """Its loop hears of what comes once, and not at all if that is while the socket sends."""
        if self._hears:
            import zmq  # where there is no ipykernel there is none

            socket = self._thread.socket
            while socket.get(zmq.EVENTS) & zmq.POLLIN:
                self._receive(socket.recv_multipart())

    def send_multipart(self, frames: Any, *args: Any, **kwargs: Any) -> None:
        if os.getpid() != self._pid:  # a forked child, which has no thread
            self._send(frames, *args, **kwargs)
            return
        size = weight(frames)
        if is_text(frames) and (found := ID.search(b"".join(frames[HEADER : HEADER + 1]))):
            self._text_id = found[1]

        def send() -> None:
            self._thread._really_send(frames, *args, **kwargs)

        if self._batch is not None and threading.current_thread() is self._thread.thread:
            self._ask(send, size, self._batch)
            return
        self._ask(send, size, self._queue)
        self._tell()
        self.wait()

    def _ask(self, what: Callable[[], None], size: int, queue: deque[Callable[[], None]]) -> None:
        def do() -> None:
            try:
                what()
            finally:
                self._done += 1
                self._add(unsent=-size)

        # First of all: a Stop that comes in between must not leave us waiting for what is not there.
        queue.append(do)
        self._add(size, size, asked=1)

    def _tell(self) -> None:
        """The IOPub thread: once for all that is there when it looks, for to wake it takes long."""
        if self._is_told:
            return
        self._is_told = True
        try:
            self._schedule(self._look)
        except BaseException:
            self._is_told = False
            raise

    def _look(self) -> None:
        self._is_told = False
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            if self._queue:  # what fails takes no other along
                self._tell()
        with contextlib.suppress(Exception):  # closed: the process ends
            self._listen()

    def in_one(self, flush: Any) -> bytes:
        """Send what a flush sends, now; the id of its last message, if it sent any.

        The IOPub thread could not read a thousand, while it schedules them for itself.
        """
        if threading.current_thread() is not self._thread.thread:
            self._text_id = b""
            flush()
            return self._text_id
        self._look()  # what was said before comes before it
        batch, self._text_id = deque[Callable[[], None]](), b""
        self._batch = batch
        try:
            flush()
        finally:
            self._batch = None
            self.flushed()
        if batch:
            self._queue.extendleft(reversed(batch))
            self._look()
        return self._text_id

    def flush(self, stream: Any) -> None:
        """Send what it has collected, and all that was said before, and wait until that is done."""
        if stream._buffers or self._has_children:
            self._ask(lambda: self._flush(stream), 0, self._queue)
        if self._queue:  # also what a Stop has left there
            self._tell()
        self._settle(stream.flush_timeout)
        self.wait()

    def _flush(self, stream: Any) -> None:
        if self._has_children:
            with contextlib.suppress(Exception):
                self._hear_children()
        stream._flush()

    def _hear_children(self) -> None:
        """What they have said before they ended is here, but perhaps not read."""
        import zmq

        self._thread._pipe_in.flush(zmq.POLLIN)

    def relieve(self, stream: Any) -> None:
        """Send what waits in this stream, now; wait only if that is still asked for."""
        if not self.may_wait():
            self._schedule(stream._flush)
            return
        while not self._is_flushed.wait(CHECK) and self._thread.thread.is_alive():
            pass
        self._is_flushed.clear()

        def flush() -> None:
            try:
                stream._flush()
            finally:
                self._is_flushed.set()

        self._schedule(flush)
        self.wait()

    def wait(self) -> None:
        """Until not too much is under way."""
        if self.is_too_much and self.may_wait():
            with self._changed:
                while self.is_too_much and self._thread.thread.is_alive():
                    self._changed.wait(CHECK)

    def _settle(self, seconds: float) -> None:
        """Wait until all that was asked for so far is done."""
        if self._done >= self._asked:
            return
        end = time.monotonic() + seconds
        with self._changed:
            goal = self._asked
            while self._done < goal and self._thread.thread.is_alive() and time.monotonic() < end:
                self._changed.wait(CHECK)

    def may_wait(self) -> bool:
        """The IOPub thread would wait for itself, and what Stop needs shall not wait for anybody."""
        me = threading.current_thread()
        return me is not self._thread.thread and me.name != "Control" and os.getpid() == self._pid

    def _add(self, unsent: int = 0, unread: int = 0, asked: int = 0) -> None:
        with self._changed:
            self._asked += asked
            self._unsent += unsent
            self._unread = max(0, self._unread + unread)
            self.is_too_much = self._unsent > UNSENT or (self._hears and self._unread > WINDOW)
            if not asked:
                self._changed.notify_all()


class Buffer(list):  # type: ignore[type-arg]
    """What ipykernel collects the text of one parent in, instead of a ``StringIO``.

    Which lines came together is found out when they are sent (``mark``).
    """

    mark: Any = None  # what is made of the pieces' text, for all of them
    knows_pipes = False  # what other processes wrote is told apart
    is_full = False  # one of them
    __slots__ = ("keep", "size")

    def __init__(self, keep: Callable[[str], None] = lambda text: None) -> None:
        """``keep`` is told of the first `KEPT` characters."""
        self.keep = keep
        self.size = 0

    def write(self, text: str) -> None:
        self.append(text)
        size = self.size
        self.size = size + len(text)
        if size < KEPT:
            self.keep(text)
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


def told_shortly(wait: Callable[[], None]) -> Callable[[], None]:
    """A Stop in there is told without the frames of the wait that it ends.

    IPython would read the whole of `threading`, for half a second, in all ranks at once.
    """

    def call() -> None:
        try:
            wait()
        except KeyboardInterrupt as stop:
            raise stop.with_traceback(None) from None

    return call


def collect(stream: Any, flow: Flow, words: Any) -> None:
    """Let a stream collect its text in `Buffer`, and send it in chunks.

    ``words``: what keeps its last words (`words.Words`), if they are kept.
    """
    schedule_flush = stream._schedule_flush

    def schedule() -> None:
        if stream._flush_pending and not (flow.is_too_much or Buffer.is_full):
            return  # after nearly every word that is printed
        if Buffer.is_full:
            Buffer.is_full = False
            relieve()
            return
        if not stream._flush_pending:
            schedule_flush()
        if flow.is_too_much:
            wait()

    def new_buffer() -> Buffer:
        return Buffer() if words is None else Buffer(words.keep)

    def rotate_buffers() -> Any:
        with stream._buffer_lock:
            collected, stream._buffers = stream._buffers, defaultdict(new_buffer)
            if words is not None:
                words.leave()
        return collected

    def flush_buffers() -> Iterator[Any]:
        for parent, buffer in rotate_buffers().items():
            for text in buffer.chunks():
                yield dict(parent), text
            buffer.close()

    def send() -> None:
        msg_id = flow.in_one(send_all)
        if words is not None:
            with stream._buffer_lock:
                words.left(msg_id)

    def flush_and_wait() -> None:
        if flow.may_wait():
            flow.flush(stream)
        elif stream._buffers:
            flush()

    relieve, wait = told_shortly(lambda: flow.relieve(stream)), told_shortly(flow.wait)
    stream._schedule_flush = schedule
    flush, send_all = stream.flush, stream._flush
    stream._buffers.default_factory = new_buffer
    stream.flush = told_shortly(flush_and_wait)
    stream._flush_buffers = flush_buffers
    stream._flush = send


def install(streams: Any, iostream: Any, keep: Callable[[Any], Any]) -> Any:
    """For ipykernel's streams; once.  Older ones have a single buffer and stay as they are.

    ``keep`` makes what keeps a stream's last words, or None.
    """
    thread = getattr(streams[0], "pub_thread", None)
    if not (hasattr(thread, "schedule") and hasattr(thread, "_really_send")):
        return None
    flow = Flow(thread)
    if all(hasattr(getattr(s, "_buffers", None), "default_factory") for s in streams):
        for stream in streams:
            collect(stream, flow, keep(stream))
        iostream.StringIO = Buffer
    return flow
