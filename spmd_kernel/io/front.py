"""The five sockets that clients see."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial

import zmq

from ..core import content as json
from ..core.errors import BadMessage
from ..core.model import Channel, Message, ToFront
from .connection import ConnectionInfo
from .heartbeat import Heartbeat
from .sockets import LoopSocket
from .wire import Wire

__all__ = ["ConnectionInfo", "Front"]

LINGER = 1000  # ms for the last messages (shutdown_reply) to leave, as in ipykernel
# Messages kept per subscriber that is behind; the rest it misses.  ipykernel's 1000 are too few for a
# client that reads as fast as it can, when eight ranks show thousands of displays.
IOPUB_QUEUE = 4000
ROUTERS: tuple[Channel, ...] = ("shell", "control", "stdin")

Context = zmq.Context[zmq.Socket[bytes]]
Deliver = Callable[[Channel, tuple[bytes, ...], Message], None]
Subscribed = Callable[[bytes], None]
Bad = Callable[[str], None]


class Front:
    """Binds the sockets of ``connection``, delivers what clients send, sends what we answer.

    ``deliver`` gets each authentic message of shell, control and stdin; ``subscribed`` the topic of
    each new IOPub subscription (the answer is ``iopub_welcome``, JEP 65); ``bad`` one line for each
    message dropped.  `send` never waits: a client that is gone or does not read misses messages.
    """

    def __init__(
        self,
        context: Context,
        connection: ConnectionInfo,
        wire: Wire,
        deliver: Deliver,
        subscribed: Subscribed,
        bad: Bad,
    ) -> None:
        self.connection = connection
        self._context = context
        self._wire = wire
        self._deliver = deliver
        self._subscribed = subscribed
        self._bad = bad
        self._sockets: dict[Channel, LoopSocket] = {}
        self._heartbeat: Heartbeat | None = None
        self._bound: dict[str, int] = {}

    def bind(self) -> None:
        """Bind; ports that were 0 are in ``connection`` and in the file then. Raises `UsageError`."""
        try:
            for channel in ROUTERS:
                self._bind_router(channel)
            self._bind_iopub()
            self._bind_heartbeat()
            if self._bound != self.connection.ports:
                self.connection = self.connection.with_ports(self._bound)
                self.connection.write()
        except BaseException:
            self.close()
            raise

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        for socket in self._sockets.values():
            socket.start(loop)

    def send(self, effect: ToFront) -> None:
        message = self._wire.compose(
            effect.msg_type,
            effect.content,
            effect.parent,
            effect.metadata,
            effect.buffers,
            effect.msg_id,
        )
        frames = self._wire.pack(message)
        if effect.channel == "iopub":
            frames.insert(0, self._topic(effect))
        else:
            frames[:0] = effect.idents
        self._sockets[effect.channel].send(frames)

    def drain(self) -> None:
        """Before exit: hear nothing more.

        Nothing of ours waits to be sent: libzmq's thread has it all, and after `close` the end of
        the context (``context.term()``) waits for it, `LINGER` ms at most.
        """
        for socket in self._sockets.values():
            socket.pause()

    def close(self) -> None:
        """Idempotent.  Leaves no thread; ipc socket files are removed."""
        for socket in self._sockets.values():
            socket.close(LINGER)
        if self._heartbeat is not None:
            self._heartbeat.close()
        bound = self.connection.with_ports(self._bound)
        for name in self._bound:
            bound.remove(name)
        self._bound = {}

    def _bind_router(self, channel: Channel) -> None:
        socket = self._context.socket(zmq.ROUTER)
        # A client that reconnects under its old id takes over (zeromq/libzmq#2892).
        socket.router_handover = True
        self._sockets[channel] = LoopSocket(socket, partial(self._receive, channel))
        self._bound[channel] = self.connection.bind(channel, socket)

    def _bind_iopub(self) -> None:
        socket = self._context.socket(zmq.XPUB)
        socket.xpub_verbose = True  # every subscriber is welcomed, not only the first of a topic
        socket.sndhwm = IOPUB_QUEUE
        self._sockets["iopub"] = LoopSocket(socket, self._receive_subscription)
        self._bound["iopub"] = self.connection.bind("iopub", socket)

    def _bind_heartbeat(self) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        try:
            self._bound["hb"] = self.connection.bind("hb", socket)
        except BaseException:
            socket.close()
            raise
        self._heartbeat = Heartbeat(self._context, socket)

    def _receive(self, channel: Channel, frames: list[bytes]) -> None:
        try:
            idents, message = self._wire.unpack(frames)
        except BadMessage as error:
            self._bad(f"dropped a message on {channel}: {error}")
            return
        self._deliver(channel, idents, message)

    def _receive_subscription(self, frames: list[bytes]) -> None:
        if frames[0][:1] == b"\1":
            self._subscribed(frames[0][1:])

    def _topic(self, effect: ToFront) -> bytes:
        """Topics as ipykernel's; for a welcome the subscription, or its subscriber would not see it."""
        if effect.msg_type == "iopub_welcome":
            topic = json.read(effect.content).text("subscription")
            return topic.encode("utf-8", "surrogateescape")
        if effect.msg_type == "stream":
            name = _STREAM_NAME.match(effect.content)
            return b"stream." + name[1] if name else b"stream"
        if effect.msg_type in ("display_data", "update_display_data", "clear_output"):
            return b"display_data"
        return f"kernel.{self._wire.session}.{effect.msg_type}".encode()


_STREAM_NAME = re.compile(rb'\s*\{\s*"name"\s*:\s*"(\w+)"')
