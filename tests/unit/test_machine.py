"""Memory, cgroups and devices, on machines that are directories."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spmd_kernel.engines.cgroup import memory_left, oom_kills
from spmd_kernel.gpus import visible_gpus
from spmd_kernel.io.machine import survey
from spmd_kernel.rank.processes import Tree

V2 = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:32 {} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def limited(directory: str, limit: str, usage: int, cache: int = 0) -> dict[str, str]:
    return {
        f"sys/fs/cgroup/{directory}/memory.max": f"{limit}\n",
        f"sys/fs/cgroup/{directory}/memory.current": f"{usage}\n",
        f"sys/fs/cgroup/{directory}/memory.stat": f"anon 5\ninactive_file {cache}\n",
    }


def test_v2_the_nearest_limit_counts_wherever_it_is(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {"proc/self/cgroup": "0::/user.slice/job\n", "proc/self/mountinfo": V2}
        | limited("user.slice/job", "max", 900)
        | limited("user.slice", "1000", 900, cache=300),
    )
    assert memory_left(root) == 400
    machine(root, limited("user.slice/job", "950", 900))
    assert memory_left(root) == 50
    machine(root, limited("user.slice/job", "850", 900))
    assert memory_left(root) == 0


@pytest.mark.parametrize("mounted", ["/", "/docker/abc"])
def test_v1_in_and_outside_of_a_container(mounted: str, tmp_path: Path) -> None:
    directory = "sys/fs/cgroup/memory" + ("/docker/abc" if mounted == "/" else "")
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n",
            "proc/self/mountinfo": V1.format(mounted),
            f"{directory}/memory.limit_in_bytes": "1000\n",
            f"{directory}/memory.usage_in_bytes": "700\n",
            f"{directory}/memory.stat": "total_inactive_file 100\n",
            f"{directory}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
        },
    )
    assert memory_left(root) == 400
    assert oom_kills(root) == 7


def test_v2_kills_and_the_machines_where_there_is_no_cgroup(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) == 0
    machine(tmp_path, {"proc/vmstat": "pgpgin 5\noom_kill 3\n"})
    assert oom_kills(tmp_path) == 3
    machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job\n",
            "proc/self/mountinfo": V2,
            "sys/fs/cgroup/job/memory.events": "low 0\noom 9\noom_kill 2\n",
        },
    )
    assert oom_kills(tmp_path) == 2


def test_a_survey_of_this_machine() -> None:
    facts = survey({0: os.getpid(), 1: 2**22 + 1})
    assert facts.memory_available is None or facts.memory_available > 0
    assert facts.rss.keys() == {0}
    assert facts.rss[0] > 2**20


def test_a_survey_takes_the_smaller_of_memory_and_limit(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   2 kB\n"})
    assert survey({}, {}, root).memory_available == 2048
    machine(
        root,
        {"proc/self/cgroup": "0::/j\n", "proc/self/mountinfo": V2} | limited("j", "100", 1),
    )
    assert survey({}, {}, root).memory_available == 99
    assert survey({}, {}, tmp_path / "nothing").memory_available is None


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ("0", "1", "2")),
        ("", ()),
        ("2,0", ("2", "0")),
        ("1, -1, 2", ("1",)),
        ("0,7,1", ("0",)),
        ("NoDevFiles", ()),
        ("GPU-5a,1", ("GPU-5a", "1")),
        ("MIG-77", ("MIG-77",)),
    ],
)
def test_devices_as_cuda_counts_them(
    visible: str | None, expected: tuple[str, ...], tmp_path: Path
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    names = ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm")
    by_device = machine(tmp_path / "a", {f"dev/{name}": "" for name in names})
    assert visible_gpus(environ, by_device) == expected
    buses = {f"proc/driver/nvidia/gpus/0000:0{n}:00.0/information": "" for n in range(3)}
    assert visible_gpus(environ, machine(tmp_path / "b", buses)) == expected
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path / "none") == ()


def test_what_ranks_use_with_their_children() -> None:
    code = "import os; t = os.times; [0 for _ in iter(lambda: sum(t()[:2]) > 0.2, True)]; input()"
    shell = [
        sys.executable,
        "-c",
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])",
    ]
    with subprocess.Popen(shell, stdin=subprocess.PIPE) as rank:
        child = _until(lambda: Tree().below(rank.pid))[0]
        _until(lambda: survey({0: rank.pid}, usage=True).cpu[0] >= 0.2)
        held = {rank.pid: 5, child: 7, os.getpid(): 100, 1: 1000}
        facts = survey({0: rank.pid, 1: os.getpid()}, usage=True, gpu_memory=held)
        assert facts.gpu_memory == {0: 12, 1: 100}  # a rank's processes are not those of another
        assert survey({0: rank.pid}, usage=True, gpu_memory={1: 5}).gpu_memory == {}
        rank.communicate(b"\n")
    facts = survey({0: os.getpid()})
    assert facts.cpu == {} and facts.gpu_memory is None


def _until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (value := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value
