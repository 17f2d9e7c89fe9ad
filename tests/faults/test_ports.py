"""A busy machine: thousands of ports are taken, and other kernels take more all the time."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ..kernel.client import Kernel
from .conftest import Family

MOST = 3000
SPARE = 400  # file descriptors that the test itself needs
SUM = (
    "import torch, torch.distributed as dist; dist.init_process_group('gloo')\n"
    "t = torch.ones(1); dist.all_reduce(t); print(int(t))"
)


@pytest.fixture
def crowd() -> Iterator[int]:
    """Many ports of this machine are bound and listened on; how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + SPARE
    limit = max(soft, wanted if hard == resource.RLIM_INFINITY else min(hard, wanted))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    with ExitStack() as stack:
        for _ in range(min(MOST, limit - SPARE)):
            bound = stack.enter_context(socket.socket())
            bound.bind(("127.0.0.1", 0))
            bound.listen(1)
        yield min(MOST, limit - SPARE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_worlds_come_and_go_under_port_pressure(crowd: int, family: Family) -> None:
    assert crowd > 100
    with Kernel(env=family.environ) as one, Kernel(env=family.environ) as two:
        for size in (2, 4, 2):
            for kernel in (one, two):
                kernel.ok(f"%processes {size} --fresh")
            sent = [(kernel, kernel.send(SUM)) for kernel in (one, two)]  # at the same time
            for kernel, msg_id in sent:
                result = kernel.collect(msg_id)
                assert result.stdout == f"{size}\n", result.text
    family.wait_gone()
