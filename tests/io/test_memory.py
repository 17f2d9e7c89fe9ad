"""When memory is given back: at the end of what was big, and once more after the next cell."""

from __future__ import annotations

from typing import Any

import pytest

from spmd_kernel.core.model import Message, ToFront
from spmd_kernel.io import memory
from spmd_kernel.io.memory import MUCH, Memory


class Loop:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_soon(self, callback: Any) -> None:
        self.calls.append(callback)

    def call_later(self, _: float, callback: Any) -> None:
        self.calls.append(callback)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def cell(loop: Loop) -> Any:
    """Run a cell with messages of these sizes; whether its end gave memory back."""
    kept = Memory(loop)  # type: ignore[arg-type]

    def run(*sizes: int, buffers: tuple[bytes | memoryview, ...] = ()) -> bool:
        for state in (b"busy", b"idle"):
            for size in sizes if state == b"idle" else ():
                kept.came(Message({}, {}, {}, bytes(size), buffers))
            content = b'{"execution_state":"' + state + b'"}'
            kept.went(ToFront("iopub", (), "status", content, {}, {}))
        calls, loop.calls = loop.calls, []
        assert calls in ([], [memory.give_back] * 2)
        return bool(calls)

    return run


def test_small_cells_give_nothing_back_until_they_are_many(cell: Any) -> None:
    assert not cell(MUCH // 2)
    assert not cell(MUCH // 2)
    assert cell(1)
    assert not cell(1)


def test_after_a_big_cell_the_next_one_gives_back_too(cell: Any) -> None:
    assert cell(MUCH, MUCH, MUCH)
    assert cell(1)
    assert not cell(1)


def test_buffers_count(cell: Any) -> None:
    assert not cell(1, buffers=(bytes(10), memoryview(bytes(10))))
    assert cell(1, buffers=(memoryview(bytes(MUCH)),))


def test_giving_back_harms_nothing_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    memory.keep()
    memory.give_back()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # as on macOS and with musl
    memory.keep()
    memory.give_back()
