from __future__ import annotations

from ...world import start
from .asking import now


def test_the_last_cells_rank_by_rank() -> None:
    world = start(2)
    assert now(world, "timing") == {"cells": []}
    for code in ("a = 1", "b = 2\nmore", "c"):
        world.execute(code)
        world.at += 1
        world.settle()
    cells = now(world, "timing", last=2)["cells"]
    assert [(cell["execution_count"], cell["code"]) for cell in cells] == [(2, "b = 2"), (3, "c")]
    assert set(cells[0]["seconds"]) == {"0", "1"}
    assert 1 <= cells[0]["min"] <= cells[0]["max"] < 1.1
