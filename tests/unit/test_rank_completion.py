"""The first completion beside a running cell does without what takes a second to load."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from spmd_kernel.rank import first_completion


class Kernel:
    """What of ipykernel's is touched; it notes whether each completion used Jedi."""

    def __init__(self, uses: bool = True):
        self.shell = SimpleNamespace(Completer=SimpleNamespace(use_jedi=uses))
        self.used: list[bool] = []

    def do_complete(self, code: str, cursor_pos: int) -> str:
        if code == "raise":
            raise ValueError
        self.used.append(self.shell.Completer.use_jedi)
        return f"{code} {cursor_pos}"


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """When Jedi may be loaded."""
    go = threading.Event()
    monkeypatch.setattr(first_completion, "load", lambda: go.wait(60))
    for name in [name for name in sys.modules if name.startswith("jedi")]:
        monkeypatch.delitem(sys.modules, name)
    return go


def beside(kernel: Any, code: str = "x") -> Any:
    """As a subshell would."""
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(kernel.do_complete(code, 1))
        except ValueError as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]


def test_beside_a_cell_names_come_without_it_until_it_is_there(go: threading.Event) -> None:
    kernel = Kernel()
    first_completion.install(kernel)
    assert [beside(kernel), beside(kernel)] == ["x 1", "x 1"]
    assert kernel.used == [False, False] and kernel.shell.Completer.use_jedi
    (loader,) = [t for t in threading.enumerate() if t.name == "spmd-kernel loads jedi"]
    go.set()
    loader.join()
    beside(kernel)
    assert kernel.used == [False, False, True]


def test_an_idle_rank_completes_as_it_always_did(go: threading.Event) -> None:
    kernel = Kernel()
    first_completion.install(kernel)
    assert kernel.do_complete("x", 1) == "x 1"
    assert kernel.used == [True]
    assert not [t for t in threading.enumerate() if t.name == "spmd-kernel loads jedi"]


def test_who_does_without_it_goes_on_to(go: threading.Event) -> None:
    kernel = Kernel(uses=False)
    first_completion.install(kernel)
    beside(kernel)
    assert kernel.used == [False] and not kernel.shell.Completer.use_jedi


def test_a_completion_that_fails_leaves_no_trace(go: threading.Event) -> None:
    go.set()
    kernel = Kernel()
    first_completion.install(kernel)
    assert isinstance(beside(kernel, "raise"), ValueError)
    assert kernel.shell.Completer.use_jedi


def test_other_kernels_have_no_completer() -> None:
    with pytest.raises(AttributeError):
        first_completion.install(SimpleNamespace(shell=None))


def test_the_completer_is_used_by_one_thread_at_a_time(go: threading.Event) -> None:
    entered, may_leave = threading.Event(), threading.Event()

    class Slow(Kernel):
        def do_complete(self, code: str, cursor_pos: int) -> str:
            entered.set()
            may_leave.wait(60)
            return super().do_complete(code, cursor_pos)

    kernel = Slow()
    first_completion.install(kernel)
    first = threading.Thread(target=beside, args=(kernel,))
    first.start()
    assert entered.wait(60)
    entered.clear()
    second = threading.Thread(target=beside, args=(kernel,))
    second.start()
    assert not entered.wait(0.1)
    may_leave.set()
    for thread in (first, second):
        thread.join()
    assert entered.is_set() and len(kernel.used) == 2
