"""Waits for other processes that Python can interrupt, ahead of waits in C++ that it cannot.

torch's ``TCPStore`` (`init_process_group` on another rank than 0) and ``jax.distributed.initialize``
try again and again to reach a process that has not come yet, asleep for seconds at a time, and no
signal or closed connection ends that; JAX's processes even end themselves when it fails.  So a rank
enters those calls only once the others are there.

Executed by path in a rank; must not need our package, nor import torch or jax before the user does.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import select
import socket
import sys
import time
from typing import Any

PAUSE = 0.01, 0.25  # seconds between attempts to connect: the first, and the longest
DEFAULT_SECONDS = 300.0  # that both libraries wait
STORE_HINT = "hint: rank 0 serves the store: all ranks have to call init_process_group"
JAX_HINT = "hint: all ranks have to call jax.distributed.initialize"


def listens(host: str, port: int, seconds: float) -> bool:
    try:
        with socket.create_connection((host, port), seconds) as found:
            return bool(found.getsockname() != found.getpeername())  # TCP can reach itself
    except (OSError, ValueError, OverflowError):
        return False


def reach(host: str, port: int, seconds: float) -> bool:
    """Wait until somebody listens there; no event tells.  False: nobody did."""
    end, pause = time.monotonic() + seconds, PAUSE[0]
    while not listens(host, port, max(0.1, end - time.monotonic())):
        if time.monotonic() + pause >= end:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, PAUSE[1])
    return True


# ---------------------------------------------------------------- torch


def open_store(rendezvous: Any) -> None:
    """Have clients of a ``TCPStore`` wait for its server here; of the module that calls it."""
    store = rendezvous.TCPStore
    connect = store.__init__
    parameters = ("host_name", "port", "world_size", "is_master", "timeout")

    @functools.wraps(connect)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        given = {**dict(zip(parameters, args)), **kwargs}  # noqa: B905 (ranks with Python 3.9)
        try:
            with contextlib.suppress(
                AttributeError, KeyError, TypeError, ValueError
            ):  # torch tells
                if not given.get("is_master"):
                    await_server(str(given["host_name"]), int(given["port"]), given.get("timeout"))
            connect(self, *args, **kwargs)
        except BaseException:
            count_anew()
            raise

    store.__init__ = __init__


def count_anew() -> None:
    """torch counts its groups, also one that was never made: the ranks would not meet again."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    with contextlib.suppress(Exception):
        if c10d is not None and not c10d.is_initialized():
            c10d._world.group_count = 0


def await_server(host: str, port: int, timeout: Any) -> None:
    __tracebackhide__ = True
    seconds = DEFAULT_SECONDS if timeout is None else timeout.total_seconds()
    try:
        reached = reach(host, port, seconds)
    except KeyboardInterrupt as interrupt:
        interrupt.args = (f"nobody listened on {host}:{port} yet; {STORE_HINT}",)
        raise
    if not reached:
        import torch.distributed

        error: Any = getattr(torch.distributed, "DistNetworkError", RuntimeError)
        raise error(
            f"The client socket has timed out after {seconds * 1000:.0f}ms while trying to "
            f"connect to ({host}, {port})."
        )


# ---------------------------------------------------------------- jax


class Gathering:
    """Processes of one world on this machine that have come, each a socket with a known name.

    A name is free again as soon as its process leaves or ends; to leave is to have failed, or to
    have shut down: those that still wait must see who went ahead.
    """

    def __init__(self) -> None:
        self.here: socket.socket | None = None

    def wait(self, name: str, me: int, size: int, seconds: float) -> list[int]:
        """Until processes 0 … ``size`` - 1 are here at once.  Returns those that did not come.

        Raises `OSError` where there are no such names (only Linux has them).
        """
        self.leave()
        self.here = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.here.bind(_address(name, me))
        others = [process for process in range(size) if process != me]
        for process in others:  # those that wait already look around again
            _knock(_address(name, process), self.here)
        end = time.monotonic() + seconds
        while missing := [p for p in others if not _knock(_address(name, p))]:
            try:
                heard, _, _ = select.select([self.here], [], [], max(0.0, end - time.monotonic()))
            except KeyboardInterrupt as interrupt:
                interrupt.args = (f"{_named(missing)} had not come yet; {JAX_HINT}",)
                raise
            if not heard:
                return missing
            self.here.recv(1)
        return []

    def leave(self) -> None:
        if self.here is not None:
            self.here.close()
            self.here = None


def _named(processes: list[int]) -> str:
    return ", ".join(f"process {process}" for process in processes)


def _address(name: str, process: int) -> str:
    return f"\0{name}/{process}"


def _knock(address: str, sender: socket.socket | None = None) -> bool:
    """Whether somebody is there, who hears of a ``sender``."""
    with contextlib.suppress(OSError):
        if sender is not None:
            return sender.sendto(b".", socket.MSG_DONTWAIT, address) > 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
            found.connect(address)
            return True
    return False


def gather(distributed: Any) -> None:
    """Have ``jax.distributed.initialize`` wait for the other processes here.

    Process 0 before it serves, so that it may try again; the others before they connect.
    """
    state, extension = distributed.State, distributed._jax
    initialize, shutdown = state.initialize, state.shutdown
    serve = extension.get_distributed_runtime_service
    connect = extension.get_distributed_runtime_client
    gathering = Gathering()
    patience = [DEFAULT_SECONDS]

    @functools.wraps(initialize)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with contextlib.suppress(TypeError):
            given = inspect.signature(initialize).bind(self, *args, **kwargs)
            given.apply_defaults()
            patience[0] = given.arguments.get("initialization_timeout", DEFAULT_SECONDS)
        try:
            return initialize(self, *args, **kwargs)
        except BaseException:
            gathering.leave()
            raise

    @functools.wraps(shutdown)
    def leave(self: Any, *args: Any, **kwargs: Any) -> Any:
        gathering.leave()
        return shutdown(self, *args, **kwargs)

    def service(address: str, num_nodes: int, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        await_processes(gathering, distributed.global_state, 0, num_nodes, patience[0])
        return serve(address, num_nodes, *args, **kwargs)

    def client(address: str, node_id: int, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        size = distributed.global_state.num_processes
        if node_id != 0:
            await_processes(gathering, distributed.global_state, node_id, size, patience[0])
        return connect(address, node_id, *args, **kwargs)

    state.initialize, state.shutdown = wrapped, leave
    extension.get_distributed_runtime_service = service
    extension.get_distributed_runtime_client = client


def await_processes(gathering: Gathering, state: Any, me: int, size: int, seconds: float) -> None:
    __tracebackhide__ = True
    host, _, port = str(state.coordinator_address).rpartition(":")
    missing: list[int] = []
    if is_ours(host.strip("[]"), me, size):
        name = f"spmd-kernel/{os.environ.get('TORCHELASTIC_RUN_ID')}/{port}"
        with contextlib.suppress(OSError):
            missing = gathering.wait(name, me, size, seconds)
    elif me != 0 and port.isdigit() and not reach(host.strip("[]"), int(port), seconds):
        missing = [0]
    if missing:
        raise RuntimeError(
            f"DEADLINE_EXCEEDED: {_named(missing)} had not come within {seconds} s; {JAX_HINT}"
        )


def is_ours(host: str, me: int, size: int) -> bool:
    """Whether the ranks of this kernel are the processes of that world, and nobody else is."""
    known = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    local = host in ("localhost", "::1") or host.startswith("127.")
    return sys.platform.startswith("linux") and local and known == (str(me), str(size))
