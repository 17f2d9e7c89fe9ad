"""How the ranks of a launch are started: forked from which interpreter, or spawned.

A rank that is forked differs from one that is spawned in what its interpreter had read before: so
what is read at that time decides which interpreter it is forked from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core.model import RankSpec, Settings
from ..core.topology import World, rank_environment
from ..kernelspecs import Kernelspec
from ..rank.processes import LINUX

MODULES = ("ipykernel_launcher", "ipykernel")
# Read before the first line of a rank's own code: by the dynamic linker, libc, the interpreter, or
# the modules that a zygote has imported.
EARLY = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "PYDEVD_", "DEBUGPY_")
EARLY_WITH_PRELOAD = ("OMP_", "KMP_", "OPENBLAS_", "MKL_")  # by OpenMP when numpy or torch load it
# Other values for each rank or each world.
WORLDS_OWN = frozenset(
    rank_environment(Settings(session=""), World(2, 0, 1, 2, ""), 0, {}, gpus=True)[0]
) - {"OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"}
_PYTHON = re.compile(r"python(\d+(\.\d+)?t?)?")


@dataclass(frozen=True, slots=True)
class Plan:
    """``module`` is empty where ranks are spawned, and ``why`` then says why."""

    words: tuple[str, ...] = ()  # the interpreter, with its -X options
    module: str = ""
    environ: tuple[tuple[str, str], ...] = ()  # the zygote's, sorted
    preload: tuple[str, ...] = ()
    why: str = field(default="", compare=False)


def plan(
    kernelspec: Kernelspec,
    inherited: Mapping[str, str],
    ranks: Sequence[RankSpec],
    preload: Sequence[str] = (),
) -> Plan:
    """Fork where that cannot be told from spawning, which is the rule for ipykernel on Linux."""
    words, module = _interpreter(kernelspec)
    if not LINUX:
        return Plan(why="this is not Linux")
    if not module:
        return Plan(
            why=f"kernelspec {kernelspec.name!r} is not a plain `python -m ipykernel_launcher`"
        )
    names = EARLY + EARLY_WITH_PRELOAD if preload else EARLY
    common = _common(ranks)
    for spec in ranks:
        for name in (*spec.env, *spec.unset):
            if name.startswith(names) and name not in common:
                return Plan(why=f"{name} is not the same on all ranks")
    kept = {k: v for k, v in common.items() if preload or k.startswith(names)}
    environ = {**kernelspec.environment(inherited), **kept}
    return Plan(words, module, tuple(sorted(environ.items())), tuple(preload))


def _interpreter(kernelspec: Kernelspec) -> tuple[tuple[str, ...], str]:
    """``PY [-X…] -m ipykernel_launcher …`` of the kernelspec; no module: it is another program."""
    python, *rest = kernelspec.command("")
    provisioner = kernelspec.metadata.get("kernel_provisioner") or {}
    name = isinstance(provisioner, Mapping) and provisioner.get("provisioner_name")
    if not _PYTHON.fullmatch(python.rpartition("/")[2]) or name not in (None, "local-provisioner"):
        return (), ""
    options: list[str] = []
    while rest and rest[0].startswith("-X"):
        count = 2 if rest[0] == "-X" else 1
        options += rest[:count]
        del rest[:count]
    if len(rest) < 2 or rest[0] != "-m" or rest[1] not in MODULES:
        return (), ""
    return (python, *options), rest[1]


def _common(ranks: Sequence[RankSpec]) -> dict[str, str]:
    """Variables that have one value on all ranks, and in each world."""
    first = ranks[0].env if ranks else {}
    return {
        name: value
        for name, value in first.items()
        if name not in WORLDS_OWN and all(spec.env.get(name) == value for spec in ranks)
    }
