"""When memory is given back: at the end of big text, and a while after anything big."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import Mock

import pytest

from spmd_kernel.core.model import Message, ToFront
from spmd_kernel.io import memory
from spmd_kernel.io.memory import MUCH, Memory


class Loop:
    """Notes what is to be called, and when."""

    def __init__(self) -> None:
        self.soon: list[Any] = []
        self.later: dict[int, Any] = {}
        self._numbers = itertools.count()

    def call_soon(self, callback: Any) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Any) -> Any:
        assert seconds == memory.REST
        number = next(self._numbers)
        self.later[number] = callback
        return Mock(cancel=lambda: self.later.pop(number))


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def cell(loop: Loop) -> Any:
    """Run a cell with messages of these sizes; whether memory is given back at its end, and after it."""
    kept = Memory(loop)  # type: ignore[arg-type]

    def run(*sizes: int, kind: str = "stream", buffers: Any = ()) -> tuple[bool, bool]:
        loop.soon.clear()
        loop.later.clear()
        kept.went(ToFront("iopub", (), "status", b'{"execution_state":"busy"}', {}, {}))
        for size in sizes:
            kept.came(Message({"msg_type": kind}, {}, {}, bytes(size), buffers))
            kept.went(ToFront("iopub", (), "stream", b'{"text": "idle"}', {}, {}))
        assert not loop.soon and not loop.later
        kept.went(ToFront("iopub", (), "status", b'{"execution_state":"idle"}', {}, {}))
        return memory.give_back in loop.soon, memory.give_back in loop.later.values()

    return run


def test_small_cells_give_nothing_back_until_they_are_many(cell: Any) -> None:
    assert cell(MUCH // 2) == (False, False)
    assert cell(MUCH // 2) == (False, False)
    assert cell(1) == (True, True)
    assert cell(1) == (False, False)


def test_images_leave_their_memory_to_the_next_ones(cell: Any, loop: Loop) -> None:
    assert cell(MUCH, MUCH, kind="display_data") == (False, True)
    assert cell(1) == (False, False)


def test_only_the_last_of_big_cells_gives_back_afterwards(loop: Loop) -> None:
    kept = Memory(loop)  # type: ignore[arg-type]
    for _ in range(3):
        kept.came(Message({"msg_type": "display_data"}, {}, {}, bytes(2 * MUCH)))
        kept.went(ToFront("iopub", (), "status", b'{"execution_state":"idle"}', {}, {}))
    assert list(loop.later.values()) == [memory.give_back]


def test_buffers_count(cell: Any) -> None:
    assert cell(1, kind="comm_msg", buffers=(bytes(10), memoryview(bytes(10)))) == (False, False)
    assert cell(1, kind="comm_msg", buffers=(memoryview(bytes(MUCH)),)) == (False, True)


def test_giving_back_harms_nothing_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    memory.keep()
    memory.give_back()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # as on macOS and with musl
    memory.keep()
    memory.give_back()
