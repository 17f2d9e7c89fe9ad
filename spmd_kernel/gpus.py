"""NVIDIA devices, found without importing anything or touching a driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/")
_DEVICE = re.compile(r"nvidia\d+")


def visible_gpus(environ: Mapping[str, str], root: Path = ROOT) -> tuple[str, ...]:
    """The devices that CUDA would show a process with this environment, by index or UUID."""
    present = present_gpus(root)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not present:
        return present
    return _until_invalid([word.strip() for word in visible.split(",")], len(present))


def present_gpus(root: Path = ROOT) -> tuple[str, ...]:
    """The devices that have a driver, whatever a process may see of them; by index."""
    driver = root / "proc/driver/nvidia/gpus"
    devices = root / "dev"
    count = len(list(driver.iterdir())) if driver.is_dir() else 0
    if not count and devices.is_dir():
        count = sum(bool(_DEVICE.fullmatch(entry.name)) for entry in devices.iterdir())
    return tuple(map(str, range(count)))


def _until_invalid(words: list[str], present: int) -> tuple[str, ...]:
    """CUDA ignores the first invalid device of the list and all after it."""
    valid = []
    for word in words:
        if not word.startswith(("GPU-", "MIG-")) and not (word.isdigit() and int(word) < present):
            break
        valid.append(word)
    return tuple(valid)
