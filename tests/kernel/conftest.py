from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .client import Kernel


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine sets must not decide what the tests see."""
    for name in list(os.environ):
        if name.startswith(("SPMD_", "SLURM_", "PMI_", "PMIX_", "OMPI_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    """World size 1."""
    with Kernel() as kernel:
        yield kernel


@pytest.fixture
def pair() -> Iterator[Kernel]:
    """Two ranks."""
    with Kernel() as kernel:
        kernel.ok("%processes 2")
        yield kernel


@pytest.fixture
def four() -> Iterator[Kernel]:
    with Kernel() as kernel:
        kernel.ok("%processes 4")
        yield kernel
