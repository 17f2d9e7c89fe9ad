"""A look at the machine: memory left, devices, what each rank holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .. import kernelspecs
from ..core.model import Facts, Rank
from ..engines.cgroup import memory_left
from ..gpus import visible_gpus
from .logfiles import probe

ROOT = Path("/")


def survey(
    pids: Mapping[Rank, int],
    environ: Mapping[str, str] = os.environ,
    root: Path = ROOT,
    *,
    kernels: bool = False,
    folder: str = "",
) -> Facts:
    """What this machine has left for the ranks, in bytes.  A rank that is gone has no rss.

    ``kernels``: also the language of each kernelspec that ranks could run.  ``folder``: whether
    log files can be written there.
    """
    sizes = {rank: size for rank, pid in pids.items() if (size := _rss(root, pid)) is not None}
    languages = _languages() if kernels else {}
    return Facts(
        _memory_available(root), visible_gpus(environ, root), sizes, languages, probe(folder)
    )


def _languages() -> dict[str, str]:
    specs = kernelspecs.all_kernelspecs()
    return {name: spec.language for name, spec in specs.items() if "spmd" not in spec.metadata}


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
