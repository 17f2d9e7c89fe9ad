"""A kernel whose whole family is found by a mark in its environment, wherever it has fled to."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from ..kernel.client import Kernel

MARK = "SPMD_TEST_FAMILY"
DEADLINE = 60.0


class Family:
    """All processes with one mark, and the directory in which the kernel makes its own."""

    def __init__(self, directory: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.directory = directory
        drop = ("SPMD_", "SLURM_", "PMI", "OMPI_", "OMP_NUM_THREADS")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        self.environ = {**inherited, MARK: self.mark, "XDG_RUNTIME_DIR": str(directory)}

    def pids(self) -> set[int]:
        wanted = f"{MARK}={self.mark}".encode()
        return {pid for pid in every_pid() if wanted in read(pid, "environ") and runs(pid)}

    def named(self, word: str) -> set[int]:
        return {pid for pid in self.pids() if word.encode() in read(pid, "cmdline")}

    def supervisors(self) -> set[int]:
        """Those that lead a session and have ranks below them, or will have."""
        return {pid for pid in self.named("zygote.py") if runs(pid)}

    def wait(self, holds: Callable[[set[int]], object], what: str) -> set[int]:
        end = time.monotonic() + DEADLINE
        while not holds(pids := self.pids()):
            assert time.monotonic() < end, (what, {p: read(p, "cmdline") for p in pids})
            time.sleep(0.02)
        return pids

    def wait_gone(self) -> None:
        self.wait(lambda pids: not pids, "processes are left")
        end = time.monotonic() + DEADLINE
        while left := [path for path in self.directory.iterdir() if "kernel-" in path.name]:
            assert time.monotonic() < end, left
            time.sleep(0.02)

    def kill(self) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def every_pid() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def runs(pid: int) -> bool:
    state = read(pid, "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in (b"Z", b"X")


@pytest.fixture
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    family = Family(tmp_path_factory.mktemp("run"))
    try:
        yield family
    finally:
        family.kill()


@pytest.fixture
def kernel(family: Family) -> Iterator[Kernel]:
    kernel = Kernel(env=family.environ)
    try:
        yield kernel
    finally:
        kernel.client.stop_channels()
        with suppress(Exception):
            kernel.manager.shutdown_kernel(now=True)
        kernel.manager.cleanup_resources()


@pytest.fixture
def starting(family: Family) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A kernel process that has just been started, nobody waited for it."""
    manager = KernelManager(kernel_name="spmd-python3")
    manager.start_kernel(env=family.environ)
    client = manager.client()
    client.start_channels()
    try:
        yield manager, client
    finally:
        client.stop_channels()
        with suppress(Exception):
            manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
