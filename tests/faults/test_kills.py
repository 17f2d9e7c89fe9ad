"""Whoever is killed, however hard, and whatever the ranks are at: nothing is left of the family."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from ..kernel.client import Kernel
from .conftest import Family

pytestmark = pytest.mark.faults

# What makes ranks hard to get rid of.
TROUBLES = {
    "idle": "pass",
    "holds the GIL": "import ctypes; FLAG(); ctypes.PyDLL(None).sleep(600)",
    "a regex": "import re; FLAG(); re.match(r'(a+)+$', 'a' * 60 + 'b')",
    "deaf": (
        "import signal, time\n"
        "for s in (2, 15, 1): signal.signal(s, signal.SIG_IGN)\n"
        "FLAG(); time.sleep(600)"
    ),
    "setsid": "import subprocess; subprocess.Popen(['setsid', 'sleep', '98701'])",
    "daemon": "import os; os.system('nohup setsid sh -c \"sleep 98702 & sleep 98703\" >/dev/null 2>&1 &')",
    "double fork": (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: os.execvp('sleep', ['sleep', '98704'])\n"
        "    os._exit(0)\n"
        "os.wait()"
    ),
    "workers": (
        "import torch.utils.data as data, torch\n"
        "class Slow(data.Dataset):\n"
        "    def __len__(self): return 100\n"
        "    def __getitem__(self, i):\n"
        "        import time; time.sleep(0.01 if i < 4 else 600); return i\n"
        "loader = iter(data.DataLoader(Slow(), batch_size=1, num_workers=2, persistent_workers=True))\n"
        "next(loader)"
    ),
}
LEAVES = {"setsid": "98701", "daemon": "98703", "double fork": "98704"}


def trouble(kernel: Kernel, family: Family, name: str) -> str:
    """Two ranks in trouble, really; the id of the cell if that still runs."""
    kernel.ok("%processes 2")
    code, msg_id = TROUBLES[name], ""
    if "FLAG()" not in code:
        kernel.ok(code)
    else:
        flag = f"open({str(family.directory)!r} + '/flag-' + __import__('os').environ['RANK'], 'w').close()"
        msg_id = kernel.send(code.replace("FLAG()", flag))
        flags = [family.directory / f"flag-{rank}" for rank in range(2)]
        family.wait(lambda _: all(flag.exists() for flag in flags), "the cell does not run")
        time.sleep(0.1)  # into the call that follows; nothing can tell that it has begun
    if name in LEAVES:
        family.wait(lambda _: len(family.named(LEAVES[name])) >= 2, "no daemons")
    if name == "workers":
        family.wait(lambda pids: len(pids) >= 8, "no workers")
    return msg_id


@pytest.mark.parametrize("name", TROUBLES)
def test_the_kernel_process_is_killed(kernel: Kernel, family: Family, name: str) -> None:
    trouble(kernel, family, name)
    os.kill(kernel.pid, signal.SIGKILL)
    family.wait_gone()


@pytest.mark.parametrize("name", ["holds the GIL", "deaf", "setsid", "daemon", "workers"])
def test_the_kernel_is_shut_down(kernel: Kernel, family: Family, name: str) -> None:
    trouble(kernel, family, name)
    kernel.manager.shutdown_kernel(now=False)
    family.wait_gone()


@pytest.mark.parametrize("name", TROUBLES)
def test_the_supervisor_is_killed(kernel: Kernel, family: Family, name: str) -> None:
    """Every rank is dead, with the cause; new ranks work."""
    running = trouble(kernel, family, name)
    (supervisor,) = family.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    family.wait(lambda pids: pids == {kernel.pid}, "something outlived its supervisor")
    if running:
        assert kernel.collect(running).reply["ename"] == "RankLost"
    refused = kernel.run("print('must not run')")
    assert refused.status == "error", refused.text
    assert " died: the process ended with its supervisor process: killed by" in refused.text
    assert "SIGKILL" in refused.text and "hint:" in refused.text
    kernel.ok("%processes 2")
    assert "fork" in kernel.ok("%ranks").stdout
    assert "usable" in kernel.ok("print('usable')").stdout
    (anew,) = family.supervisors()
    assert anew != supervisor
    kernel.manager.shutdown_kernel(now=False)
    family.wait_gone()


@pytest.mark.parametrize("name", ["idle", "holds the GIL", "workers"])
def test_a_rank_is_killed(kernel: Kernel, family: Family, name: str) -> None:
    running = trouble(kernel, family, name)
    victim = next(iter(family.named("r1.json")))
    others = family.named("r0.json")
    os.kill(victim, signal.SIGKILL)
    if running:
        assert kernel.collect(running).reply["ename"] == "RankLost"
    family.wait(lambda pids: victim not in pids, "it was killed")
    kernel.ok("%processes 2 --fresh")
    family.wait(lambda pids: not pids & others, "the old ranks")
    assert len(family.pids()) == 4  # kernel, supervisor, two ranks
    kernel.manager.shutdown_kernel(now=False)
    family.wait_gone()


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.15, 0.3, 0.6])
def test_the_kernel_process_is_killed_while_it_starts(
    starting: Any, family: Family, moment: float
) -> None:
    manager, _ = starting
    time.sleep(moment)  # anywhere in its start
    os.kill(manager.provisioner.pid, signal.SIGKILL)
    family.wait_gone()


@pytest.mark.parametrize("victim", ["supervisor", "rank"])
def test_killed_while_ranks_start(kernel: Kernel, family: Family, victim: str) -> None:
    """The cell fails or the ranks come up; either way the notebook goes on."""
    before = family.pids()
    msg_id = kernel.send("%processes 4 --fresh --env TZ=UTC")  # another supervisor is needed
    if victim == "supervisor":
        family.wait(lambda _: family.supervisors() - before, "no supervisor")
        target = min(family.supervisors() - before)
    else:
        family.wait(lambda _: family.named("r2.json") - before, "no rank")
        target = next(iter(family.named("r2.json") - before))
    os.kill(target, signal.SIGKILL)
    result = kernel.collect(msg_id)
    assert result.status == "ok" or "could not start" in result.text, result.text
    kernel.ok("%processes 4 --fresh")
    assert len(kernel.ok("%rank all 1").of("execute_result")) >= 1
    kernel.manager.shutdown_kernel(now=False)
    family.wait_gone()


def test_killed_while_the_supervisor_imports_what_is_to_be_preloaded(
    kernel: Kernel, family: Family
) -> None:
    (family.directory / "slow_module.py").write_text(
        f"import time; open({str(family.directory / 'flag')!r}, 'w').close(); time.sleep(600)"
    )
    kernel.send(f"%processes 2 --preload slow_module --env PYTHONPATH={family.directory}")
    family.wait(lambda _: (family.directory / "flag").exists(), "it is not imported")
    os.kill(kernel.pid, signal.SIGKILL)
    family.wait_gone()


@pytest.mark.parametrize("victim", ["kernel", "supervisor", "rank"])
def test_killed_while_it_stops(kernel: Kernel, family: Family, victim: str) -> None:
    """The ranks are deaf, so that the end takes a while; whoever is killed meanwhile, it comes."""
    trouble(kernel, family, "deaf")
    (supervisor,) = family.supervisors()
    pids = {
        "kernel": kernel.pid,
        "supervisor": supervisor,
        "rank": next(iter(family.named("r1.json"))),
    }
    message = kernel.client.session.msg("shutdown_request", {"restart": False})
    kernel.client.control_channel.send(message)
    kernel.wait_iopub(  # it is at it
        lambda m: m["parent_header"].get("msg_id") == message["header"]["msg_id"]
    )
    os.kill(pids[victim], signal.SIGKILL)
    family.wait_gone()
