"""Checkpoint services and laptops stop the whole tree for a while: then everything goes on.

``SPMD_TEST_FREEZE`` is the number of seconds of it; a minute shows nothing that some seconds do not,
for the deadlines that could pass meanwhile are as short.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.kernel.client import DEADLINE, Kernel, Result, descendants

SECONDS = float(os.environ.get("SPMD_TEST_FREEZE", "7"))
STEPS = """if True:
    import time
    for step in range(120):
        {work}
        print("step", step, flush=True)
        time.sleep(0.02)
"""


@pytest.fixture
def pair() -> object:
    with Kernel() as kernel:
        kernel.ok("%processes 2")
        yield kernel


def freeze(kernel: Kernel, seconds: float) -> None:
    """Everything at once, the kernel process first; it goes on last."""
    tree = [kernel.pid, *sorted(descendants(kernel.pid))]
    for pid in tree:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in reversed(tree):
        os.kill(pid, signal.SIGCONT)


def frozen_in_the_middle(kernel: Kernel, code: str) -> Result:
    frozen = False

    def watch(result: Result) -> None:
        nonlocal frozen
        if not frozen and "step 20\n" in result.stdout:
            frozen = True
            freeze(kernel, SECONDS)

    result = kernel.collect(kernel.send(code), watch, DEADLINE + SECONDS)
    assert frozen
    assert result.status == "ok", result.text
    return result


ALL = "".join(f"step {step}\n" for step in range(120))


def test_a_cell_goes_on_and_nothing_is_lost(pair: Kernel) -> None:
    assert frozen_in_the_middle(pair, STEPS.format(work="pass")).stdout == ALL
    assert pair.ok("print('alive')").stdout == "alive\n"
    assert "dead" not in pair.ok("%ranks").stdout


def test_a_loop_of_gloo_collectives_goes_on(pair: Kernel) -> None:
    pair.ok("import torch, torch.distributed as dist; dist.init_process_group('gloo')")
    pair.ok("t = torch.ones(1)")
    result = frozen_in_the_middle(pair, STEPS.format(work="dist.all_reduce(t); t /= 2"))
    assert result.stdout == ALL
    assert pair.ok("print(float(t))").stdout == "1.0\n"


def test_jax_goes_on_whose_heartbeat_is_longer_than_the_freeze(pair: Kernel) -> None:
    pair.ok(
        "import jax; from jax.experimental import multihost_utils as mh\n"
        f"jax.distributed.initialize(heartbeat_timeout_seconds={int(SECONDS * 4)})"
    )
    result = frozen_in_the_middle(pair, STEPS.format(work="mh.sync_global_devices(str(step))"))
    assert result.stdout == ALL
    assert pair.ok("print(jax.process_count())").stdout == "2\n"


def test_a_start_goes_on_too() -> None:
    with Kernel() as kernel:
        msg_id = kernel.send("%processes 4\nprint('here')")
        deadline = time.monotonic() + DEADLINE
        while len(descendants(kernel.pid)) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        freeze(kernel, SECONDS)
        result = kernel.collect(msg_id, seconds=DEADLINE + SECONDS)
        assert result.status == "ok", result.text
        assert result.stdout.endswith("here\n")
