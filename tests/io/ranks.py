"""Rank processes for tests: started by the real engine, watched and talked to."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session

from spmd_kernel.core.model import Cause, LaunchRequest, Rank, RankSpec
from spmd_kernel.engines.base import Endpoint, EngineContext, LastWords
from spmd_kernel.engines.local import LocalEngine
from spmd_kernel.kernelspecs import Kernelspec, find

KEY = b"one-key-for-all-ranks"
DEADLINE = 60.0


class Watcher:
    """`EngineEvents`: keeps what was reported, and lets a test wait for it."""

    def __init__(self) -> None:
        self.endpoints: dict[Rank, Endpoint] = {}
        self.exits: list[tuple[Rank, int, Cause, str]] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def rank_started(self, endpoint: Endpoint) -> None:
        self.endpoints[endpoint.rank] = endpoint
        self._notify()

    def rank_exited(
        self,
        rank: Rank,
        generation: int,
        cause: Cause,
        stderr: str,
        words: Sequence[LastWords] = (),
    ) -> None:
        self.exits.append((rank, generation, cause, stderr))
        self._notify()

    def _notify(self) -> None:
        task = asyncio.get_running_loop().create_task(self._wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE), self._changed:
            await self._changed.wait_for(condition)

    async def started(self, count: int) -> dict[Rank, Endpoint]:
        await self.until(lambda: len(self.endpoints) >= count)
        return self.endpoints

    async def exited(self, count: int) -> dict[Rank, Cause]:
        await self.until(lambda: len(self.exits) >= count)
        return {rank: cause for rank, _, cause, _ in self.exits}

    def stderr(self, rank: Rank) -> str:
        return next(text for r, _, _, text in self.exits if r == rank)


def program(code: str, name: str = "program") -> Kernelspec:
    """A "kernel" that is a few lines of Python: what an engine does, without a kernel's start."""
    return Kernelspec(
        name=name,
        resource_dir="",
        argv=(sys.executable, "-c", code, "{connection_file}"),
        env={},
        display_name="",
        language="python",
        interrupt_mode="signal",
        metadata={},
        raw={},
    )


@asynccontextmanager
async def engine(
    kernelspec: Kernelspec | None = None,
) -> AsyncIterator[tuple[LocalEngine, Watcher]]:
    watcher = Watcher()
    # ipykernel leaves stdout and stderr alone when it sees that variable: ours shall not.
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    context = EngineContext(asyncio.get_running_loop(), watcher, KEY, environ)
    local = LocalEngine(context, lambda name: kernelspec or find(name))
    try:
        yield local, watcher
    finally:
        await local.close()


def request(
    count: int = 1, generation: int = 1, env: Mapping[str, str] | None = None, **options: Any
) -> LaunchRequest:
    specs = tuple(RankSpec(rank, env or {}) for rank in range(count))
    return LaunchRequest(options.pop("kernel", "python3"), generation, specs, **options)


@contextmanager
def shell(endpoint: Endpoint) -> Iterator[Callable[..., dict[str, Any]]]:
    """Execute on one rank's shell, ``(code, **content) -> reply``. Blocks: use it in a thread."""
    session = Session(key=endpoint.key, session="tests")
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = int(DEADLINE * 1000)
        socket.connect(endpoint.addresses["shell"])  # may come before its bind

        def execute(code: str, reply: bool = True, **content: Any) -> dict[str, Any]:
            message = {"code": code, "silent": False, "store_history": True, **content}
            session.send(socket, "execute_request", message)
            if not reply:
                return {}
            assert socket.poll(DEADLINE * 1000), "no reply"
            result: dict[str, Any] = session.recv(socket, mode=0)[1]["content"]
            assert result["status"] == "ok", result
            return result

        yield execute


async def evaluate(
    endpoint: Endpoint, code: str, *expressions: str, silent: bool = False
) -> list[str]:
    """Run code in a rank; the reprs of expressions afterwards."""

    def ask() -> list[str]:
        with shell(endpoint) as execute:
            execute(code, silent=silent)
            named = {str(index): text for index, text in enumerate(expressions)}
            answers = execute("", user_expressions=named)["user_expressions"]
            return [value(answers[name]) for name in named]

    return await asyncio.to_thread(ask)


def value(expression: Mapping[str, Any]) -> str:
    assert expression["status"] == "ok", expression
    return str(expression["data"]["text/plain"])


async def send(endpoint: Endpoint, code: str) -> None:
    """Have a rank run code from which it does not return."""

    def execute() -> None:
        with shell(endpoint) as execute:
            execute("pass")
            execute(code, reply=False)

    await asyncio.to_thread(execute)


def is_alive(pid: int) -> bool:
    """Whether a process runs: neither gone nor a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


async def gone(pids: Sequence[int]) -> None:
    """Wait for the end of processes that are not ours to reap."""
    await asyncio.to_thread(_poll, lambda: not any(map(is_alive, pids)))


async def written(path: Path) -> str:
    """The content of a file that another process writes, once its last line is complete."""
    await asyncio.to_thread(_poll, lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text().strip()  # noqa: ASYNC240


async def vanished(path: Path) -> None:
    await asyncio.to_thread(_poll, lambda: not path.exists())


def _poll(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells of."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
