"""Kills while all ranks stand at a breakpoint, with or without debug adapters beside them."""

from __future__ import annotations

import os
import signal

import pytest

from ..kernel.client import Kernel
from ..kernel.dap import OLD, Dap
from .conftest import Family

pytestmark = pytest.mark.faults

CODE = "a = 1\nb = 2\nprint('over')"


def at_a_breakpoint(kernel: Kernel, adapters: bool = False) -> tuple[Dap, str]:
    """The debugger, and the cell that does not go on."""
    kernel.ok("%processes 2")
    if adapters:
        kernel.ok(OLD)
    dap = Dap(kernel)
    dap.start()
    dap.breakpoints(CODE, 2)
    cell = kernel.send(CODE)
    dap.until_stopped({0, 1})
    return dap, cell


@pytest.mark.parametrize("adapters", [False, True])
def test_the_kernel_process_is_killed(kernel: Kernel, family: Family, adapters: bool) -> None:
    at_a_breakpoint(kernel, adapters)
    assert bool(family.named("debugpy")) == adapters
    os.kill(kernel.pid, signal.SIGKILL)
    family.wait_gone()


@pytest.mark.parametrize("victim", ["supervisor", "rank", "adapter"])
def test_something_else_is_killed(kernel: Kernel, family: Family, victim: str) -> None:
    dap, cell = at_a_breakpoint(kernel, victim == "adapter")
    word = {"supervisor": "zygote.py", "rank": "r1.json", "adapter": "debugpy"}[victim]
    os.kill(min(family.named(word)), signal.SIGKILL)
    if victim == "adapter":  # the rank goes on without a debugger, or waits for Stop
        kernel.manager.interrupt_kernel()
    elif victim == "rank":  # whoever looks at the others may go on looking
        dap.event("output", lambda body: "rank 1 died" in body["output"])
        dap.until_stopped({0})
        dap.ok("continue", threadId=1)
    result = kernel.collect(cell)
    if victim != "adapter":
        assert result.reply["ename"] == "RankLost"
    kernel.ok("%processes 2 --fresh")
    assert "usable" in kernel.ok("print('usable')").stdout
    kernel.manager.shutdown_kernel(now=False)
    family.wait_gone()
