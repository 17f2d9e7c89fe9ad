"""The memory cgroup that we and the ranks live in: its limit, and whom it killed.

cgroup v2 (``memory.max``, ``memory.events``) and v1 (``memory.limit_in_bytes``,
``memory.oom_control``), also where a container shows only its own part of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def oom_kills(root: Path = ROOT) -> int:
    """How many processes of our cgroup (or else of the machine) were killed for memory so far."""
    for directory in _directories(root):
        for name in ("memory.events", "memory.oom_control"):
            kills = _table(directory / name).get("oom_kill")
            if kills is not None:
                return kills
    return _table(root / "proc/vmstat").get("oom_kill", 0)


def memory_left(root: Path = ROOT) -> int | None:
    """Bytes until the nearest limit of our cgroup or one above it; None without a limit."""
    left = [value for directory in _directories(root) if (value := _left(directory)) is not None]
    return min(left, default=None)


def _left(directory: Path) -> int | None:
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = _number(directory / limit_name), _number(directory / usage_name)
        if limit is not None and usage is not None:
            cache = _table(directory / "memory.stat").get(cache_name, 0)  # given back on demand
            return max(0, limit - max(0, usage - cache))
    return None


def _directories(root: Path) -> Iterator[Path]:
    """Our own cgroup first, then its ancestors as far as they are visible."""
    paths = _own_paths(root)
    for mount, mounted, version in _mounts(root):
        path = paths.get(version)
        if path is None:
            continue
        inside = path[len(mounted) :] if path.startswith(mounted) else ""
        directory = mount / inside.strip("/")
        yield directory
        while directory != mount:
            directory = directory.parent
            yield directory


def _own_paths(root: Path) -> dict[int, str]:
    """cgroup version -> path of our process in it (``/proc/self/cgroup``, cgroups(7))."""
    paths = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            paths[1] = path
        elif number == "0":
            paths[2] = path
    return paths


def _mounts(root: Path) -> Iterator[tuple[Path, str, int]]:
    """Mount point, what of the tree is mounted there, cgroup version (proc(5), mountinfo)."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        version = 2 if kind == "cgroup2" else 1 if kind == "cgroup" else 0
        if version == 2 or (version == 1 and "memory" in options.split(",")):
            mounted, mount = before.split(" ")[3:5]
            yield root / mount.lstrip("/"), mounted.rstrip("/"), version


def _table(path: Path) -> dict[str, int]:
    words = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None  # "max": no limit


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
