"""Where ranks bind: what the connection file says is where we connect, and nobody else gets there."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from jupyter_client.connect import ConnectionFileMixin

from spmd_kernel.engines.place import NUMBERS, Place
from spmd_kernel.kernelspecs import Kernelspec

IPYKERNEL = ("python", "-m", "ipykernel_launcher", "-f", "{connection_file}")
OTHER = ("R", "--args", "{connection_file}")


def kernelspec(argv: tuple[str, ...]) -> Kernelspec:
    return Kernelspec("k", "", argv, {}, "K", "x", "signal", {}, {})


@pytest.mark.parametrize(("argv", "transport"), [(IPYKERNEL, "ipc"), (OTHER, "tcp")])
def test_clients_read_the_file_as_we_do(
    tmp_path: Path, argv: tuple[str, ...], transport: str
) -> None:
    place = Place.of(kernelspec(argv), str(tmp_path / "r0"))
    try:
        path = tmp_path / "c.json"
        path.write_bytes(place.connection("k", b"secret"))
        client = ConnectionFileMixin(connection_file=str(path))
        client.load_connection_file()
        assert client.transport == transport
        assert client.session.key == b"secret"
        assert {name: client._make_url(name) for name in NUMBERS} == place.addresses
        assert json.loads(path.read_text())["kernel_name"] == "k"
    finally:
        place.close()


def test_ports_are_held_on_loopback_until_the_end() -> None:
    place = Place.of(kernelspec(OTHER), "")
    assert place.ip == "127.0.0.1"
    assert len(set(place.ports.values())) == len(NUMBERS)

    def bind(reuse: bool) -> None:
        with socket.socket() as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            made.bind((place.ip, place.ports["shell"]))
            made.listen()

    bind(reuse=True)  # as libzmq does
    with pytest.raises(OSError):
        bind(reuse=False)
    place.close()
    place.close()
    bind(reuse=False)
