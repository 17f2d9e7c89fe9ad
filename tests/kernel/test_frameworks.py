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


def test_groups_are_made_again_while_a_model_holds_the_old_one(pair: Kernel) -> None:
    pair.ok("import torch, torch.distributed as dist")
    pair.ok("from torch.nn.parallel import DistributedDataParallel")
    for _ in range(3):
        pair.ok("dist.init_process_group('gloo')")
        pair.ok("model = DistributedDataParallel(torch.nn.Linear(2, 2))")
        pair.ok("model(torch.ones(1, 2)).sum().backward()")
        pair.ok("dist.destroy_process_group()")


def test_groups_are_made_again_at_once(pair: Kernel) -> None:
    pair.ok("import torch, torch.distributed as dist")
    again = f"dist.init_process_group('gloo')\n{SUM}\ndist.destroy_process_group()\n"
    assert pair.ok(again * 10).stdout == "sum 3\n" * 10


def test_a_group_that_one_rank_gave_up_is_made_later(pair: Kernel) -> None:
    pair.ok("import os, datetime, torch, torch.distributed as dist")
    again = f"dist.init_process_group('gloo')\n{SUM}\ndist.destroy_process_group()\n"
    for rank in (0, 1):
        assert pair.ok(again).stdout == "sum 3\n"
        short = "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=0.2))"
        alone = pair.run(f"if os.environ['RANK'] == '{rank}': {short}")
        assert alone.reply["ename"] == "DistStoreError"
    assert pair.ok(again).stdout == "sum 3\n"


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


MODEL = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model, data = torch.nn.Linear(4, 1), DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
"""
LIGHTNING = """
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, index):
        return self.model(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
trainer = lightning.Trainer(
    strategy="ddp", devices=2, accelerator="cpu", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Module(), data)
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), data)
for (batch,) in data:
    accelerator.backward(model(batch).square().mean())
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("training", "sizes", "rank"),
    [
        (LIGHTNING, "trainer.world_size, trainer.num_training_batches", "trainer.global_rank"),
        (ACCELERATE, "accelerator.num_processes, len(data)", "accelerator.process_index"),
    ],
    ids=["lightning", "accelerate"],
)
def test_trainers_train_on_all_ranks_as_under_torchrun(
    pair: Kernel, training: str, sizes: str, rank: str
) -> None:
    pair.ok(MODEL)
    pair.ok(training)
    assert pair.ok(f"print({sizes})").stdout == "2 4\n"
    assert pair.ok(f"print({rank})").text == "0 │ 0\n1 │ 1\n"
    assert pair.ok("%compare model").text.startswith("equal on 2 ranks")
