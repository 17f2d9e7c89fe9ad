"""Stop ends whatever the ranks are at, and costs nobody a variable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .client import Kernel, Result
from .test_lifecycle import RANK, once, says
from .test_ranks import pids

GO = "print('go', flush=True)\n"
TORCH = f"import os, torch, torch.distributed as dist\nr = {RANK}\nx = 41"
INIT = "dist.init_process_group('gloo'); dist.barrier()"
AGAIN = f"""
if dist.is_initialized(): dist.destroy_process_group()
{INIT}
t = torch.ones(1); dist.all_reduce(t); print(x + int(t))
"""
JAX = f"""
import jax, numpy, os
from jax.experimental import multihost_utils as hosts
from jax.sharding import Mesh, NamedSharding, PartitionSpec
jax.config.update('jax_platforms', 'cpu')
r = {RANK}
x = 41
"""
JAX_INIT = "jax.distributed.initialize()\n"
TOTAL = """
def total(*ranks, size=1):
    of = {device.process_index: device for device in jax.devices()}
    mesh = Mesh(numpy.array([of[rank] for rank in ranks]), ("ranks",))
    split = NamedSharding(mesh, PartitionSpec("ranks"))
    ones = numpy.ones((len(ranks), size), numpy.float32)
    parts = jax.make_array_from_callback(ones.shape, split, lambda index: ones[index])
    summed = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, PartitionSpec()))(parts)
    return int(summed.addressable_data(0)[0])
"""


@pytest.fixture(params=[2, 4])
def ranks(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with Kernel() as kernel:
        kernel.ok(f"%processes {request.param}")
        yield kernel


def stop_when_it_hangs(kernel: Kernel, code: str) -> Result:
    """Before, SIGINT alone might end it."""
    return stop_at(kernel, code, "has been in", "have been in")


@pytest.fixture
def group(ranks: Kernel) -> Kernel:
    """A gloo process group on all ranks."""
    ranks.ok(TORCH)
    ranks.ok(INIT)
    ranks.ok("%processes --watch 1")
    return ranks


def stop_at(kernel: Kernel, code: str, *words: str) -> Result:
    def said(result: Result) -> bool:
        return any(word in result.text for word in words or ("go",))

    return kernel.collect(kernel.send(code), once(kernel.manager.interrupt_kernel, said))


@pytest.mark.parametrize(
    "code",
    [
        "import time\n" + GO + "time.sleep(600)",
        GO + "while True: pass",
        "import asyncio\n" + GO + "await asyncio.sleep(600)",
        "import subprocess\n" + GO + "subprocess.run(['sleep', '600'])",
        GO + "while True: print('x')",
    ],
    ids=["sleep", "loop", "await", "subprocess", "print"],
)
def test_plain_python_ends_and_nothing_is_lost(pair: Kernel, code: str) -> None:
    pair.ok("x = 41")
    before = pids(pair)
    result = stop_at(pair, code)
    assert result.reply["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert pair.ok("print(x + 1)").stdout == "42\n"
    assert pids(pair) == before


STUCK = (
    "if r == 0: dist.all_reduce(torch.ones(2))",  # the peers have finished
    "if r == 0: 1 / 0\ndist.barrier()",  # a peer has failed
    "dist.recv(torch.ones(2), (r + 1) % dist.get_world_size())",  # all wait
    "if r == 0: dist.all_reduce(torch.ones(2), async_op=True).wait()",  # nothing in the stack
    "if r == 1: dist.distributed_c10d._get_default_store().get('never')",
    "if r == 0: dist.new_group()",
    "if r != 0: dist.new_group()",
    "if r == 1: dist.distributed_c10d._get_default_store().wait(['never'])",
    "if r == 0: dist.monitored_barrier()",
    "if r != 0: dist.monitored_barrier()",
)
NEW_STORE = """
if dist.is_initialized(): dist.destroy_process_group()
if r == 0: dist.init_process_group('gloo')
"""


@pytest.mark.timeout(300)
def test_a_stuck_gloo_group_ends_and_can_be_made_anew(group: Kernel) -> None:
    """A process group after the other breaks, in one kernel: `import torch` is what takes time."""
    before = pids(group)
    for code in STUCK if len(before) == 2 else STUCK[:3]:
        result = stop_when_it_hangs(group, code)
        assert result.status == "error", code
        assert "KeyboardInterrupt" in result.text
        assert result.text.count("process group is broken") == 1
        world = len(before)
        assert group.ok(AGAIN).stdout == f"{41 + world}\n", code
    result = stop_when_it_hangs(
        group, "%%rank 0\ndist.all_reduce(torch.ones(2))"
    )  # the others are idle
    assert result.reply["ename"] == "KeyboardInterrupt"
    result = stop_when_it_hangs(group, NEW_STORE)
    assert "KeyboardInterrupt" in result.text
    assert result.text.count("process group is broken") == 1
    assert group.ok(AGAIN).status == "ok"
    assert pids(group) == before


NOT_ALL = (  # nobody has met anybody, so nothing is broken; and what the error says
    ("if r != 0: dist.init_process_group('gloo')", "hint: rank 0 serves the store"),
    ("if r == 1: dist.TCPStore('127.0.0.1', 1, 2, False)", "hint: rank 0 serves the store"),
    ("if r == 0: dist.init_process_group('gloo')", "hint: all ranks have to call"),
    ("if r != 1: dist.init_process_group('gloo')", "hint: all ranks have to call"),
)


@pytest.mark.timeout(300)
def test_a_group_that_not_all_ranks_make_ends_and_can_be_made_by_all(ranks: Kernel) -> None:
    ranks.ok(TORCH)
    ranks.ok("%processes --watch 1")
    before = pids(ranks)
    for code, hint in NOT_ALL:
        result = stop_when_it_hangs(ranks, code)
        assert result.status == "error" and "KeyboardInterrupt" in result.text, code
        assert "process group is broken" not in result.text, code
        assert hint in result.reply["evalue"]
        assert ranks.ok(AGAIN).stdout == f"{41 + len(before)}\n", code
        ranks.ok("dist.destroy_process_group()")
    assert pids(ranks) == before


def test_the_death_of_a_peer_leaves_the_others_what_they_have(group: Kernel) -> None:
    before = pids(group)
    result = group.run("if r == 1: os._exit(3)\ndist.all_reduce(torch.ones(2))")
    assert result.reply["ename"] == "RankLost"
    group.ok(f"%processes {len(before)}")
    after = pids(group)
    assert [r for r in before if before[r] != after[r]] == [1]
    group.ok("import torch, torch.distributed as dist")
    group.ok(f"r = {RANK}\nif r == 1: x = 41")
    assert group.ok(AGAIN).status == "ok"


def test_a_world_of_jax_to_which_not_all_come_ends_and_can_be_made_by_all(ranks: Kernel) -> None:
    ranks.ok(JAX)
    ranks.ok("%processes --watch 1")
    before = pids(ranks)
    last = len(before) - 1
    for who, missing in (("r != 0", 0), ("r == 0", last), (f"r != {last}", last)):
        result = stop_when_it_hangs(ranks, f"if {who}: {JAX_INIT}")
        why = result.reply["evalue"]
        assert "KeyboardInterrupt" in result.text and f"process {missing}" in why, who
        assert "hint: all ranks have to call jax.distributed.initialize" in why
    assert ranks.ok(JAX_INIT + "print(jax.device_count(), x)").stdout == f"{len(before)} 41\n"
    assert pids(ranks) == before


def test_a_world_of_jax_with_a_coordinator_of_ones_own_ends(ranks: Kernel) -> None:
    """Of some ranks only, so that nobody else knows who is to come."""
    ranks.ok(JAX)
    address = "'127.0.0.1:' + os.environ['MASTER_PORT']"
    ranks.ok("%processes --watch 1")
    result = stop_when_it_hangs(ranks, f"if r == 1: jax.distributed.initialize({address}, 3, r)")
    assert "KeyboardInterrupt" in result.text
    assert ranks.ok("print(x + 1)").stdout == "42\n"


def test_a_stuck_jax_collective_ends(ranks: Kernel) -> None:
    ranks.ok(JAX + JAX_INIT)
    ranks.ok("%processes --watch 1")
    before = pids(ranks)
    # The devices start on all processes together: the others are told to take part.
    result = stop_when_it_hangs(ranks, "if r == 0: jax.devices()")
    assert "KeyboardInterrupt" in result.text
    assert result.text.count("hint: all ranks have to make the same calls;") == 1
    ranks.ok("hosts.sync_global_devices('b')")
    result = stop_when_it_hangs(ranks, "if r == 0: hosts.sync_global_devices('c')")
    assert "KeyboardInterrupt" in result.text and "--fresh" in result.text
    assert ranks.ok("print(x + 1)").stdout == "42\n"
    assert pids(ranks) == before


FIRST = {  # collectives, each over devices that have not met
    2: ("if r == 0: total(0, 1, size=1000)", "if r == 1: total(1, 0)"),
    4: (
        "if r == 0: total(0, 1, size=1000)",
        "if r == 0: total(3, 2, 0)",
        "if r != 1: total(1, 2, 0, 3)",
        "total(r, (r + 2) % 4, (r + 3) % 4)",
        "if r == 0: hosts.sync_global_devices('a')",
    ),
}


@pytest.mark.timeout(300)
def test_the_first_collective_of_jax_over_any_devices_ends(ranks: Kernel) -> None:
    """Before it the processes connect, through JAX's coordinator: the others are told to."""
    ranks.ok(JAX + JAX_INIT + TOTAL + "print(jax.device_count() > 1)")
    ranks.ok("%processes --watch 1")
    before = pids(ranks)
    for code in FIRST[len(before)]:
        result = stop_when_it_hangs(ranks, code)
        assert "KeyboardInterrupt" in result.text, code
        assert result.text.count("process group is broken") == 1, code
        assert ranks.ok("print(x + 1)").stdout == "42\n"
    assert pids(ranks) == before
    if len(before) == 4:  # devices that have met nobody in vain
        assert ranks.ok("print(total(3, 2, 1, 0))").stdout == "4\n"


DEAF = f"""
import signal, time
if {RANK} == 1:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print('go', flush=True)
    time.sleep(600)
"""


def test_a_second_stop_restarts_the_stuck_rank_alone(pair: Kernel) -> None:
    pair.ok("x = 41")
    before = pids(pair)
    stop = pair.manager.interrupt_kernel
    first = once(stop, says("go"))
    second = once(stop, says("still busy"))

    def watch(result: Result) -> None:
        first(result)
        second(result)

    result = pair.collect(pair.send(DEAF), watch)
    assert "rank 1: cell line 5" in result.text
    assert result.reply["ename"] == "RankLost"
    assert "rank 1 was restarted" in result.reply["evalue"]
    assert pair.ok("print(globals().get('x'))").stdout == "0 │ 41\n1 │ None\n"
    after = pids(pair)
    assert after[0] == before[0] and after[1] != before[1]


def test_one_stop_never_costs_a_rank(pair: Kernel) -> None:
    pair.ok("x = 41")
    before = pids(pair)
    result = stop_at(pair, DEAF.replace("600", "7"))
    assert "second Stop restarts rank 1" in result.text
    assert pair.ok("print(x + 1)").stdout == "42\n"
    assert pids(pair) == before


# ---------------------------------------------------------------- a hang is explained


WAITS = """
import threading, time
store = dist.distributed_c10d._get_default_store()
def later():
    while not os.path.exists({path!r}):
        time.sleep(0.01)
    store.set('late', '1')
if r == 1: threading.Thread(target=later).start()
if r == 0: store.get('late')
"""


@pytest.fixture
def watched(pair: Kernel) -> Kernel:
    pair.ok(TORCH)
    pair.ok(INIT)
    pair.ok("%processes --watch 1")
    return pair


def in_notebook(kernel: Kernel, code: str) -> str:
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True}
    message = kernel.client.session.msg("execute_request", content, metadata={"cellId": "a"})
    kernel.client.shell_channel.send(message)
    return str(message["header"]["msg_id"])


def test_a_hang_is_explained_in_one_display_that_goes_if_it_ends_well(
    watched: Kernel, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    msg_id = in_notebook(watched, WAITS.format(path=str(release)))
    result = watched.collect(msg_id, once(release.touch, lambda r: bool(r.of("display_data"))))
    assert result.status == "ok"
    (shown,) = result.of("display_data")
    text = shown["data"]["text/plain"]
    assert text.startswith("rank 1 finished · rank 0 has been in store.get, cell line 8, for ")
    assert "hint:" in text
    last = result.of("update_display_data")[-1]
    assert last["transient"] == shown["transient"] and last["data"]["text/plain"] == ""


def test_without_displays_a_hang_is_explained_by_a_line(watched: Kernel) -> None:
    code = "1\ndist.recv(torch.ones(2), 1 - r)"
    result = stop_at(watched, code, "hint: they wait for each other")
    assert result.text.count("ranks 0-1 have been in recv, cell line 2, for ") == 1
    assert "KeyboardInterrupt" in result.text


@pytest.mark.parametrize(
    "code",
    [
        # rank 0 evaluates, the others wait in a barrier
        "if r == 0:\n    t = time.time()\n    while time.time() < t + 4: sum(range(1000))\n"
        "dist.barrier()",
        # a loop of collectives
        "t = time.time(); y = torch.ones(10**6)\nwhile True:\n    dist.all_reduce(y)\n"
        "    s = torch.tensor([time.time() - t]); dist.broadcast(s, 0)\n    if s.item() > 4: break",
    ],
    ids=["one rank works", "a loop"],
)
def test_what_is_no_hang_is_not_called_one(watched: Kernel, code: str) -> None:
    result = watched.ok("import time\n" + code)
    assert "hint" not in result.text
    assert not result.of("display_data")


def test_where_every_rank_is(pair: Kernel) -> None:
    assert pair.ok("%where").text == "ranks 0-1: idle\n"


def test_what_a_stopped_function_held_can_be_let_go_of(pair: Kernel) -> None:
    recipe = Path("docs/troubleshooting.md").read_text().split("GPU memory stays taken")[1]
    pair.ok("import time, weakref\nclass Big: pass")
    pair.ok("def train():\n big = Big(); global ref; ref = weakref.ref(big)\n time.sleep(600)")
    msg_id = pair.send("print('on', flush=True); train()")
    pair.wait_iopub(lambda message: "on" in message["content"].get("text", ""))
    pair.manager.interrupt_kernel()
    assert pair.collect(msg_id).reply["ename"] == "KeyboardInterrupt"
    assert pair.ok("print(ref() is None)").stdout == "False\n"
    pair.ok(recipe.split("```python\n")[1].split("```")[0])
    assert pair.ok("print(ref() is None)").stdout == "True\n"


LATE = """
import ipykernel.kernelbase as base
real = base.signal
def signal(*args):
    base.signal = real
    raise KeyboardInterrupt  # as if it came while ipykernel goes back to ignoring it
base.signal = signal
x = 41
"""


def test_a_stop_at_the_very_end_of_a_cell_costs_no_rank(pair: Kernel) -> None:
    before = pids(pair)
    pair.ok(LATE)
    assert pair.ok("print(x + 1)").stdout == "42\n"
    assert pids(pair) == before
