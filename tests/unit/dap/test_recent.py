"""Files of cells by the names that ipykernel gives them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from ipykernel.compiler import get_tmp_hash_seed, murmur2_x86

from spmd_kernel.core.dap.recent import MOST_CELLS, MOST_CHARACTERS, RecentCells, murmur2
from spmd_kernel.core.dap.sources import SEED


@given(st.text(max_size=200))
def test_the_hash_is_that_of_ipykernel(code: str) -> None:
    assert murmur2(code.encode(), SEED) == murmur2_x86(code, get_tmp_hash_seed())


def test_the_last_cells_are_kept_once_each() -> None:
    cells = RecentCells("/cells/")
    for number in range(MOST_CELLS + 2):
        cells.ran(f"x = {number}", number)
    cells.ran("x = 5", 100)
    found = list(cells)
    assert len(found) == MOST_CELLS
    assert (found[-1].name, found[-1].code) == ("cell [100]", "x = 5")
    assert (found[0].name, found[0].code) == ("cell [2]", "x = 2")
    assert all(cells.at(cell.path) == cell for cell in found)
    assert len({cell.path for cell in found}) == MOST_CELLS
    assert cells.at("/cells/1.py") is None and cells.path("x = 0") is None


def test_what_is_no_file() -> None:
    cells = RecentCells("/cells/")
    cells.ran("  \n", 1)
    cells.ran("x" * (MOST_CHARACTERS + 1), 2)
    cells.ran("'\udc80'", 3)  # no rank runs it
    assert list(cells) == []
    cells.ran("y", None)
    assert [cell.name for cell in cells] == ["cell"]
    cells.ran("y", 7)
    cells.ran("y", None)  # a part of a cell that runs it again keeps the name
    assert [cell.name for cell in cells] == ["cell [7]"]
