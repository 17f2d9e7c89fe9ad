"""The front against jupyter_client's own client, and against clients that misbehave."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zmq
from jupyter_client.connect import ConnectionFileMixin

from spmd_kernel.core.content import dumps
from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.model import ToFront
from spmd_kernel.io import front as front_module
from spmd_kernel.io.front import ConnectionInfo, Front
from spmd_kernel.io.wire import Wire


@pytest.fixture
def serving(inbox: Any) -> Any:
    """A started front with a context of its own; what it was told is in its inboxes."""

    @asynccontextmanager
    async def serve(path: Any) -> Any:
        connection = ConnectionInfo.read(path)
        wire = Wire(connection.key, session="front")
        got, topics, bad = inbox(), inbox(), inbox()
        context: Any = zmq.Context()
        front = Front(context, connection, wire, got, topics, bad)
        try:
            front.bind()
            front.start(asyncio.get_running_loop())
            yield front, got, topics, bad
        finally:
            front.close()
            await asyncio.to_thread(context.term)

    return serve


def client_of(path: Any, context: Any) -> ConnectionFileMixin:
    """jupyter_client's own reading of the file, its sockets and its session."""
    client = ConnectionFileMixin(connection_file=str(path), context=context)
    client.load_connection_file()
    client.session.packer = "json"
    return client


async def heard(session: Any, socket: Any) -> dict[str, Any]:
    frames = await asyncio.to_thread(socket.recv_multipart)
    return session.deserialize(session.feed_identities(frames)[1])


def reply(got: Any, msg_type: str = "kernel_info_reply", body: bytes = b'{"a":1}') -> ToFront:
    channel, idents, request = got
    return ToFront(channel, idents, msg_type, body, request.header, {"m": "µ"}, (b"buf",))


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_client_is_heard_and_answered_on_every_channel(
    run: Any, serving: Any, connection_file: Any, context: Any, tmp_path: Any, transport: str
) -> None:
    ip = "127.0.0.1" if transport == "tcp" else str(tmp_path / "sock")
    path = connection_file(transport=transport, ip=ip)

    async def main() -> None:
        async with serving(path) as (front, got, topics, bad):
            client = client_of(path, context)
            client.connect_iopub()
            await topics.count(1)
            assert topics == [b""]
            for number, channel in enumerate(["shell", "control", "stdin"]):
                socket = getattr(client, f"connect_{channel}")()
                request = client.session.send(socket, "kernel_info_request", {"x": "é"})
                await got.count(number + 1)
                assert got[-1][0] == channel
                assert got[-1][2].content == '{"x": "é"}'.encode()
                front.send(reply(got[-1]))
                answer = await heard(client.session, socket)
                assert answer["parent_header"]["msg_id"] == request["header"]["msg_id"]
                assert (answer["content"], answer["metadata"]) == ({"a": 1}, {"m": "µ"})
                assert bytes(answer["buffers"][0]) == b"buf"
            assert not bad

    run(main())


def test_ports_that_were_0_are_written_into_the_file(
    run: Any, serving: Any, connection_file: Any
) -> None:
    path = connection_file(kernel_name="spmd", extra=1)

    async def main() -> None:
        async with serving(path) as (front, *_):
            raw = json.loads(path.read_text())
            assert {n: raw[f"{n}_port"] for n in front.connection.ports} == front.connection.ports
            assert all(front.connection.ports.values())
            assert len(set(front.connection.ports.values())) == 5
            assert (raw["kernel_name"], raw["extra"]) == ("spmd", 1)
            assert path.stat().st_mode & 0o777 == 0o600

    run(main())


def test_given_ports_leave_the_file_alone(run: Any, serving: Any, connection_file: Any) -> None:
    path = connection_file()

    async def main() -> None:
        async with serving(path):
            pass
        path.chmod(0o640)
        async with serving(path) as (front, *_):  # the same ports again: closed means closed
            assert front.connection == ConnectionInfo.read(path)
        assert path.stat().st_mode & 0o777 == 0o640

    run(main())


def test_only_the_address_of_the_file_is_bound(
    run: Any, serving: Any, connection_file: Any
) -> None:
    path = connection_file(ip="127.0.0.2")

    async def main() -> None:
        async with serving(path) as (front, *_):
            for port in front.connection.ports.values():
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", port)
                _, writer = await asyncio.open_connection("127.0.0.2", port)
                writer.close()
                await writer.wait_closed()

    run(main())


def test_ipc_files_are_removed(run: Any, serving: Any, connection_file: Any, tmp_path: Any) -> None:
    path = connection_file(transport="ipc", ip=str(tmp_path / "sock"))

    async def main() -> None:
        (tmp_path / "sock-1").touch()  # somebody else's
        async with serving(path) as (front, *_):
            assert sorted(front.connection.ports.values()) == [2, 3, 4, 5, 6]
            assert len(list(tmp_path.glob("sock-*"))) == 6
        assert len(list(tmp_path.glob("sock-*"))) == 1

    run(main())


def test_every_subscription_is_told_and_can_be_welcomed(
    run: Any, serving: Any, connection_file: Any, context: Any, session: Any
) -> None:
    path = connection_file()

    async def main() -> None:
        async with serving(path) as (front, _, topics, _bad):
            address = front.connection.address("iopub")
            for number, topic in enumerate([b"", b"", b"stream.", b"\xff"], 1):
                subscriber = context.socket(zmq.SUB)
                subscriber.subscribe(topic)
                subscriber.connect(address)
                await topics.count(number)  # each, also one equal to another client's
                assert topics[-1] == topic
                name = topic.decode("utf-8", "surrogateescape")
                body = dumps({"subscription": name})
                front.send(ToFront("iopub", (), "iopub_welcome", body, {}))
                frames = await asyncio.to_thread(subscriber.recv_multipart)
                assert frames[0] == topic
                idents, rest = session.feed_identities(frames)
                assert idents == [topic]
                assert session.deserialize(rest)["msg_type"] == "iopub_welcome"

    run(main())


TOPICS = {
    ("stream", b'{"name":"stdout","text":""}'): b"stream.stdout",
    ("stream", b' { "name" : "stderr", "text":""}'): b"stream.stderr",
    ("stream", b'{"text":"","name":"stderr"}'): b"stream",
    ("display_data", b"{}"): b"display_data",
    ("update_display_data", b"{}"): b"display_data",
    ("clear_output", b"{}"): b"display_data",
    ("status", b"{}"): b"kernel.front.status",
}


def test_topics_are_ipykernels(run: Any, serving: Any, connection_file: Any, context: Any) -> None:
    path = connection_file()

    async def main() -> None:
        async with serving(path) as (front, _, topics, _bad):
            subscriber = context.socket(zmq.SUB)
            subscriber.subscribe(b"")
            subscriber.connect(front.connection.address("iopub"))
            await topics.count(1)
            for (msg_type, body), topic in TOPICS.items():
                front.send(ToFront("iopub", (), msg_type, body, {}))
                frames = await asyncio.to_thread(subscriber.recv_multipart)
                assert frames[0] == topic

    run(main())


def test_bad_messages_are_one_line_each_and_hurt_nobody(
    run: Any, serving: Any, connection_file: Any, context: Any, session: Any
) -> None:
    path = connection_file()

    async def main() -> None:
        async with serving(path) as (front, got, _, bad):
            dealer = context.socket(zmq.DEALER)
            dealer.connect(front.connection.address("shell"))
            good = session.serialize(session.msg("kernel_info_request"))
            attacks = [[b""], [b"x"] * 3, good[:3], [good[0], b"", *good[2:]], [b"<IDS|MSG>"] * 9]
            for attack in attacks:
                dealer.send_multipart(attack)
            dealer.send_multipart(good)
            dealer.send_multipart(good)
            await bad.count(len(attacks) + 1)
            await got.count(1)
            assert all("on shell" in line and "\n" not in line for line in bad)
            assert "replayed" in bad[-1]
            assert len(got) == 1

    run(main())


def test_sending_to_a_client_that_is_gone_is_nothing(
    run: Any, serving: Any, connection_file: Any
) -> None:
    async def main() -> None:
        async with serving(connection_file()) as (front, *_):
            front.send(ToFront("shell", (b"never here",), "execute_reply", b"{}", {}))
            front.send(ToFront("iopub", (), "status", b"{}", {}))

    run(main())


def test_a_client_that_comes_back_under_its_id_takes_over(
    run: Any, serving: Any, connection_file: Any, context: Any, session: Any
) -> None:
    async def main() -> None:
        async with serving(connection_file()) as (front, got, *_):
            for number in range(1, 3):
                dealer = context.socket(zmq.DEALER)
                dealer.routing_id = b"same"
                dealer.connect(front.connection.address("shell"))
                session.send(dealer, "kernel_info_request")
                await got.count(number)
            front.send(reply(got[1]))
            assert (await heard(session, dealer))["msg_type"] == "kernel_info_reply"

    run(main())


def test_a_subscriber_that_never_reads_keeps_nobody_waiting(
    run: Any, serving: Any, connection_file: Any, context: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(front_module, "IOPUB_QUEUE", 10)

    async def main() -> None:
        async with serving(connection_file()) as (front, _, topics, _bad):
            address = front.connection.address("iopub")
            idle, reader = context.socket(zmq.SUB), context.socket(zmq.SUB)
            idle.rcvhwm, reader.rcvhwm = 1, 0
            for subscriber in (idle, reader):
                subscriber.subscribe(b"")
                subscriber.connect(address)
            await topics.count(2)
            body = dumps({"data": "x" * 100_000})
            for _ in range(300):  # 30 MB: more than the queue and the system's buffers
                front.send(ToFront("iopub", (), "display_data", body, {}))
                assert (await asyncio.to_thread(reader.recv_multipart))[-1] == body
            kept = 0
            while await asyncio.to_thread(idle.poll, 200):
                idle.recv_multipart()
                kept += 1
            assert 0 < kept < 300

    run(main())


def test_a_request_that_comes_while_we_are_busy_is_heard(
    run: Any, serving: Any, connection_file: Any, context: Any, session: Any, busy: Any
) -> None:
    async def main() -> None:
        async with serving(connection_file()) as (front, got, *_):
            dealer = context.socket(zmq.DEALER)
            dealer.connect(front.connection.address("shell"))
            for number in range(1, 11):
                session.send(dealer, "kernel_info_request")
                await got.count(2 * number - 1)
                session.send(dealer, "kernel_info_request")
                busy(0.005)
                front.send(reply(got[-1]))
                await got.count(2 * number)

    run(main())


def test_the_heartbeat_echoes_while_python_is_busy(
    run: Any, serving: Any, connection_file: Any, context: Any
) -> None:
    async def main() -> None:
        async with serving(connection_file()) as (front, *_):
            beat = context.socket(zmq.REQ)
            beat.connect(front.connection.address("hb"))
            for _ in range(3):
                beat.send(b"ping")
                assert beat.poll(10_000)  # the loop's own thread waits here
                assert beat.recv() == b"ping"

    run(main())


def test_closing_leaves_no_thread_and_no_file_descriptor(
    run: Any, connection_file: Any, inbox: Any, open_fds: Any
) -> None:
    path = connection_file()

    async def main() -> None:
        def once() -> None:
            context: Any = zmq.Context()
            connection = ConnectionInfo.read(path)
            front = Front(context, connection, Wire(b"k"), inbox(), inbox(), inbox())
            front.bind()
            front.start(asyncio.get_running_loop())
            front.drain()
            front.close()
            assert "heartbeat" not in [thread.name for thread in threading.enumerate()]
            front.close()
            context.term()

        once()
        fds, threads = open_fds(), threading.active_count()
        for _ in range(5):
            once()
        assert (open_fds(), threading.active_count()) == (fds, threads)

    run(main())


def test_the_heartbeat_ends_with_the_context(run: Any, connection_file: Any, inbox: Any) -> None:
    async def main() -> None:
        context: Any = zmq.Context()
        connection = ConnectionInfo.read(connection_file())
        front = Front(context, connection, Wire(b"k"), inbox(), inbox(), inbox())
        front.bind()
        assert front._heartbeat is not None
        ender = threading.Thread(target=context.term)
        ender.start()
        await asyncio.to_thread(front._heartbeat._thread.join)
        front.close()
        await asyncio.to_thread(ender.join)

    run(main())


def test_the_last_message_leaves_after_close(
    run: Any, connection_file: Any, context: Any, inbox: Any, session: Any
) -> None:
    async def main() -> None:
        ours: Any = zmq.Context()
        connection = ConnectionInfo.read(connection_file())
        got = inbox()
        front = Front(ours, connection, Wire(connection.key), got, inbox(), inbox())
        front.bind()
        front.start(asyncio.get_running_loop())
        dealer = context.socket(zmq.DEALER)
        dealer.connect(front.connection.address("control"))
        session.send(dealer, "shutdown_request")
        await got.count(1)
        body = dumps({"x": "x" * 20_000_000})  # does not fit into the system's buffers
        front.send(reply(got[0], "shutdown_reply", body))
        front.drain()
        front.close()
        ender = threading.Thread(target=ours.term)
        ender.start()
        assert (await asyncio.to_thread(dealer.recv_multipart))[5] == body
        await asyncio.to_thread(ender.join)

    run(main())


def test_a_failed_bind_leaves_nothing_open(connection_file: Any, context: Any, inbox: Any) -> None:
    taken = context.socket(zmq.ROUTER)
    port = taken.bind_to_random_port("tcp://127.0.0.1")
    for name in ("shell", "iopub", "hb"):
        ours: Any = zmq.Context()
        connection = ConnectionInfo.read(connection_file(**{f"{name}_port": port}))
        front = Front(ours, connection, Wire(b"k"), inbox(), inbox(), inbox())
        with pytest.raises(UsageError, match=f"cannot bind the {name} socket"):
            front.bind()
        ours.term()


@pytest.mark.skipif(not zmq.has("curve"), reason="libzmq without CURVE")
def test_encrypted_when_the_manager_asks_for_it(
    run: Any, serving: Any, connection_file: Any, context: Any
) -> None:
    public, secret = zmq.curve_keypair()
    path = connection_file(curve_publickey=public.decode(), curve_secretkey=secret.decode())

    async def main() -> None:
        async with serving(path) as (front, got, *_):
            plain = context.socket(zmq.DEALER)
            plain.connect(front.connection.address("shell"))
            client = client_of(path, context)
            client.session.send(plain, "execute_request")
            encrypted = client.connect_shell()
            client.session.send(encrypted, "kernel_info_request")
            await got.count(1)
            front.send(reply(got[0]))
            answer = await heard(client.session, encrypted)
            assert answer["msg_type"] == "kernel_info_reply"
            assert [message.msg_type for _, _, message in got] == ["kernel_info_request"]

    run(main())
