"""A look at the machine: memory left, devices, what each rank holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .. import kernelspecs
from ..core.model import Facts, Rank
from ..engines.cgroup import memory_left
from ..gpus import visible_gpus
from ..rank.processes import Tree
from .logfiles import probe

ROOT = Path("/")


def survey(
    pids: Mapping[Rank, int],
    environ: Mapping[str, str] = os.environ,
    root: Path = ROOT,
    *,
    kernels: bool = False,
    folder: str = "",
    usage: bool = False,
    gpu_memory: Mapping[int, int] | None = None,
) -> Facts:
    """What this machine has left for the ranks, in bytes.  A rank that is gone has no rss.

    ``kernels``: also the language of each kernelspec that ranks could run.  ``folder``: whether
    log files can be written there.  ``usage``: also CPU seconds and, of ``gpu_memory`` (by pid), what
    each rank holds, child processes included.
    """
    sizes = {rank: size for rank, pid in pids.items() if (size := _rss(root, pid)) is not None}
    languages = _languages() if kernels else {}
    families = _families(pids) if usage else {}
    return Facts(
        _memory_available(root),
        visible_gpus(environ, root),
        sizes,
        languages,
        probe(folder),
        {
            rank: sum(_cpu_seconds(root, pid) for pid in members)
            for rank, members in families.items()
        },
        None if gpu_memory is None else _held(families, gpu_memory),
    )


def _families(pids: Mapping[Rank, int]) -> dict[Rank, list[int]]:
    """Each rank's process and all below it, but for those of other ranks."""
    tree = Tree()
    ranks = frozenset(pids.values())
    return {rank: [pid, *tree.below(pid, without=ranks)] for rank, pid in pids.items()}


def _held(families: Mapping[Rank, list[int]], by_pid: Mapping[int, int]) -> dict[Rank, int]:
    """A rank that holds nothing, or whose processes the driver does not know, is left out."""
    held = {rank: [by_pid[p] for p in pids if p in by_pid] for rank, pids in families.items()}
    return {rank: sum(sizes) for rank, sizes in held.items() if sizes}


def _cpu_seconds(root: Path, pid: int) -> float:
    """User and system time, of children that have ended, too (proc(5), stat)."""
    try:
        fields = (root / f"proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def _languages() -> dict[str, str]:
    specs = kernelspecs.all_kernelspecs()
    return {name: spec.language for name, spec in specs.items() if not spec.is_distributed}


def _memory_available(root: Path) -> int | None:
    limits = [left for left in (_mem_available(root), memory_left(root)) if left is not None]
    return min(limits, default=None)


def _mem_available(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _rss(root: Path, pid: int) -> int | None:
    try:
        pages = (root / f"proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
