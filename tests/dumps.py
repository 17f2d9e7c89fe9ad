"""Dumps as ranks give them: for tests of what follows from a stack."""

from __future__ import annotations

from spmd_kernel.core.stacks import cell_name

SITE = "/usr/lib/python3.11/site-packages/"
C10D = "torch/distributed/distributed_c10d.py"


def dump(code: str, *frames: tuple[str, str], line: int = 1, rank: int = 0) -> str:
    """A main thread in a cell; ``frames`` are (file, function) of libraries, innermost first."""
    lines = ["Stack (most recent call first):"]
    lines += [f'  File "{SITE}{file}", line 7 in {function}' for file, function in frames]
    lines.append(f'  File "/tmp/ipykernel_{rank}/{cell_name(code)}.py", line {line} in <module>')
    lines.append('  File "<frozen runpy>", line 198 in _run_module_as_main')
    return "\n".join(lines) + "\n"


def in_all_reduce(code: str, rank: int = 0, line: int = 1) -> str:
    return dump(code, (C10D, "all_reduce"), line=line, rank=rank)
