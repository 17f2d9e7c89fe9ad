"""The stacks of real processes, whatever they are doing, and connections closed from outside."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spmd_kernel.core.model import Pulse, Rank
from spmd_kernel.core.stacks import main_stack
from spmd_kernel.engines import stacks as stacks_module
from spmd_kernel.engines.local import LocalEngine
from spmd_kernel.engines.unblock import connections, table, unblock
from spmd_kernel.kernelspecs import Kernelspec
from spmd_kernel.settings import SETUP

from .ranks import DEADLINE, engine, is_alive, program, request, written

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")
pytestmark = linux


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


def rank_code(body: str, ready: Path, setup: bool = True) -> str:
    runs = f"exec(compile(open({str(SETUP)!r}).read(), {str(SETUP)!r}, 'exec'), {{'__file__': {str(SETUP)!r}}})"
    return "\n".join(
        [
            "import ctypes, os, signal, sys, threading, time",
            runs if setup else "",
            f"open({str(ready)!r}, 'w').write('ready\\n')",
            textwrap.dedent(body),
        ]
    )


async def dumped(
    local: LocalEngine, *ranks: Rank
) -> tuple[Mapping[Rank, str], Mapping[Rank, Pulse]]:
    answer: asyncio.Future[tuple[Mapping[Rank, str], Mapping[Rank, Pulse]]] = (
        asyncio.get_running_loop().create_future()
    )
    local.dump(ranks, lambda *found: answer.set_result(found))
    return await asyncio.wait_for(answer, DEADLINE)


def run(body: str, tmp_path: Path, python: str = sys.executable, setup: bool = True) -> str | None:
    """The dump of one process that runs ``body``; twice, and it lives on."""

    async def main() -> str | None:
        spec = program(rank_code(body, tmp_path / "ready", setup))
        spec = Kernelspec(**{**_fields(spec), "argv": (python, *spec.argv[1:])})
        async with engine(spec) as (local, watcher):
            local.start(request(1))
            await watcher.started(1)
            await written(tmp_path / "ready")
            texts = []
            for _ in range(2):
                found, pulses = await dumped(local, 0)
                assert pulses[0].switches >= 0 and pulses[0].cpu >= 0
                texts.append(found.get(0))
            assert is_alive(local.pids()[0])
            assert (texts[0] is None) == (texts[1] is None)
            return texts[1]

    return asyncio.run(main())


def _fields(spec: Kernelspec) -> dict[str, object]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


@pytest.mark.parametrize(
    "body",
    [
        "def here():\n    time.sleep(600)\nhere()",
        "def here():\n    while True: pass\nhere()",
        "def here():\n    while True: ctypes.PyDLL(None).usleep(10**6)\nhere()",  # holds the GIL
        "for _ in range(20): threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "def here():\n    time.sleep(600)\nhere()",
    ],
    ids=["sleeps", "computes", "holds the GIL", "has threads"],
)
def test_a_process_tells_where_it_is(body: str, tmp_path: Path) -> None:
    text = run(body, tmp_path)
    assert text is not None
    assert "here" in [frame.function for frame in main_stack(text)]
    assert text.count("most recent call first") == 1, "others run: their frames change meanwhile"


def test_who_is_asked_often_lives_on_beside_busy_threads(tmp_path: Path) -> None:
    body = """
        def deep(n):
            return [n] if n == 0 else [n] + deep(n - 1)
        def work():
            while True:
                deep(300)
                short = threading.Thread(target=deep, args=(50,))
                short.start()
                short.join()
        for _ in range(3): threading.Thread(target=work).start()
        def here():
            work()
        here()
    """

    async def main() -> None:
        async with engine(program(rank_code(body, tmp_path / "ready"))) as (local, watcher):
            local.start(request(1))
            await watcher.started(1)
            await written(tmp_path / "ready")
            for _ in range(300):
                found, _ = await dumped(local, 0)
                assert is_alive(local.pids()[0])
                assert main_stack(found[0])

    asyncio.run(main())


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_other_pythons_do(version: str, tmp_path: Path) -> None:
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    python = str(installed[0]) if installed else shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version}")
    text = run("def here():\n    time.sleep(600)\nhere()", tmp_path, python)
    assert text is not None and "in here" in text


def test_deep_recursion_is_cut_and_yet_ends(tmp_path: Path) -> None:
    body = "def here(n):\n    here(n - 1) if n else time.sleep(600)\nhere(150)"
    text = run(body, tmp_path)
    assert text is not None and "in here" in text


def test_a_process_that_has_not_registered_is_not_even_signalled(tmp_path: Path) -> None:
    assert run("time.sleep(600)", tmp_path, setup=False) is None


def test_a_frozen_process_does_not_answer_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(program(rank_code("time.sleep(600)", tmp_path / "ready"))) as (
            local,
            watcher,
        ):
            local.start(request(1))
            await watcher.started(1)
            await written(tmp_path / "ready")
            os.kill(local.pids()[0], signal.SIGSTOP)
            found, _ = await dumped(local, 0)
            assert found == {}
            os.kill(local.pids()[0], signal.SIGCONT)

    asyncio.run(main())


def test_two_who_ask_at_once_hear_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with engine(program(rank_code("time.sleep(600)", tmp_path / "ready"))) as (
            local,
            watcher,
        ):
            local.start(request(1))
            await watcher.started(1)
            await written(tmp_path / "ready")
            first, second = await asyncio.gather(dumped(local, 0), dumped(local, 0))
            assert first[0] == second[0] and first[0]

    asyncio.run(main())


def test_nobody_to_ask() -> None:
    async def main() -> None:
        async with engine() as (local, _):
            assert await dumped(local, 0, 1) == ({}, {})

    asyncio.run(main())


def test_only_a_signal_that_is_caught_is_sent() -> None:
    assert stacks_module.SIGNAL is not None
    assert not stacks_module.catches(os.getpid(), stacks_module.SIGNAL)
    assert stacks_module.catches(os.getpid(), signal.SIGINT)
    assert not stacks_module.catches(2**22 + 1, signal.SIGINT)


# ---------------------------------------------------------------- connections

PEER = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
port = int(sys.stdin.readline())
out = socket.create_connection(("127.0.0.1", port))
into, _ = server.accept()
print("connected", flush=True)
for end in (out, into):
    print(repr(end.recv(1)), flush=True)
sys.stdin.readline()
"""


class Peers:
    """Two processes with a connection each way: each waits for the end of both."""

    def __init__(self) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", PEER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for _ in range(2)
        ]
        self.ports = [int(self.line(rank)) for rank in (0, 1)]
        for rank in (0, 1):
            self.tell(rank, str(self.ports[1 - rank]))
        assert [self.line(rank) for rank in (0, 1)] == ["connected"] * 2
        self.pids = {rank: process.pid for rank, process in enumerate(self.processes)}

    def line(self, rank: int) -> str:
        stdout = self.processes[rank].stdout
        assert stdout is not None
        return stdout.readline().strip()

    def tell(self, rank: int, text: str) -> None:
        stdin = self.processes[rank].stdin
        assert stdin is not None
        stdin.write(text + "\n")

    def count(self, rank: int) -> int:
        return len(list(connections(self.pids[rank], table())))


@pytest.fixture
def peers() -> Iterator[Peers]:
    found = Peers()
    yield found
    for process in found.processes:
        process.kill()
        process.communicate()


def test_connections_between_ranks_are_closed(peers: Peers) -> None:
    closed, refused = unblock(peers.pids, [0], [], store=False)
    assert (closed, refused) == ({0: 2}, {})
    for rank in (0, 1):
        assert [peers.line(rank), peers.line(rank)] == ["b''", "b''"]
    assert unblock(peers.pids, [0, 1], [], store=False)[1] == {}  # once more does no harm


def test_ports_of_stores_are_left_alone(peers: Peers) -> None:
    assert unblock(peers.pids, [0], peers.ports, store=False) == ({0: 0}, {})
    assert peers.count(0) == 2


def test_of_a_store_only_the_own_end_is_closed(peers: Peers) -> None:
    assert unblock(peers.pids, [0], [peers.ports[1]], store=True) == ({0: 1}, {})
    assert peers.line(0) == "b''"  # what it had opened; the other one is still there


def test_strangers_are_left_alone(peers: Peers) -> None:
    assert unblock({0: peers.pids[0]}, [0], [], store=False) == ({0: 0}, {})
    with socket.create_server(("127.0.0.1", 0)) as server:
        out = socket.create_connection(server.getsockname())
        with out, server.accept()[0]:
            ours = {0: peers.pids[0], 1: os.getpid()}
            assert unblock(ours, [0], [], store=False) == ({0: 0}, {})
    assert peers.count(0) == 2


def test_what_is_not_permitted_is_reported(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmd_kernel.engines.unblock.PIDFD_GETFD", 9438)
    closed, refused = unblock(peers.pids, [0], [], store=False)
    assert closed == {0: 0}
    for fd, inode in refused[0]:
        assert os.stat(f"/proc/{peers.pids[0]}/fd/{fd}").st_ino == inode
    assert len(refused[0]) == 2


def test_a_rank_that_is_gone_has_nothing_to_close(peers: Peers) -> None:
    peers.processes[1].kill()
    peers.processes[1].wait()
    closed, refused = unblock(peers.pids, [1], [], store=False)
    assert (closed, refused) == ({1: 0}, {})
