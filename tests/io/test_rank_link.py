"""The link to a rank: a scripted one that binds late, is deaf, lies or dies, and a real ipykernel."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import zmq

from spmd_kernel.core.content import dumps, read
from spmd_kernel.engines.base import Endpoint
from spmd_kernel.io.rank import RankLink

KEY = b"a-key-that-every-test-shares"


@pytest.fixture
def linked(context: Any, wire: Any, inbox: Any) -> Any:
    def link(endpoint: Endpoint) -> tuple[RankLink, Any, Any, Any]:
        got, ready, bad = inbox(), inbox(), inbox()
        loop = asyncio.get_running_loop()
        return RankLink(context, loop, endpoint, wire, got, ready, bad), got, ready, bad

    return link


def request(wire: Any, kind: str, body: dict[str, Any] | None = None) -> tuple[str, Any]:
    message = wire.compose(kind, dumps(body or {}), {}, {})
    return message.msg_id, wire.pack(message)


def test_a_rank_that_binds_after_a_second_gets_ready(run: Any, linked: Any, scripted: Any) -> None:
    async def main() -> None:
        rank = scripted()
        link, got, ready, bad = linked(rank.endpoint)
        await asyncio.sleep(1)
        assert not ready
        rank.bind()
        await ready.count(1)
        assert ready == [{"status": "ok", "implementation": "scripted"}]
        await asyncio.sleep(0.3)  # nothing of the handshake comes later either
        assert (got, bad, len(ready)) == ([], [], 1)
        link.close()

    run(main())


@pytest.mark.parametrize("script", [{"welcome": False}, {"deaf": 1}, {"deaf": 3, "welcome": False}])
def test_a_rank_is_asked_until_its_iopub_is_heard(
    run: Any, linked: Any, scripted: Any, script: dict[str, Any]
) -> None:
    async def main() -> None:
        rank = scripted(**script)
        rank.bind()
        link, got, ready, bad = linked(rank.endpoint)
        await ready.count(1)
        assert len(rank.requests) >= script.get("deaf", 1)
        assert (got, bad, len(ready)) == ([], [], 1)
        link.close()

    run(main())


def test_messages_of_requests_are_delivered_in_order(
    run: Any, linked: Any, scripted: Any, wire: Any
) -> None:
    async def main() -> None:
        rank = scripted()
        rank.bind()
        link, got, ready, _ = linked(rank.endpoint)
        await ready.count(1)
        msg_id, frames = request(wire, "execute_request", {"code": "3"})
        link.send("shell", frames)
        await got.count(6)
        assert {message.parent_id for _, message in got} == {msg_id}
        assert [m.msg_type for channel, m in got if channel == "shell"] == ["execute_reply"]
        iopub = [read(m.content) for channel, m in got if channel == "iopub"]
        assert [c.get("text", c.get("execution_state")) for c in iopub] == [
            "busy", "0", "1", "2", "idle",
        ]  # fmt: skip
        link.close()

    run(main())


def test_the_three_channels_share_one_routing_id(
    run: Any, linked: Any, scripted: Any, wire: Any
) -> None:
    async def main() -> None:
        rank, other = scripted(), scripted()
        links = []
        for one in (rank, other):
            one.bind()
            link, got, ready, _ = linked(one.endpoint)
            links.append(link)
            await ready.count(1)
            for channel in ("control", "stdin"):
                link.send(channel, request(wire, "ping_request")[1])
            await got.until(lambda got=got: {c for c, _ in got} >= {"control", "stdin"})
            assert len(one.routing_ids) == 3
            assert len(set(one.routing_ids.values())) == 1
            link.close()
        assert rank.routing_ids["shell"] != other.routing_ids["shell"]

    run(main())


def test_what_a_rank_sends_wrongly_is_one_line_each(
    run: Any, linked: Any, scripted: Any, wire: Any
) -> None:
    async def main() -> None:
        rank = scripted()
        rank.bind()
        link, got, ready, bad = linked(rank.endpoint)
        await ready.count(1)
        link.send("shell", request(wire, "garbage_request")[1])
        await got.until(lambda: "shell" in [channel for channel, _ in got])
        await bad.count(2)
        assert sorted("iopub" in line for line in bad) == [False, True]
        assert all("rank 3" in line for line in bad)
        link.close()

    run(main())


def test_a_flood_arrives_whole_although_the_loop_is_slow(
    run: Any, linked: Any, scripted: Any, wire: Any, busy: Any
) -> None:
    async def main() -> None:
        rank = scripted()
        rank.bind()
        link, got, ready, _ = linked(rank.endpoint)
        await ready.count(1)
        link.send("shell", request(wire, "execute_request", {"code": "20000"})[1])
        await got.count(1)
        busy(1)  # all of it is sent meanwhile, twice as much as the rank would keep for us
        await got.count(20_003)
        texts = [read(m.content)["text"] for _, m in got if m.msg_type == "stream"]
        assert texts == [str(number) for number in range(20_000)]
        link.close()

    run(main())


def test_a_reply_that_comes_while_we_are_busy_is_not_lost(
    run: Any, linked: Any, scripted: Any, wire: Any, busy: Any
) -> None:
    async def main() -> None:
        rank = scripted()
        rank.bind()
        link, got, ready, _ = linked(rank.endpoint)
        await ready.count(1)
        for number in range(1, 11):
            for _ in range(2):
                link.send("control", request(wire, "ping_request")[1])
                busy(0.005)
            await got.until(lambda n=number: sum(c == "control" for c, _ in got) == 2 * n)
        link.close()

    run(main())


VICTIM = """
import os, signal, sys, zmq
from jupyter_client.session import Session
context = zmq.Context()
shell, iopub = context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
iopub.sndhwm = 0
iopub.bind(sys.argv[2]); shell.bind(sys.argv[1])
session = Session(key=sys.argv[3].encode(), packer="json", unpacker="json")
iopub.recv()
for number in range(int(sys.argv[4])):
    session.send(iopub, "stream", {"name": "stdout", "text": str(number)})
iopub.close(5000); shell.close(0)
context.term()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_last_words_of_a_dead_rank_arrive_before_its_death_is_told(
    run: Any, linked: Any, tmp_path: Path, popen: Any
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        names = ("shell", "iopub", "control", "stdin")
        addresses = {name: f"ipc://{tmp_path}/{name}" for name in names}
        total = 5000
        args = [addresses["shell"], addresses["iopub"], KEY.decode(), str(total)]
        victim = popen("-c", VICTIM, *args)
        link, got, _, bad = linked(Endpoint(0, 1, victim.pid, addresses, KEY))
        pidfd = os.pidfd_open(victim.pid)
        told = asyncio.Event()
        loop.add_reader(pidfd, lambda: (loop.remove_reader(pidfd), link.when_drained(told.set)))
        await told.wait()
        assert [read(m.content)["text"] for _, m in got] == [str(n) for n in range(total)]
        assert not bad
        link.drain()
        link.close()
        os.close(pidfd)
        assert victim.wait() == -9

    run(main())


def test_a_rank_that_never_was_and_one_whose_sockets_stay_open_are_drained_too(
    run: Any, linked: Any, scripted: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        names = ("shell", "iopub", "control", "stdin")
        addresses = {name: f"ipc://{tmp_path}/never-{name}" for name in names}
        never, *_ = linked(Endpoint(0, 1, 0, addresses, KEY))
        rank = scripted()
        rank.bind()
        alive, _, ready, _ = linked(rank.endpoint)
        await ready.count(1)
        for link in (never, alive):
            told = asyncio.Event()
            link.when_drained(told.set)
            await told.wait()
            link.close()

    run(main())


def test_close_while_starting_or_draining_calls_nothing_and_leaves_nothing(
    run: Any, linked: Any, scripted: Any, wire: Any, inbox: Any, open_fds: Any, until: Any
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        rank = scripted(welcome=False)
        rank.bind()
        first, _, ready, _ = linked(rank.endpoint)
        await ready.count(1)  # it is bound now
        calls = inbox()

        async def once(draining: bool) -> None:
            context: Any = zmq.Context()
            link = RankLink(context, loop, rank.endpoint, wire, calls, calls, calls)
            if draining:
                link.when_drained(calls)
            link.close()
            link.close()
            link.send("shell", request(wire, "ping_request")[1])
            context.term()
            await asyncio.sleep(0)

        threads, fds = threading.active_count(), open_fds()
        for draining in (True, False) * 3:
            await once(draining)
        await asyncio.sleep(0.4)  # longer than each of our timers
        assert not calls
        assert threading.active_count() == threads
        await until(lambda: open_fds() <= fds)  # the scripted rank's side, too
        first.close()

    run(main())


@pytest.mark.kernel
def test_a_real_ipykernel_rank_gets_ready_and_executes(
    run: Any, linked: Any, wire: Any, tmp_path: Path, popen: Any
) -> None:
    path = tmp_path / "rank.json"
    names = ("shell", "iopub", "stdin", "control", "hb")
    ports = {f"{name}_port": port for port, name in enumerate(names, 1)}
    ip = str(tmp_path / "rank")
    info = {"transport": "ipc", "ip": ip, "key": KEY.decode(), **ports}
    path.write_text(json.dumps({**info, "signature_scheme": "hmac-sha256"}))
    addresses = {name: f"ipc://{ip}-{ports[f'{name}_port']}" for name in names}

    async def main() -> None:
        kernel = popen("-m", "ipykernel_launcher", "-f", str(path))
        link, got, ready, bad = linked(Endpoint(0, 1, kernel.pid, addresses, KEY))
        await ready.count(1)
        assert ready[0]["implementation"] == "ipython"
        body = {"code": "print('hi'); 6 * 7", "silent": False, "store_history": True}
        msg_id, frames = request(wire, "execute_request", body)
        link.send("shell", frames)

        def kinds() -> list[str]:
            return [m.msg_type for _, m in got if m.parent_id == msg_id]

        await got.until(lambda: "execute_reply" in kinds() and kinds().count("status") == 2)
        assert sorted(kinds()) == sorted(
            ["status", "execute_input", "stream", "execute_result", "status", "execute_reply"]
        )
        assert not bad
        link.send("control", request(wire, "shutdown_request", {"restart": False})[1])
        await asyncio.to_thread(kernel.wait)
        link.close()

    run(main(), 60)
