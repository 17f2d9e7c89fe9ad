"""What many starts, and kernels side by side, leave behind: nothing."""

from __future__ import annotations

import os
import signal

import pytest

from ..kernel.client import Kernel
from .conftest import Family

pytestmark = pytest.mark.faults


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.timeout(300)
def test_30_restarts_of_the_ranks_leak_nothing(kernel: Kernel, family: Family) -> None:
    kernel.ok("%processes 2 --fresh")
    (supervisor,) = family.supervisors()
    pids, files = len(family.pids()), (open_files(kernel.pid), open_files(supervisor))
    for _ in range(30):
        kernel.ok("%processes 2 --fresh")
    # A rank that has ended is listed until the kernel of the machine has taken it apart.
    family.wait(lambda now: len(now) == pids, "processes leak")
    assert family.supervisors() == {supervisor}
    assert len(list(family.directory.glob("spmd-kernel-*"))) == 1
    family.wait(
        lambda _: (open_files(kernel.pid), open_files(supervisor)) <= files, "descriptors leak"
    )
    kernel.manager.shutdown_kernel(now=False)
    family.wait_gone()


def test_restarts_of_the_kernel_leave_nothing(kernel: Kernel, family: Family) -> None:
    for _ in range(3):
        old = family.pids()
        kernel.manager.restart_kernel(now=False)
        kernel.client.wait_for_ready(timeout=60)
        kernel.ok("%processes 2")
        family.wait(lambda pids, old=old: not pids & old, "the old family")
        family.wait(lambda pids: len(pids) == 4, "not kernel, supervisor and two ranks")


def test_two_kernels_do_not_touch_each_other(kernel: Kernel, family: Family) -> None:
    other_family = Family(family.directory)
    other = Kernel(env=other_family.environ)
    try:
        kernel.ok("%processes 2")
        other.ok("%processes 2")
        os.kill(kernel.pid, signal.SIGKILL)
        family.wait(lambda pids: not pids, "the first is left")
        assert other.ok("print('alive')").stdout.count("alive") >= 1
        assert len(list(family.directory.glob("spmd-kernel-*"))) == 1
    finally:
        other.close()
        other_family.wait_gone()
