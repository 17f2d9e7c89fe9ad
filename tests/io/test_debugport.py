"""The debug port's server with real sockets, and a core that only listens."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from spmd_kernel.core.model import Connected, Disconnected, Event, PortOpened, Received
from spmd_kernel.io import debugport
from spmd_kernel.io.debugport import DebugPort

DEADLINE = 30.0


class Heard:
    """The events, in order; `until` waits for the next that one wants."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._came = asyncio.Event()

    def feed(self, event: Event) -> None:
        self.events.append(event)
        self._came.set()

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not holds():
                self._came.clear()
                await self._came.wait()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def data(self) -> bytes:
        return b"".join(event.data for event in self.of(Received))


Test = Callable[[DebugPort, Heard], Coroutine[Any, Any, None]]


def run(test: Test) -> None:
    async def main() -> None:
        heard = Heard()
        port = DebugPort(asyncio.get_running_loop(), time.monotonic, heard.feed)
        try:
            await test(port, heard)
        finally:
            await port.shut_down()
            await heard.until(lambda: not port.connections)

    asyncio.run(main())


def opened(port: DebugPort, heard: Heard, number: int = 0) -> PortOpened:
    port.open(number)
    event: PortOpened = heard.of(PortOpened)[-1]
    return event


async def client(event: PortOpened) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", event.port)


def test_bytes_go_both_ways_and_the_last_ones_arrive() -> None:
    async def test(port: DebugPort, heard: Heard) -> None:
        reader, writer = await client(opened(port, heard))
        writer.write(b"hello")
        await heard.until(lambda: heard.data == b"hello")
        ((connection,),) = [[event.connection for event in heard.of(Connected)]]
        port.send(connection, b"x" * 1_000_000)
        port.hang_up(connection)
        assert await reader.read() == b"x" * 1_000_000
        await heard.until(lambda: heard.of(Disconnected))
        assert [event.connection for event in heard.of(Disconnected)] == [connection]
        port.send(connection, b"late"), port.hang_up(connection)  # nobody is there
        writer.close()

    run(test)


def test_a_client_that_leaves() -> None:
    async def test(port: DebugPort, heard: Heard) -> None:
        _, writer = await client(opened(port, heard))
        writer.write(b"bye")
        writer.close()
        await heard.until(lambda: heard.of(Disconnected))
        assert heard.data == b"bye"

    run(test)


def test_each_opening_has_a_token_of_its_own() -> None:
    async def test(port: DebugPort, heard: Heard) -> None:
        first = opened(port, heard)
        port.close()
        with pytest.raises(ConnectionRefusedError):
            await client(first)
        second = opened(port, heard, first.port)
        assert second.port == first.port and second.token != first.token
        assert len(first.token) == 32
        _, writer = await client(second)
        await heard.until(lambda: heard.of(Connected))
        writer.close()
        await heard.until(lambda: heard.of(Disconnected))

    run(test)


def test_it_closes_before_it_has_begun() -> None:
    async def test(port: DebugPort, heard: Heard) -> None:
        event = opened(port, heard)
        port.close()
        port.close()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await client(event)

    run(test)


def test_a_port_that_is_taken() -> None:
    async def test(port: DebugPort, heard: Heard) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            event = opened(port, heard, number)
        assert event.problem == f"port {number}: Address already in use" and not event.token

    run(test)


def test_only_the_loopback_interface() -> None:
    async def test(port: DebugPort, heard: Heard) -> None:
        event = opened(port, heard)
        assert port._listening is not None
        assert port._listening.getsockname() == ("127.0.0.1", event.port)

    run(test)


def test_who_does_not_read_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debugport, "MOST_UNREAD", 100_000)

    async def test(port: DebugPort, heard: Heard) -> None:
        event = opened(port, heard)
        with socket.create_connection(("127.0.0.1", event.port)):
            await heard.until(lambda: heard.of(Connected))
            for _ in range(1000):
                port.send(1, b"x" * 100_000)
                if not port.connections:
                    break
                await asyncio.sleep(0)
            await heard.until(lambda: heard.of(Disconnected))

    run(test)


def test_who_does_not_read_does_not_hinder_the_end() -> None:
    async def test(port: DebugPort, heard: Heard) -> None:
        event = opened(port, heard)
        with socket.create_connection(("127.0.0.1", event.port)):
            await heard.until(lambda: heard.of(Connected))
            port.send(1, b"x" * 20_000_000)
            await port.shut_down()
            await heard.until(lambda: heard.of(Disconnected))

    run(test)
