"""`%compare`, `%timing`, `%%timeout` and `%ranks` on real ranks with numpy, torch and jax."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from .client import Kernel

pytestmark = pytest.mark.kernel
PREPARE = """\
import os
rank = int(os.environ["RANK"])
"""


def compare(kernel: Kernel, expression: str) -> str:
    """What is said, digests left out; the same number of cells as ever, and nothing is left."""
    names = kernel.ok("print(sorted(globals()), len(Out), _)").stdout
    said = kernel.ok(f"%compare {expression}").stdout
    assert kernel.ok("print(sorted(globals()), len(Out), _)").stdout.count("\n") == 1
    after = kernel.ok("print(sorted(globals()), len(Out), _)").stdout
    assert re.sub(r"'_i+\d*', ", "", after) == re.sub(r"'_i+\d*', ", "", names)
    assert not list(Path(tempfile.gettempdir()).glob("spmd-compare-*"))
    assert kernel.ok("import sys; print('_spmd_kernel_compare' in sys.modules)").stdout == "False\n"
    return re.sub(r"[0-9a-f]{12}…", "…", said)


@pytest.fixture(params=[2, 4])
def kernel(request: pytest.FixtureRequest, kernel: Kernel) -> Kernel:
    kernel.ok(f"%processes {request.param}")
    kernel.ok(PREPARE)
    return kernel


def test_values_of_each_library(kernel: Kernel) -> None:
    size = int(kernel.ok("print(os.environ['WORLD_SIZE'])").stdout)
    everybody = f"equal on {size} ranks: "
    assert compare(kernel, "2 + 2") == everybody + "int 4\n"
    kernel.ok("import numpy as np; a = np.zeros((128, 64), 'f4')")
    assert compare(kernel, "a") == everybody + "ndarray float32 (128, 64) sha256 …\n"
    kernel.ok("a[3, 7] += rank")
    said = compare(kernel, "a")
    assert said.startswith(f"differs on ranks 0-{size - 1}: ndarray\n")
    last = f"max |difference| {size - 1} at [3, 7], 1 of 8192 elements differ"
    assert said.splitlines()[-1].endswith(last)
    kernel.ok("import torch; torch.manual_seed(0); m = torch.nn.Linear(64, 8)")
    assert compare(kernel, "m") == everybody + "Linear, 2 leaves, 2 kB, sha256 …\n"
    kernel.ok("with torch.no_grad(): m.bias[2] += rank % 2")
    groups = "ranks 0, 2" if size == 4 else "rank 0", "ranks 1, 3" if size == 4 else "rank 1"
    assert re.sub(r" +", " ", compare(kernel, "{'m': m}")) == (
        f"1 of 2 leaves differs on ranks 0-{size - 1}: dict\n"
        f"['m'].bias {groups[0]} tensor float32 (8,) sha256 …\n"
        f" {groups[1]} tensor float32 (8,) sha256 … max |difference| 1 at [2], 1 of 8 elements"
        " differ\n"
    )
    kernel.ok("import jax.numpy as jnp; j = {'w': jnp.ones(3, jnp.bfloat16), 'r': rank // 2}")
    said = compare(kernel, "j")
    if size == 2:
        assert said == everybody + "dict, 2 leaves, 6 bytes, sha256 …\n"
    else:
        assert "['r']  ranks 0-1  int 0\n" in said


def test_distributed_values(pair: Kernel) -> None:
    pair.ok(PREPARE + "import torch, torch.distributed as dist; dist.init_process_group('gloo')")
    pair.ok("from torch.distributed.tensor import distribute_tensor, Shard, init_device_mesh")
    pair.ok("mesh = init_device_mesh('cpu', (2,))")
    pair.ok("d = distribute_tensor(torch.arange(8.).reshape(4, 2), mesh, [Shard(0)])")
    said = compare(pair, "d")
    assert said.count("local part of (4, 2)") == 2 and "max |difference| 4" in said
    pair.ok("import jax; jax.distributed.initialize()")
    pair.ok("from jax.sharding import NamedSharding, PartitionSpec as P; import numpy as np")
    pair.ok("mesh = jax.make_mesh((jax.device_count(),), ('x',))")
    pair.ok("full = np.arange(8.).astype('f4')")
    make = "jax.make_array_from_callback((8,), NamedSharding(mesh, P({})), lambda i: full[i])"
    pair.ok(f"s, r = {make.format(repr('x'))}, {make.format('')}")
    assert compare(pair, "r") == "equal on 2 ranks: jax float32 (8,) sha256 …\n"
    said = compare(pair, "s")
    assert "part [0:4] of (8,)" in said and "part [4:8] of (8,)" in said, said


def test_an_expression_with_a_collective_and_prints(pair: Kernel) -> None:
    pair.ok(PREPARE + "import torch, torch.distributed as dist; dist.init_process_group('gloo')")
    pair.ok("def f():\n    t = torch.ones(1) * rank; dist.all_reduce(t); print('sum'); return t")
    said = pair.ok("%rank 0 print('before')\n%compare f()\nprint('after')").stdout
    first, *lines = re.sub(r"[0-9a-f]{12}…", "…", said).splitlines()
    equal = "equal on 2 ranks: tensor float32 (1,) 1.0 sha256 …"
    assert first == "before"
    assert sorted(lines) == ["after", equal, "sum"]
    assert lines.index(equal) < lines.index("after")


def test_failures(pair: Kernel) -> None:
    pair.ok(PREPARE)
    assert compare(pair, "1 / rank") == (
        "on rank 1: float 1.0\nrank 0 raised ZeroDivisionError: division by zero\n"
    )
    failed = pair.run("%compare nothing")
    assert failed.reply["ename"] == "UsageError"
    assert "nothing raised NameError: name 'nothing' is not defined on ranks 0-1" in failed.text


def test_a_stop_ends_it(pair: Kernel) -> None:
    pair.ok("import time")
    cell = pair.send("%compare [print('here'), time.sleep(600)]")

    def stop(result: object) -> None:
        if "here" in getattr(result, "stdout", "") and not stopped:
            stopped.append(True)
            pair.manager.interrupt_kernel()

    stopped: list[bool] = []
    result = pair.collect(cell, stop)
    assert result.reply["ename"] == "KeyboardInterrupt"
    assert pair.ok("print(1)").stdout == "1\n"
    assert pair.ok("%compare 5").stdout == "equal on 2 ranks: int 5\n"


# ---------------------------------------------------------------- the others


def test_timing_and_ranks(pair: Kernel) -> None:
    pair.ok(PREPARE + "import time")
    pair.ok("time.sleep(0.5 * rank)")
    pair.ok("%%rank 1\ntime.sleep(0.1)")
    pair.run("1 / 0")
    rows = pair.ok("%timing 3").stdout.splitlines()
    assert rows[0].split() == ["cell", "code", "0", "1", "min", "median", "max", "slowest"]
    first = rows[1].split()
    fast, slow = float(first[-7]), float(first[-6])
    assert slow >= 0.5 and slow > fast
    assert first[-1] == "1"
    assert rows[2].endswith("only rank 1") and rows[3].endswith("failed")
    pair.ok("sum(range(10**6))")
    head, *table = pair.ok("%ranks").stdout.splitlines()
    assert head.split()[-4:] == ["CPU", "RSS", "exit", "cause"]
    assert all(re.search(r" [0-9.]+ s  +\d+ MB$", row) and " 0.0 s  " not in row for row in table)


def test_timeout(pair: Kernel) -> None:
    pair.ok(PREPARE + "import time")
    assert pair.ok("%%timeout 600\n%%capture out\nprint(1)").stdout == ""
    # Where the limit finds a rank, and whether rank 0 is through by then, the machine's load decides.
    failed = pair.run("%%timeout 3\nif rank == 1:\n    time.sleep(600)")
    assert failed.reply["ename"] == "TimeLimit"
    text = failed.reply["evalue"]
    found = re.fullmatch(r"the time limit of 3 s ended the cell: (.*) still running", text)
    assert found is not None and found[1] in ("rank 1 was", "ranks 0-1 were")
    *interrupts, limit = failed.errors
    assert interrupts and all("KeyboardInterrupt" in error for error in interrupts)
    assert limit.startswith(f"TimeLimit: {text}\nhint: ")
    both = pair.run("%%timeout 3\ntime.sleep(600)")
    assert both.reply["evalue"].endswith("ranks 0-1 were still running")
    assert pair.ok("print(1)").stdout == "1\n"
