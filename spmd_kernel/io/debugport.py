"""The debug port: a TCP server on the loopback interface whose connections carry bytes to the core.

What the bytes mean, who may say them and who is sent away is decided there (`core.dap.tcp`).
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from itertools import count

from ..core.model import Connected, Disconnected, Event, PortOpened, Received

HOST = "127.0.0.1"
MOST_UNREAD = 64 << 20  # bytes that a client may leave unread
PARTING_SECONDS = 5.0  # that it has to read its last ones
BACKLOG = 16


class DebugPort:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
        feed: Callable[[Event], None],
    ):
        self._loop = loop
        self._now = now
        self._feed = feed
        self._listening: socket.socket | None = None
        self._server: asyncio.Task[asyncio.Server] | None = None
        self._numbers = count(1)
        self.connections: dict[int, _Connection] = {}

    def open(self, port: int) -> None:
        """Listen; answered by `PortOpened`, at once."""
        try:
            listening = _listen(port)
        except OSError as error:
            why = f"port {port}: {error.strerror}" if port else str(error)
            self._feed(PortOpened(self._now(), 0, "", why))
            return
        self._listening = listening
        self._server = self._loop.create_task(
            self._loop.create_server(self._connection, sock=listening)
        )
        token = secrets.token_urlsafe(24)
        self._feed(PortOpened(self._now(), listening.getsockname()[1], token))

    def close(self) -> None:
        """Listen no more."""
        server, self._server = self._server, None
        listening, self._listening = self._listening, None
        if server is not None and server.done() and not server.cancelled():
            server.result().close()
        elif server is not None:
            server.cancel()
        if listening is not None:
            listening.close()

    def send(self, connection: int, data: bytes) -> None:
        if found := self.connections.get(connection):
            found.send(data)

    def hang_up(self, connection: int) -> None:
        if found := self.connections.get(connection):
            found.hang_up(self._loop)

    async def shut_down(self) -> None:
        """Nothing is left: neither the port nor a connection."""
        self.close()
        for connection in list(self.connections.values()):
            connection.hang_up(self._loop)
        # What is written has one turn of the loop to leave; a client that does not read has had its time.
        await asyncio.sleep(0)
        for connection in list(self.connections.values()):
            connection.abort()

    def _connection(self) -> _Connection:
        return _Connection(next(self._numbers), self)

    # What connections tell

    def connected(self, connection: _Connection) -> None:
        self.connections[connection.number] = connection
        self._feed(Connected(self._now(), connection.number))

    def received(self, connection: _Connection, data: bytes) -> None:
        self._feed(Received(self._now(), connection.number, data))

    def lost(self, connection: _Connection) -> None:
        del self.connections[connection.number]
        self._feed(Disconnected(self._now(), connection.number))


class _Connection(asyncio.Protocol):
    def __init__(self, number: int, port: DebugPort):
        self.number = number
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._parting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._port.connected(self)

    def data_received(self, data: bytes) -> None:
        if self._parting is None:
            self._port.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._parting is not None:
            self._parting.cancel()
        self._port.lost(self)

    def send(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > MOST_UNREAD:
            self._transport.abort()

    def hang_up(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._transport is not None and self._parting is None:
            self._parting = loop.call_later(PARTING_SECONDS, self.abort)
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
