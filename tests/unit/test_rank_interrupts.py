"""KeyboardInterrupt in ipykernel's own hooks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from spmd_kernel.rank.interrupts import install


class Kernel:
    """What the hooks need of ipykernel's: each raises at the calls that ``raising`` names."""

    def __init__(self, *raising: str):
        self.raising = list(raising)
        self.called: list[str] = []
        install(self)

    def pre_handler_hook(self) -> None:
        self._call("pre")

    def post_handler_hook(self) -> None:
        self._call("post")

    def _call(self, name: str) -> None:
        self.called.append(name)
        if name in self.raising:
            self.raising.remove(name)
            raise KeyboardInterrupt


@pytest.fixture
def interrupted() -> Iterator[threading.Event]:
    """Set when SIGINT comes."""
    event = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: event.set())
    yield event
    signal.signal(signal.SIGINT, before)


def test_what_comes_before_a_cell_comes_again_in_it(interrupted: threading.Event) -> None:
    kernel = Kernel("pre")
    kernel.pre_handler_hook()
    assert interrupted.wait(20)


def test_what_comes_after_a_cell_changes_nothing() -> None:
    kernel = Kernel("post")
    kernel.pre_handler_hook()
    kernel.post_handler_hook()
    assert kernel.called == ["pre", "post", "post"]  # SIGINT is ignored again
    kernel.post_handler_hook()
    assert kernel.called[3:] == ["post"]
