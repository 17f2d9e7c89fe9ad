"""Held ports against the kernel's own port allocation, and against those who must bind over them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from spmd_kernel.core.model import Settings
from spmd_kernel.core.topology import World, rank_environment
from spmd_kernel.engines.ports import HeldPorts

# Linux >= 6.3: one socket's range of automatic ports. With a range of one port a race needs no luck.
IP_LOCAL_PORT_RANGE = 51

AUTOMATIC = """if True:
    import socket, struct, sys
    port, family, address, reuse, way = sys.argv[1:]
    s = socket.socket(getattr(socket, family))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    s.setsockopt(socket.IPPROTO_IP, 51, struct.pack("=HH", int(port), int(port)))
    try:
        if way == "bind":
            s.bind((address, 0))
        else:
            listener = socket.create_server((address, 0), family=s.family)
            s.connect(listener.getsockname())
        print("got", s.getsockname()[1])
    except OSError as error:
        print("refused", error.errno)
"""


@pytest.fixture
def held() -> Iterator[HeldPorts]:
    ports = HeldPorts(2)
    yield ports
    ports.close()


def automatic(port: int, *how: str) -> str:
    command = [sys.executable, "-c", AUTOMATIC, str(port), *how]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_ports_are_distinct_and_closing_is_idempotent() -> None:
    held = HeldPorts(16)
    assert len(set(held.ports)) == 16
    held.close()
    held.close()
    assert len(held.ports) == 16


@pytest.mark.parametrize("way", ["bind", "connect"])
@pytest.mark.parametrize("reuse", ["0", "1"])
@pytest.mark.parametrize(
    ("family", "address"),
    [("AF_INET", "127.0.0.1"), ("AF_INET", "0.0.0.0"), ("AF_INET6", "::1"), ("AF_INET6", "::")],
)
def test_nobody_is_given_a_held_port(
    family: str, address: str, reuse: str, way: str, held: HeldPorts
) -> None:
    if not has_port_range():  # the same question, less directly
        with pytest.raises(OSError, match="in use"), socket.socket() as taker:
            taker.bind(("127.0.0.1", held.ports[0]))
        return
    if way == "connect" and address in ("0.0.0.0", "::"):
        address = "127.0.0.1" if family == "AF_INET" else "::1"
    how = (family, address, reuse, way)
    assert automatic(held.ports[0], *how).startswith("refused")
    held.close()
    assert automatic(held.ports[0], *how) == f"got {held.ports[0]}"


def test_one_who_asks_for_it_by_number_listens_over_it_twice(held: HeldPorts) -> None:
    """Twice: the connections of the first are in TIME_WAIT then."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "127.0.0.1")) * 2:
        listener = socket.create_server(
            (address, held.ports[0]), family=family, dualstack_ipv6=family == socket.AF_INET6
        )
        with listener, socket.create_connection(("127.0.0.1", held.ports[0])) as client:
            server, _ = listener.accept()
            server.close()  # first: TIME_WAIT is on the side of the listener
            assert client.recv(1) == b""


def test_a_process_started_meanwhile_does_not_inherit_them(held: HeldPorts) -> None:
    inodes = {os.fstat(s.fileno()).st_ino for s in held._sockets}
    code = "import os; print(*[os.stat(f'/proc/self/fd/{n}').st_ino for n in range(3, 64)"
    code += " if os.path.exists(f'/proc/self/fd/{n}')])"
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, close_fds=False, capture_output=True, text=True, check=True)
    assert not inodes & set(map(int, output.stdout.split()))


GLOO = """if True:
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    x = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(x)
    print(int(x.item()))
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(("size", "libuv"), [(2, "0"), (4, "1")])
def test_gloo_meets_on_a_held_port(size: int, libuv: str, held: HeldPorts) -> None:
    settings = Settings(session="s", environ=dict(os.environ))
    world = World(size, 0, held.ports[0], held.ports[1], "run")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", GLOO],
            env={
                **os.environ,
                **rank_environment(settings, world, rank, {"USE_LIBUV": libuv})[0],
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    assert [rank.communicate()[0].strip() for rank in ranks] == [str(sum(range(size + 1)))] * size


def has_port_range() -> bool:
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, 0)
        except OSError:
            return False
    return True
