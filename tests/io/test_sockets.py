"""The traps of a zmq socket on asyncio's loop, each reproduced."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import pytest
import zmq

from spmd_kernel.io.sockets import SLICE, LoopSocket


@pytest.fixture
def pair(context: Any, tmp_path: Any) -> Any:
    """A ROUTER for us and a DEALER for the peer, connected; the ROUTER knows the DEALER."""

    def connect() -> tuple[Any, Any]:
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        for socket in (router, dealer):
            socket.sndhwm = socket.rcvhwm = 0
        dealer.routing_id = b"peer"
        router.bind(f"ipc://{tmp_path}/pair")
        dealer.connect(f"ipc://{tmp_path}/pair")
        dealer.send(b"hello")
        assert router.recv_multipart() == [b"peer", b"hello"]
        return router, dealer

    return connect


def test_a_send_does_not_eat_the_wake_up_of_a_message(
    run: Any, inbox: Any, pair: Any, busy: Any
) -> None:
    async def main() -> None:
        router, dealer = pair()
        got = inbox()
        ours = LoopSocket(router, got)
        ours.start(asyncio.get_running_loop())
        for number in range(1, 21):
            await asyncio.sleep(0)
            dealer.send(b"%d" % number)
            busy(0.005)  # the loop is busy while the message arrives …
            ours.send([b"peer", b"answer"])  # … and this processes its wake-up
            await got.count(number)
        ours.close()

    run(main())


def test_messages_that_came_before_start_are_heard(run: Any, inbox: Any, pair: Any) -> None:
    async def main() -> None:
        router, dealer = pair()
        for number in range(3):
            dealer.send(b"%d" % number)
        assert router.poll(5000)
        assert router.recv_multipart()[1] == b"0"  # takes the edge
        got = inbox()
        ours = LoopSocket(router, got)
        ours.start(asyncio.get_running_loop())
        await got.count(2)
        ours.close()

    run(main())


def test_what_receive_raises_costs_one_message_only(run: Any, pair: Any, inbox: Any) -> None:
    async def main() -> None:
        router, dealer = pair()
        got, errors = inbox(), inbox()

        def receive(frames: list[bytes]) -> None:
            got(frames[1])
            raise ValueError(frames[1])

        ours = LoopSocket(router, receive, errors)
        ours.start(asyncio.get_running_loop())
        for number in range(3):
            dealer.send(b"%d" % number)
        await got.count(3)
        assert [error.args[0] for error in errors] == [b"0", b"1", b"2"]
        ours.close()

    run(main())


def test_errors_go_to_the_loops_handler_by_default(run: Any, pair: Any, inbox: Any) -> None:
    async def main() -> None:
        router, dealer = pair()
        seen = inbox()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen(context))

        def receive(frames: list[bytes]) -> None:
            raise ValueError("ours")

        ours = LoopSocket(router, receive)
        ours.start(asyncio.get_running_loop())
        dealer.send(b"x")
        await seen.count(1)
        assert str(seen[0]["exception"]) == "ours"
        ours.close()

    run(main())


def test_a_flood_does_not_starve_the_loop_and_loses_nothing(
    run: Any, pair: Any, inbox: Any
) -> None:
    async def main() -> None:
        router, dealer = pair()
        total = 50 * SLICE
        for number in range(total):
            dealer.send(b"%d" % number)
        dealer.send(b"last")
        got = inbox()
        ours = LoopSocket(router, got)
        ours.start(asyncio.get_running_loop())
        most, before = 0, 0
        while len(got) <= total:
            await asyncio.sleep(0)
            most, before = max(most, len(got) - before), len(got)
        assert most <= 2 * SLICE  # a wake-up and our own turn may fall into one iteration
        assert [frames[1] for frames in got[:-1]] == [b"%d" % n for n in range(total)]
        ours.close()

    run(main())


def test_drain_reads_to_the_end_at_once(run: Any, pair: Any, inbox: Any) -> None:
    async def main() -> None:
        router, dealer = pair()
        got = inbox()
        ours = LoopSocket(router, got)
        ours.start(asyncio.get_running_loop())
        for number in range(3 * SLICE):
            dealer.send(b"%d" % number)
        deadline = time.monotonic() + 10
        while len(got) < 3 * SLICE and time.monotonic() < deadline:
            ours.drain()  # no await: the loop never runs here
        assert len(got) == 3 * SLICE
        ours.close()

    run(main())


def test_paused_it_hears_nothing_and_still_sends(run: Any, pair: Any, inbox: Any) -> None:
    async def main() -> None:
        router, dealer = pair()
        got = inbox()
        ours = LoopSocket(router, got)
        ours.start(asyncio.get_running_loop())
        dealer.send(b"in time")
        await got.count(1)
        ours.pause()
        dealer.send(b"too late")
        assert router.poll(5000)
        await asyncio.sleep(0)
        assert ours.send([b"peer", b"bye"])
        assert await asyncio.to_thread(dealer.recv) == b"bye"
        assert len(got) == 1
        ours.close()

    run(main())


def test_receive_may_close_the_socket(run: Any, pair: Any, inbox: Any) -> None:
    async def main() -> None:
        router, dealer = pair()
        got = inbox()

        def receive(frames: list[bytes]) -> None:
            ours.close()
            got(frames)

        ours = LoopSocket(router, receive)
        ours.start(asyncio.get_running_loop())
        dealer.send(b"1")
        dealer.send(b"2")
        await got.count(1)
        await asyncio.sleep(0)
        assert len(got) == 1
        assert not ours.send([b"peer", b"x"])
        ours.close()

    run(main())


def test_closed_it_is_not_watched_any_more(run: Any, pair: Any, inbox: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        router, _ = pair()
        ours = LoopSocket(router, inbox())
        ours.start(loop)
        fd = router.fileno()
        ours.close()
        assert not loop.remove_reader(fd)
        ours.drain()
        await asyncio.sleep(0)

    run(main())


def test_a_send_without_room_is_dropped_at_once(run: Any, context: Any, inbox: Any) -> None:
    async def main() -> None:
        lonely = context.socket(zmq.DEALER)
        ours = LoopSocket(lonely, inbox())
        ours.start(asyncio.get_running_loop())
        assert not ours.send([b"x"])
        ours.close()

    run(main())


def test_the_end_of_the_context_is_quiet(run: Any, inbox: Any, until: Any) -> None:
    async def main() -> None:
        context: Any = zmq.Context()
        ours = LoopSocket(context.socket(zmq.ROUTER), inbox())
        ours.start(asyncio.get_running_loop())
        ender = threading.Thread(target=context.term)
        ender.start()
        await until(lambda: ours._loop is None)
        assert not ours.send([b"peer", b"x"])
        ours.close()
        await asyncio.to_thread(ender.join)

    run(main())


def test_a_large_message_is_shared_not_copied(
    run: Any, pair: Any, inbox: Any, context: Any, tmp_path: Any
) -> None:
    async def main() -> None:
        router, dealer = pair()
        ours = LoopSocket(router, inbox())
        ours.start(asyncio.get_running_loop())
        large = b"x" * (8 << 20)
        assert ours.send([b"peer", large, memoryview(large)])
        assert await asyncio.to_thread(dealer.recv_multipart) == [large, large]
        ours.close()
        waiting = context.socket(zmq.DEALER)
        waiting.connect(f"ipc://{tmp_path}/nobody-there")
        before = sys.getrefcount(large)
        assert LoopSocket(waiting, inbox()).send([large])
        assert sys.getrefcount(large) > before

    run(main())
