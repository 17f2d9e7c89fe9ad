"""Our sockets to one rank, and how it becomes ready.

`RankSockets` is frames in, frames out; `RankLink` knows messages and the handshake.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import zmq

from ..core import content as json
from ..core.errors import BadMessage
from ..core.model import Channel, Message
from ..engines.base import Endpoint, LastWords
from .sockets import LoopSocket
from .wire import Wire

CHANNELS: tuple[Channel, ...] = ("iopub", "stdin", "control", "shell")
RECONNECT = 4, 40  # ms, growing: the first connect usually comes before the rank has bound
ASK_AGAIN = 0.2  # s; a rank that answers on shell while our IOPub is not connected is asked again
DRAIN_DEADLINE = 0.25  # s; a forked child of a dead rank may hold its connections open
TEXTS = 64  # more than can come after the one that counts: of other threads, of forked children
# As in `rank/flow.py`: so much was read.
ACK, QUANTUM, MESSAGE, LIGHT = b"\0spmd-read", 1 << 19, 1 << 14, 2

Context = zmq.Context[zmq.Socket[bytes]]
Frames = Sequence[bytes | memoryview]
Deliver = Callable[[Channel, Message], None]
Ready = Callable[[dict[str, Any]], None]
Bad = Callable[[str], None]

# Each of these says that there is no connection now: libzmq has read the last one to its end.
_NOT_CONNECTED = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED


class RankLink:
    """Connects at once, asks until the rank answers on shell and on IOPub, then says ``ready``.

    ``ready`` gets the content of kernel_info_reply, once.  ``deliver`` gets every message that is
    not part of this handshake; ``bad`` one line for each that is no message.
    """

    def __init__(
        self,
        context: Context,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        wire: Wire,
        deliver: Deliver,
        ready: Ready,
        bad: Bad,
    ) -> None:
        self._loop = loop
        self._rank = endpoint.rank
        self._wire = wire
        self._deliver = deliver
        self._ready: Ready | None = ready
        self._bad = bad
        self._asked: set[str] = set()
        self._info: dict[str, Any] | None = None
        self._heard_iopub = False
        self._texts: deque[str] = deque(maxlen=TEXTS)  # ids of the last messages with text
        self._timer: asyncio.TimerHandle | None = None
        self._sockets = RankSockets(context, loop, endpoint, self._receive)
        self._ask()

    def send(self, channel: Channel, frames: Frames) -> None:
        """Send the frames of `Wire.pack`, which may be shared between ranks."""
        self._sockets.send(channel, frames)

    def listen(self, on: bool) -> None:
        """Whether IOPub is read."""
        self._sockets.listen(on)

    def drain(self) -> None:
        """Deliver everything that has arrived, IOPub first."""
        self._sockets.drain()

    def when_drained(self, then: Callable[[], None]) -> None:
        """For a rank that is gone: call ``then`` when its last IOPub message has been delivered.

        That is when the connection is seen to be closed: `drain` alone can come before libzmq's
        thread has read the socket to its end.  At the latest `DRAIN_DEADLINE` after the last message;
        not called after `close`.
        """
        self._sockets.when_drained(then)

    def unheard(self, words: LastWords) -> str:
        """What of a dead rank's last words has not come, once that is drained."""
        return words.unsent if words.msg_id in self._texts else words.sent + words.unsent

    def close(self) -> None:
        self._stop_asking()
        self._ready = None
        self._sockets.close()

    def _ask(self) -> None:
        self._timer = None
        request = self._wire.compose("kernel_info_request", b"{}", {}, {})
        self._asked.add(request.msg_id)
        self.send("shell", self._wire.pack(request))

    def _stop_asking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _receive(self, channel: Channel, frames: list[bytes]) -> None:
        try:
            _, message = self._wire.unpack(frames)
            ours = message.parent_id in self._asked
            if ours and message.msg_type == "kernel_info_reply":
                self._info = _info(message)
        except BadMessage as error:
            self._bad(f"dropped a message of rank {self._rank} on {channel}: {error}")
            return
        if channel == "iopub":
            self._heard_iopub = True
            if message.msg_type == "stream":
                self._texts.append(message.msg_id)
        if self._ready is not None:
            self._progress()
        if not ours and message.msg_type != "iopub_welcome":
            self._deliver(channel, message)

    def _progress(self) -> None:
        if self._info is None or self._ready is None:
            return
        if not self._heard_iopub:
            if self._timer is None:
                self._timer = self._loop.call_later(ASK_AGAIN, self._ask)
            return
        self._stop_asking()
        ready, self._ready = self._ready, None
        ready(self._info)


class RankSockets:
    """DEALERs for shell, control and stdin under one routing id, a SUB for IOPub.

    Nothing is dropped and nothing waits: no high-water marks, for the rank is ours.  It is told how much
    was read, and sees to it that not too much is under way (`rank/flow.py`).
    """

    def __init__(
        self,
        context: Context,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        receive: Callable[[Channel, list[bytes]], None],
    ) -> None:
        self._loop = loop
        self._receive = receive
        self._unacknowledged = 0  # bytes
        self._is_odd = False
        self._sockets: dict[Channel, LoopSocket] = {}
        self._farewell: _Disconnected | None = None
        routing_id = secrets.token_hex(8).encode()  # one for all: ranks route stdin by shell's
        for channel in CHANNELS:
            socket = _socket(context, channel, routing_id)
            socket.connect(endpoint.addresses[channel])
            self._sockets[channel] = LoopSocket(socket, partial(self._received, channel))
            self._sockets[channel].start(loop)

    def _received(self, channel: Channel, frames: list[bytes]) -> None:
        self._receive(channel, frames)
        if channel == "iopub":
            self._acknowledge(weight(frames))
            if self._farewell is not None:
                self._farewell.heard()

    def _acknowledge(self, size: int) -> None:
        """Tell the rank what was read: how else could it wait when it says too much?

        The only way from a subscriber to its publisher are subscriptions.
        """
        self._unacknowledged += size
        while self._unacknowledged >= QUANTUM:
            self._unacknowledged -= QUANTUM
            self._is_odd = not self._is_odd
            socket = self._sockets["iopub"].socket
            if socket.closed:
                return
            if self._is_odd:
                socket.subscribe(ACK)
            else:
                socket.unsubscribe(ACK)

    def send(self, channel: Channel, frames: Frames) -> None:
        self._sockets[channel].send(frames)

    def listen(self, on: bool) -> None:
        if self._farewell is None:
            self._sockets["iopub"].listen(on)

    def drain(self) -> None:
        for socket in self._sockets.values():
            if not socket.socket.closed:
                socket.drain()

    def when_drained(self, then: Callable[[], None]) -> None:
        def finish() -> None:
            self.drain()
            then()

        self.listen(True)
        self._farewell = _Disconnected(self._loop, self._sockets["iopub"].socket, finish)

    def close(self) -> None:
        if self._farewell is not None:
            self._farewell.cancel()
        for socket in self._sockets.values():
            socket.close(0)


class _Disconnected:
    """Calls ``then`` once the socket's connection is gone, or when nothing came until the deadline."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], then: Callable[[], None]
    ) -> None:
        self._socket = socket
        self._then = then
        monitor = socket.get_monitor_socket(_NOT_CONNECTED)
        self._monitor = LoopSocket(monitor, lambda _: self._finish())
        self._loop = loop
        self._timer = loop.call_later(DRAIN_DEADLINE, self._finish)
        self._monitor.start(loop)

    def heard(self) -> None:
        """Something came: there may be more."""
        if not self._monitor.socket.closed:
            self._timer.cancel()
            self._timer = self._loop.call_later(DRAIN_DEADLINE, self._finish)

    def cancel(self) -> None:
        self._timer.cancel()
        if not self._monitor.socket.closed:
            # In this order: libzmq's thread would block on an event that nobody can receive.
            self._socket.disable_monitor()
            self._monitor.close()

    def _finish(self) -> None:
        self.cancel()
        self._then()


def _socket(context: Context, channel: Channel, routing_id: bytes) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = 0
    socket.reconnect_ivl, socket.reconnect_ivl_max = RECONNECT
    if channel == "iopub":
        socket.subscribe(b"")
    else:
        socket.routing_id = routing_id
    return socket


def weight(frames: Sequence[bytes]) -> int:
    """What a message counts, whose first frame is its topic."""
    size = sum(map(len, frames))
    return MESSAGE + (size if frames[0].startswith(b"stream") else size >> LIGHT)


def _info(message: Message) -> dict[str, Any]:
    info = json.read(message.content)
    if info.get("status", "ok") != "ok":
        raise BadMessage(f"kernel_info_reply has status {info['status']!r}")
    return dict(info)
