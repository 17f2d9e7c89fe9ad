"""PyTorch and JAX find their world by themselves, in the same ranks, over cells and restarts."""

from __future__ import annotations

import pytest

from .client import Kernel

SUM = "t = torch.tensor([dist.get_rank() + 1.0]); dist.all_reduce(t); print('sum', int(t))"


@pytest.mark.parametrize("size", [2, 4])
def test_gloo_over_cells_and_restarts(kernel: Kernel, size: int) -> None:
    for round_ in range(2):
        kernel.ok(f"%processes {size} --fresh")
        kernel.ok("import torch, torch.distributed as dist")
        for _ in range(2):
            kernel.ok("dist.init_process_group('gloo')")
            assert kernel.ok(SUM).stdout == f"sum {size * (size + 1) // 2}\n", round_
            kernel.ok("dist.barrier(); dist.destroy_process_group()")


def test_jax_and_torch_in_the_same_ranks(pair: Kernel) -> None:
    pair.ok("import torch.distributed as dist, torch; dist.init_process_group('gloo')")
    pair.ok("import jax; jax.distributed.initialize()")
    assert pair.ok("print(jax.process_count(), jax.device_count() > 1)").stdout == "2 True\n"
    ranks = "print(jax.process_index() == dist.get_rank() == int(__import__('os').environ['RANK']))"
    assert pair.ok(ranks).stdout == "True\n"
    assert pair.ok(SUM).stdout == "sum 3\n"


def test_two_notebooks_do_not_meet() -> None:
    with Kernel() as one, Kernel() as two:
        for kernel in (one, two):
            kernel.ok("%processes 2")
            kernel.ok("import torch, torch.distributed as dist")
        for kernel in (one, two):
            kernel.ok("dist.init_process_group('gloo')")
        for kernel in (one, two):
            assert kernel.ok(SUM).stdout == "sum 3\n"


def test_the_kernel_process_stays_light(pair: Kernel) -> None:
    pair.ok("import torch")
    with open(f"/proc/{pair.pid}/maps") as file:
        maps = file.read()
    for library in ("libtorch", "numpy", "jaxlib"):
        assert library not in maps
