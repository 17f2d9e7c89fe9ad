"""`%restart` and `%processes --keep` with real ranks: variables, process groups, JAX, labels."""

from __future__ import annotations

import os
import signal

import pytest

from .client import Kernel, descendants, wait_gone
from .test_ranks import pids

IMPORTS = "import os, torch, torch.distributed as dist"
ANEW = """
if dist.is_initialized():
    dist.destroy_process_group()
dist.init_process_group('gloo')
t = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(t)
print('sum', int(t), 'of', dist.get_world_size())
"""
ENVIRONMENT = """
import os
names = ('WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'MASTER_PORT', 'TORCHELASTIC_RESTART_COUNT',
         'JAX_NUM_PROCESSES', 'JAX_COORDINATOR_ADDRESS', 'OMP_NUM_THREADS')
print([os.environ.get(name) for name in names])
"""


def environment(kernel: Kernel) -> list[str | None]:
    """The same in all ranks, or this is no list."""
    value: list[str | None] = eval(kernel.ok(ENVIRONMENT).stdout)
    return value


def value(kernel: Kernel, rank: int, expression: str) -> str:
    (result,) = kernel.ok(f"%rank {rank} {expression}").of("execute_result")
    return str(result["data"]["text/plain"])


@pytest.mark.parametrize("size", [2, 4])
def test_one_rank_is_replaced_and_gloo_made_anew(kernel: Kernel, size: int) -> None:
    kernel.ok(f"%processes {size}")
    kernel.ok(IMPORTS + "; x = 40 + int(os.environ['RANK'])")
    kernel.ok(ANEW)
    before, port = pids(kernel), environment(kernel)[2]
    for victim in (size - 1, 0):  # rank 0 has hosted the store
        text = kernel.ok(f"%restart {victim}").text
        assert f"rank {victim} is back after" in text and "kept" in text
        assert "destroy_process_group()" in text and "init_process_group()" in text
        after = pids(kernel)
        others = [rank for rank in range(size) if rank != victim]
        assert after[victim] != before[victim]
        assert [after[rank] for rank in others] == [before[rank] for rank in others]
        assert [value(kernel, rank, "x") for rank in others] == [str(40 + r) for r in others]
        assert "NameError" in kernel.run(f"%rank {victim} x").text
        port, old = environment(kernel)[2], port
        assert port != old
        kernel.ok(IMPORTS + "; x = 40 + int(os.environ['RANK'])")
        assert kernel.ok(ANEW).stdout == f"sum {size * (size + 1) // 2} of {size}\n"
        before = after


def test_a_dead_and_a_stuck_rank(four: Kernel) -> None:
    four.ok("import os, signal, threading; x = 1")
    before = pids(four)
    os.kill(before[1], signal.SIGKILL)
    wait_gone({before[1]})
    four.wait_iopub(lambda m: "rank 1 died" in str(m["content"]))
    hint = four.run("x").text
    assert "rank 1 died" in hint and "`%restart dead`" in hint
    os.kill(before[2], signal.SIGSTOP)
    text = four.ok("%restart 1-2").text
    assert "ranks 1-2 are back" in text and "ranks 0, 3 kept their memory" in text
    after = pids(four)
    assert (after[0], after[3]) == (before[0], before[3])
    assert four.ok("%restart dead").text == "no rank is dead\n"
    assert value(four, 3, "x") == "1"
    wait_gone({before[2]})


def test_restart_of_a_survivor_that_is_busy_elsewhere(pair: Kernel) -> None:
    """Rank 0 is in a callback of a widget: it hears of the new world when it is through."""
    code = """
from comm import create_comm
import os, time
def wait(_):
    print('waiting', flush=True)
    while not os.path.exists(flag):
        time.sleep(0.05)
if os.environ['RANK'] == '0':
    cm = create_comm(target_name='t')
    cm.on_msg(wait)
"""
    flag = f"/tmp/spmd-test-{os.getpid()}"
    comm_id = pair.ok(f"flag = {flag!r}\n{code}").of("comm_open")[0]["comm_id"]
    try:
        message = pair.client.session.msg("comm_msg", {"comm_id": comm_id, "data": {}})
        pair.client.shell_channel.send(message)
        pair.wait_iopub(lambda m: "waiting" in str(m["content"].get("text", "")))
        refused = pair.run("%processes 3 --keep")
        assert "rank 0 is busy" in refused.text and "hint:" in refused.text
        assert "rank 0 did not answer within 5 s" in pair.ok("%restart 1").text
    finally:
        with open(flag, "w"):
            pass
    try:
        assert environment(pair)[0] == "2"
    finally:
        os.unlink(flag)


def test_restart_all_keeps_nothing_but_the_world(pair: Kernel) -> None:
    pair.ok("%processes 2 --fresh --env WHAT=for")
    pair.ok("x = 1")
    before = pids(pair)
    text = pair.ok("%restart all\nimport os; print(os.environ['WHAT'])").text
    assert "ranks 0-1 are back" in text and "nothing was kept" in text and "for\n" in text
    assert not set(pids(pair).values()) & set(before.values())
    assert "NameError" in pair.run("x").text
    wait_gone(set(before.values()))


@pytest.mark.parametrize(("start", "sizes"), [(1, (2, 4, 1, 2)), (4, (2, 4))])
def test_grow_and_shrink(kernel: Kernel, start: int, sizes: tuple[int, ...]) -> None:
    if start > 1:
        kernel.ok(f"%processes {start}")
    kernel.ok(IMPORTS + "; x = int(os.environ['RANK'])")
    if start > 1:
        kernel.ok(ANEW)
    rank_0 = value(kernel, 0, "os.getpid()")
    size = start
    for new in sizes:
        kept = range(min(size, new))
        text = kernel.ok(f"%processes {new} --keep").text
        assert f"{new} rank" in text and "kept" in text and f"(WORLD_SIZE {size}) is stale" in text
        assert [value(kernel, rank, "x") for rank in kept] == [str(rank) for rank in kept]
        assert value(kernel, 0, "os.getpid()") == rank_0
        # One process more: the supervisor.
        assert len(pids(kernel)) == new == len(descendants(kernel.pid)) - 1
        world, local, _, _, jax, _, threads = environment(kernel)
        assert (world, local, jax) == (str(new),) * 3
        assert threads == (None if new == 1 else "1")
        # Counts and In are those of the notebook, everywhere.
        assert "│" not in kernel.ok("print(len(In), get_ipython().execution_count)").text
        kernel.ok(IMPORTS + "; x = int(os.environ['RANK'])")
        assert kernel.ok(ANEW).stdout == f"sum {new * (new + 1) // 2} of {new}\n"
        size = new


def test_rank_0_of_one_is_as_well_equipped_as_the_others(kernel: Kernel) -> None:
    """Its writes are marked, so that equal records fold; and are not any more when it is alone."""
    kernel.ok("import os, sys")
    two_lines = "sys.stdout.write(f'of {x}\\nsecond\\n')"
    kernel.ok("%processes 2 --keep\nimport os, sys; x = os.environ['RANK']")
    text = kernel.ok(f"_ = {two_lines}").text
    assert sorted(text.split("\n")) == sorted(
        ["0 │ of 0", "0 │ second", "1 │ of 1", "1 │ second", ""]
    )
    intervals = kernel.ok("print(sys.stdout.flush_interval, sys.stderr.flush_interval)").stdout
    assert intervals == "0.05 0.05\n"
    kernel.ok("%processes 1 --keep")
    assert kernel.ok(f"_ = {two_lines}").text == "of 0\nsecond\n"
    assert kernel.ok("print(sys.stdout.flush_interval)").stdout == "0.2\n"
    kernel.ok("%processes 2 --keep\nimport os, sys; x = os.environ['RANK']")
    assert "0 │ of 0\n0 │ second\n" in kernel.ok(f"_ = {two_lines}").text


def test_the_jax_rule(pair: Kernel) -> None:
    pair.ok("import jax; jax.distributed.initialize(); x = 1")
    before = pids(pair)
    for code in ("%restart 1", "%processes 4 --keep", "%processes 1 --keep"):
        refused = pair.run(code)
        assert refused.status == "error" and "jax.distributed is live in rank" in refused.text
        assert "SIGABRT" in refused.text and "hint:" in refused.text
    assert pids(pair) == before and pair.ok("print(x)").stdout == "1\n"
    assert "nothing was kept" in pair.ok("%restart all").text
    pair.ok("import jax; jax.distributed.initialize()")
    assert pair.ok("print(jax.process_count())").stdout == "2\n"
    pair.ok("jax.distributed.shutdown()")
    assert "rank 1 is back" in pair.ok("%restart 1").text
    assert value(pair, 0, "jax.__name__") == "'jax'"


def test_stop_in_the_middle_leaves_one_world(pair: Kernel) -> None:
    pair.ok("x = 41")
    before = pids(pair)
    for code in ("%processes 4 --keep", "%processes 2 --keep"):
        msg_id = pair.send(code)
        pair.wait_iopub(lambda m, i=msg_id: m["parent_header"].get("msg_id") == i)
        pair.manager.interrupt_kernel()
        pair.collect(msg_id)
        world = environment(pair)[0]
        after = pids(pair)
        assert world == str(len(after)) == str(len(descendants(pair.pid)) - 1)
        assert [after[0], after[1]] == [before[0], before[1]]
    assert value(pair, 1, "x + 1") == "42"


def test_nothing_is_imported_to_find_that_out(pair: Kernel) -> None:
    loaded = "import sys; print([m for m in ('torch', 'jax', 'numpy') if m in sys.modules])"
    before = pair.ok(loaded).stdout
    pair.ok("%restart 1")
    assert pair.ok(loaded).stdout == before


def test_a_new_rank_that_cannot_start_costs_nothing(pair: Kernel) -> None:
    pair.ok("x = 41")
    before, environ = pids(pair), environment(pair)
    refused = pair.run("%processes 4 --keep --env PYTHONHOME=/nowhere")
    assert refused.status == "error"
    assert "rank 2 could not start" in refused.text or "rank 3 could not start" in refused.text
    assert pids(pair) == before and environment(pair) == environ
    assert pair.ok("print(x + 1)").stdout == "42\n"
    assert "4 ranks ready" in pair.ok("%processes 4 --keep").text
