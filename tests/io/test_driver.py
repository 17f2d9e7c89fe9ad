"""The driver with real sockets and jupyter_client's own client; only the rank processes are scripted."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from jupyter_client import BlockingKernelClient
from jupyter_client.session import Session
from jupyter_core.utils import ensure_event_loop

from spmd_kernel.core.errors import UsageError
from spmd_kernel.core.model import (
    Cause,
    Effect,
    LaunchRequest,
    Rank,
    RankSpec,
    SetTimer,
    Settings,
)
from spmd_kernel.engines.base import Endpoint, EngineContext
from spmd_kernel.engines.stacks import Done
from spmd_kernel.io import driver as driver_module
from spmd_kernel.io.connection import ConnectionInfo
from spmd_kernel.io.driver import Driver, load_engine
from spmd_kernel.io.record import replay

DEADLINE = 30.0
CHANNELS = ("shell", "control", "stdin", "iopub")


class ScriptedRank:
    """A rank on the test's own loop.  A cell is lines of ``verb argument``:

    ``print X``, ``die`` (the process is gone), ``ask PROMPT`` (prints the answer), ``wait`` (for an
    interrupt), each perhaps after ``rank N`` as in ``rank 1 die``.
    """

    def __init__(self, engine: ScriptedEngine, spec: RankSpec, generation: int) -> None:
        self.rank, self.generation, self.engine = spec.rank, generation, engine
        self.interrupted = asyncio.Event()
        self.requests: list[tuple[str, str]] = []  # (channel, kind) of what it was asked
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._session = Session(key=engine.context.key, packer="json", unpacker="json")
        prefix = f"ipc://{engine.directory}/{generation}-{spec.rank}"
        self.endpoint = Endpoint(
            spec.rank,
            generation,
            1000 + spec.rank,
            {name: f"{prefix}-{name}" for name in CHANNELS},
            engine.context.key,
            engine.interrupt_mode,
        )
        self._sockets: dict[str, Any] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for name in CHANNELS:
            socket = self.engine.zmq.socket(zmq.PUB if name == "iopub" else zmq.ROUTER)
            socket.bind(self.endpoint.addresses[name])
            self._sockets[name] = socket
        serve = (self._shell(), self._control(), self._stdin())
        self._tasks = [asyncio.ensure_future(task) for task in serve]

    def end(self, cause: Cause) -> None:
        """The process is gone: its sockets close once their last words are out."""
        if self._sockets:
            sockets, self._sockets = self._sockets, {}
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            for socket in sockets.values():
                socket.close(1000)
            self.engine.ended(self, cause)

    async def _receive(self, channel: str) -> tuple[list[bytes], dict[str, Any]]:
        frames = await self._sockets[channel].recv_multipart()
        idents, rest = self._session.feed_identities(frames)
        message = self._session.deserialize(rest)
        self.requests.append((channel, message["msg_type"]))
        return idents, message

    async def _send(self, channel: str, kind: str, content: Any, parent: Any, idents: Any = ()):  # type: ignore[no-untyped-def]
        message = self._session.msg(kind, content, parent=parent)
        await self._sockets[channel].send_multipart([*idents, *self._session.serialize(message)])

    async def _shell(self) -> None:
        while True:
            idents, request = await self._receive("shell")
            kind = request["msg_type"].removesuffix("_request")
            await self._status("busy", request)
            content: dict[str, Any] = {
                "status": "ok",
                "implementation": "scripted",
                "protocol_version": "5.4",
            }
            if kind == "execute" and not request["content"]["silent"]:
                content |= {"execution_count": 1, "user_expressions": {}, "payload": []}
                for line in request["content"]["code"].splitlines():
                    await self._run(line, request, idents)
                    if not self._sockets:
                        return
            if not kind.startswith("comm"):
                await self._send("shell", f"{kind}_reply", content, request, idents)
            await self._status("idle", request)

    async def _run(self, line: str, request: Any, idents: Any) -> None:
        words = line.split()
        if words and words[0] == "rank":
            if int(words[1]) != self.rank:
                return
            words = words[2:]
        match words:
            case ["print", text]:
                await self._print(text, request)
            case ["die"]:
                self.end(Cause(code=3))
            case ["ask", prompt]:
                question = {"prompt": prompt, "password": False}
                await self._send("stdin", "input_request", question, request, idents)
                await self._print((await self._answers.get())["value"], request)
            case ["wait"]:
                await self.interrupted.wait()

    async def _print(self, text: str, request: Any) -> None:
        await self._send("iopub", "stream", {"name": "stdout", "text": text + "\n"}, request)

    async def _status(self, state: str, request: Any) -> None:
        await self._send("iopub", "status", {"execution_state": state}, request)

    async def _control(self) -> None:
        while True:
            idents, request = await self._receive("control")
            kind = request["msg_type"].removesuffix("_request")
            if kind == "shutdown" and self.engine.deaf:
                continue
            if kind == "interrupt":
                self.interrupted.set()
            await self._send("control", f"{kind}_reply", {"status": "ok"}, request, idents)
            if kind == "shutdown":
                self.end(Cause(code=0))
                return

    async def _stdin(self) -> None:
        while True:
            _, message = await self._receive("stdin")
            self._answers.put_nowait(message["content"])


class ScriptedEngine:
    """`engines.base.Engine` over scripted ranks; keeps what it was told."""

    name = "scripted"

    def __init__(self, context: EngineContext, directory: Path, **script: Any) -> None:
        self.context = context
        self.directory = directory
        self.interrupt_mode = script.pop("interrupt_mode", "signal")
        self.deaf = script.pop("deaf", False)  # ranks do not listen to shutdown_request
        self.missing = script.pop("missing", ())  # ranks that cannot be started
        self.zmq = zmq.asyncio.Context()
        self.ranks: dict[Rank, ScriptedRank] = {}
        self.signals: list[tuple[tuple[Rank, ...], int]] = []
        self.stops: list[tuple[tuple[Rank, ...], bool]] = []
        self.expected: list[Rank] = []
        self.dumps: list[tuple[Rank, ...]] = []
        self.closed = 0

    def start(self, request: LaunchRequest) -> None:
        for spec in request.ranks:
            if spec.rank in self.missing:
                cause = Cause(missing="no such program")
                self.context.events.rank_exited(spec.rank, request.generation, cause, "")
                continue
            rank = self.ranks[spec.rank] = ScriptedRank(self, spec, request.generation)
            self.context.events.rank_started(rank.endpoint)
            rank.start()

    def signal(self, ranks: Sequence[Rank], signum: int) -> None:
        self.signals.append((tuple(ranks), signum))
        for rank in ranks:
            self.ranks[rank].interrupted.set()

    def stop(self, ranks: Sequence[Rank], *, now: bool) -> None:
        self.stops.append((tuple(ranks), now))
        for rank in ranks:
            self.ranks[rank].end(Cause(signal=9 if now else 15))

    def ended(self, rank: ScriptedRank, cause: Cause) -> None:
        self.context.events.rank_exited(rank.rank, rank.generation, cause, "its stderr\n")

    def expect_end(self, ranks: Sequence[Rank]) -> None:
        self.expected += ranks

    def pids(self) -> Mapping[Rank, int]:
        return {}

    def dump(self, ranks: Sequence[Rank], done: Done) -> None:
        self.dumps.append(tuple(ranks))
        self.context.loop.call_soon(done, {rank: f"stack of {rank}\n" for rank in ranks}, {})

    def unblock(
        self, ranks: Sequence[Rank], ports: Sequence[int], *, store: bool
    ) -> tuple[dict[Rank, int], dict[Rank, tuple[tuple[int, int], ...]]]:
        return dict.fromkeys(ranks, 1), {}

    async def close(self) -> None:
        self.closed += 1
        for rank in self.ranks.values():
            rank.end(Cause(signal=9))
        self.zmq.destroy(linger=0)


class Kept(Driver):
    """Keeps the effects."""

    effects: list[Effect]

    def perform(self, effect: Effect) -> None:
        vars(self).setdefault("effects", []).append(effect)
        super().perform(effect)


class Client:
    """jupyter_client's blocking client, its calls in one thread, where it keeps a loop of its own."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self.raw = BlockingKernelClient(connection_file=str(path))
        self.raw.load_connection_file()
        self.raw.start_channels()

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        call = partial(function, *args, timeout=DEADLINE, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        self.raw.stop_channels()
        self._thread.submit(lambda: ensure_event_loop().close()).result()
        self._thread.shutdown()

    async def ready(self) -> None:
        await self.call(self.raw.wait_for_ready)

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """IOPub messages up to the wanted one."""
        found: list[dict[str, Any]] = []
        while not found or not wanted(found[-1]):
            found.append(await self.call(self.raw.get_iopub_msg))
        return found

    async def run(self, code: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        return await self.collect(self.raw.execute(code))

    async def collect(self, msg_id: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """The reply, and kind and text of each IOPub message up to idle."""

        def idle(message: dict[str, Any]) -> bool:
            return is_of(message) and message["content"].get("execution_state") == "idle"

        def is_of(message: dict[str, Any]) -> bool:
            return message["parent_header"].get("msg_id") == msg_id

        messages = [message for message in await self.until(idle) if is_of(message)]
        reply = await self.call(self.raw.get_shell_msg)
        assert is_of(reply)
        return reply["content"], [(m["msg_type"], text_of(m["content"])) for m in messages]

    async def request(self, kind: str, content: Any) -> dict[str, Any]:
        message = self.raw.session.msg(kind, content)
        self.raw.control_channel.send(message)
        reply: dict[str, Any] = await self.call(self.raw.get_control_msg)
        assert reply["parent_header"]["msg_id"] == message["header"]["msg_id"]
        return reply["content"]


def text_of(content: dict[str, Any]) -> str:
    return str(content.get("text") or content.get("execution_state") or content.get("evalue") or "")


class Served:
    def __init__(self, driver: Kept, engine: ScriptedEngine, client: Client, end: Any) -> None:
        self.driver, self.engine, self.client, self.end = driver, engine, client, end

    async def shut_down(self) -> int:
        reply = await self.client.request("shutdown_request", {"restart": False})
        assert reply == {"status": "ok", "restart": False}
        return int(await self.end)


@pytest.fixture
def serving(connection_file: Any, tmp_path: Path) -> Any:
    @asynccontextmanager
    async def serve(size: int = 1, record: Any = None, **script: Any) -> AsyncIterator[Served]:
        loop = asyncio.get_running_loop()
        engines: list[ScriptedEngine] = []

        def make(context: EngineContext) -> ScriptedEngine:
            engines.append(ScriptedEngine(context, tmp_path, **script))
            return engines[0]

        path = connection_file()
        settings = Settings(session="own", processes=size, environ={"OMP_NUM_THREADS": "7"})
        driver = Kept(settings, ConnectionInfo.read(path), loop, record, make)
        end = asyncio.ensure_future(driver.run())
        client = Client(path)
        try:
            await client.ready()
            yield Served(driver, engines[0], client, end)
        finally:
            client.close()
            if not end.done():
                os.kill(os.getpid(), signal.SIGTERM)
            await end
            assert engines[0].closed == 1
            for signum in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(signum)

    return serve


def test_a_whole_life(run: Any, serving: Any) -> None:
    async def main() -> None:
        async with serving(2) as served:
            client, engine = served.client, served.engine
            reply, seen = await client.run("print a\nrank 1 print b\nprint c")
            assert reply["status"] == "ok" and reply["execution_count"] == 1
            assert [kind for kind, _ in seen[:2]] == ["status", "execute_input"]
            assert "".join(text for kind, text in seen if kind == "stream") == ("a\n1 │ b\nc\n")
            assert seen[-1] == ("status", "idle")
            assert await served.shut_down() == 0
            assert engine.stops == [], "they went by themselves"
            for rank in engine.ranks.values():
                assert ("control", "shutdown_request") in rank.requests

    run(main())


def test_one_rank_is_passed_through(run: Any, serving: Any) -> None:
    async def main() -> None:
        async with serving(1) as served:
            reply, seen = await served.client.run("print a\nprint b")
            assert reply["implementation"] == "scripted"
            assert seen[2:-1] == [("stream", "a\n"), ("stream", "b\n")]

    run(main())


def test_last_words_come_before_the_news_of_the_death(run: Any, serving: Any) -> None:
    async def main() -> None:
        async with serving(3) as served:
            code = "".join(f"rank 1 print word{n}\n" for n in range(200)) + "rank 1 die"
            reply, seen = await served.client.run(code)
            assert reply["ename"] == "RankLost"
            assert "rank 1 died: the process exited with code 3" in reply["evalue"]
            kinds = [kind for kind, _ in seen]
            text = "".join(text for kind, text in seen[: kinds.index("error")] if kind == "stream")
            assert text == "".join(f"1 │ word{n}\n" for n in range(200))
            again, _ = await served.client.run("print x")
            assert "rank 1 died" in again["evalue"]
            back, _ = await served.client.run("%processes 3")
            assert back["status"] == "ok"
            _, seen = await served.client.run("print x")
            assert ("stream", "x\n") in seen

    run(main())


@pytest.mark.parametrize(
    ("mode", "signals"), [("signal", [((0, 1), signal.SIGINT)]), ("message", [((), signal.SIGINT)])]
)
@pytest.mark.parametrize("by", ["request", "signal"])
def test_interrupt(run: Any, serving: Any, mode: str, signals: Any, by: str) -> None:
    async def main() -> None:
        async with serving(2, interrupt_mode=mode) as served:
            client = served.client
            msg_id = client.raw.execute("print started\nwait\nprint woken")
            await client.until(lambda message: text_of(message["content"]) == "started\n")
            if by == "request":
                assert await client.request("interrupt_request", {}) == {"status": "ok"}
            else:
                os.kill(os.getpid(), signal.SIGINT)
            reply, seen = await client.collect(msg_id)
            assert reply["status"] == "ok" and ("stream", "woken\n") in seen
            assert served.engine.signals == signals
            asked = ("control", "interrupt_request") in served.engine.ranks[1].requests
            assert asked is (mode == "message")

    run(main())


def test_an_effect_that_fails_does_not_stop_the_loop(run: Any, serving: Any, caplog: Any) -> None:
    async def main() -> None:
        async with serving(2) as served:
            client, engine = served.client, served.engine
            msg_id = client.raw.execute("print started\nwait\nprint woken")
            await client.until(lambda message: text_of(message["content"]) == "started\n")
            signalling, engine.signal = engine.signal, broken
            await client.request("interrupt_request", {})
            engine.signal = signalling
            await client.request("interrupt_request", {})
            reply, _ = await client.collect(msg_id)
            assert reply["status"] == "ok"

    def broken(*_: Any) -> None:
        raise OSError("no such process")

    run(main())
    assert [record.message for record in caplog.records] == ["could not perform Interrupt"]


def test_sigterm_leaves_at_once_and_closes_the_engine(run: Any, serving: Any) -> None:
    async def main() -> None:
        async with serving(2) as served:
            served.client.raw.execute("print started\nwait")
            await served.client.until(lambda message: text_of(message["content"]) == "started\n")
            os.kill(os.getpid(), signal.SIGTERM)
            assert await served.end == 0
            assert served.engine.closed == 1

    run(main())


def test_ranks_that_do_not_listen_are_stopped(run: Any, serving: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(driver_module, "POLITE_SECONDS", 0.01)

    async def main() -> None:
        async with serving(2, deaf=True) as served:
            assert await served.shut_down() == 0
            assert sorted(served.engine.stops) == [((0,), False), ((1,), False)]

    run(main())


def test_a_question_whose_window_is_over_reaches_the_client(run: Any, serving: Any) -> None:
    async def main() -> None:
        async with serving(2) as served:
            client = served.client
            msg_id = client.raw.execute("rank 0 ask zero?\nrank 1 ask one?", allow_stdin=True)
            asked = []
            for _ in range(2):
                question = await client.call(client.raw.get_stdin_msg)
                asked.append(question["content"]["prompt"])
                client.raw.input("answer-to-" + asked[-1][0])
            assert sorted(asked) == ["0 │ zero?", "1 │ one?"]
            reply, seen = await client.collect(msg_id)
            text = "".join(text for kind, text in seen if kind == "stream")
            assert sorted(text.splitlines()) == ["0 │ answer-to-0", "1 │ answer-to-1"]
            assert reply["status"] == "ok"

    run(main())


def test_a_timer_set_again_moves_and_a_cancelled_one_is_silent(run: Any, serving: Any) -> None:
    async def main() -> None:
        async with serving(1) as served:
            driver, loop = served.driver, asyncio.get_running_loop()
            fired: list[Any] = []
            feed = driver._feed
            driver._feed = lambda event: (fired.append(event), feed(event))  # type: ignore[method-assign]
            now = loop.time()
            driver.perform(SetTimer("a", now - 1))
            driver.perform(SetTimer("b", now))
            driver.perform(SetTimer("a", now + 0.05))
            driver.perform(SetTimer("c", now))
            driver.perform(driver_module.CancelTimer("c"))
            driver.perform(driver_module.CancelTimer("never set"))
            done = asyncio.Event()
            loop.call_at(now + 0.06, done.set)
            await done.wait()
            keys = [event.key for event in fired if isinstance(event, driver_module.TimerFired)]
            assert keys == ["b", "a"]

    run(main())


def test_an_engine_may_answer_while_it_is_asked(run: Any, serving: Any) -> None:
    """Its event waits until the other effects of the one at hand have been performed."""

    async def main() -> None:
        async with serving(1, missing=(1,)) as served:
            reply, _ = await served.client.run("%processes 2")
            assert "rank 1 could not start: no such program" in reply["evalue"]
            again, _ = await served.client.run("%processes 1")
            assert again["status"] == "ok"

    run(main())


def test_a_recorded_session_replays_to_the_same_effects(run: Any, serving: Any) -> None:
    file = io.StringIO()

    async def main() -> Kept:
        async with serving(2, record=file) as served:
            client = served.client
            await client.run("print a\nrank 0 print b")
            await client.run("%processes 3")
            await client.run("rank 2 die")
            await served.shut_down()
            return served.driver

    driver = run(main())
    lines = file.getvalue().splitlines(keepends=True)
    effects = list(itertools.chain.from_iterable(done for _, done in replay(lines)))
    assert len(effects) > 50
    assert effects == driver.effects


def test_a_full_disk_costs_the_recording_only(run: Any, serving: Any, caplog: Any) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            if len(self.getvalue()) > 2000:
                raise OSError("no space left on device")

    async def main() -> None:
        async with serving(1, record=Full()) as served:
            reply, _ = await served.client.run("print a")
            assert reply["status"] == "ok"

    run(main())
    assert [record.message for record in caplog.records] == ["the recording ends here"]


def test_gpu_memory_is_asked_for_where_there_is_a_driver(
    run: Any, serving: Any, monkeypatch: Any
) -> None:
    asked: list[int] = []

    class Memory:
        def __init__(self, loop: asyncio.AbstractEventLoop):
            self.loop = loop

        def ask(self, answer: Callable[[Mapping[int, int]], None]) -> None:
            asked.append(1)
            self.loop.call_later(0.01, answer, {os.getpid(): 5_000_000})

    monkeypatch.setattr(driver_module, "GpuMemory", Memory)

    async def main() -> None:
        async with serving(1) as served:
            monkeypatch.setattr(served.engine, "pids", lambda: {0: os.getpid()})
            for devices in ((), ("0",)):
                monkeypatch.setattr(driver_module, "present_gpus", lambda found=devices: found)
                _, seen = await served.client.run("%ranks")
                head, row = next(text for kind, text in seen if kind == "stream").splitlines()
                assert ("GPU" in head.split()) is bool(devices)
                assert (" 5 MB" in row) is bool(devices) and " s " in row
            await served.client.run("%processes")
            assert asked == [1]

    run(main())


def test_an_unknown_engine_is_named() -> None:
    assert callable(load_engine("local"))
    with pytest.raises(UsageError, match="no launcher engine 'slurmm'") as error:
        load_engine("slurmm")
    assert "local" in error.value.hint
