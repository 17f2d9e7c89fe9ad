"""What clients that show no updates of displays get instead: terminals, logs of headless runs."""

import json

import pytest

from spmd_kernel.core.outputs import OutputPolicy

from .document import Cell, message

TERMINAL = OutputPolicy(client="terminal")
HEADLESS = OutputPolicy(client="headless")


def bars(cell, steps, seconds, ranks=None):
    """Each rank rewrites its bar so often."""
    for step in range(steps):
        for rank in cell.ranks if ranks is None else ranks:
            cell.feed(rank, f"\r{step * 100 // steps}% of {rank}", "stderr")
        cell.wait(seconds)


def test_a_terminal_gets_no_display_and_a_line_every_5_seconds():
    cell = Cell(2, policy=TERMINAL)
    bars(cell, 120, 0.1)
    assert cell.text.splitlines() == [
        "0 │ 41% of 0", "1 │ 41% of 1", "0 │ 84% of 0", "1 │ 84% of 1",
    ]  # fmt: skip
    cell.feed_all("\r100% done\n", "stderr")
    assert cell.text.splitlines()[4:] == ["100% done"]
    cell.finish()
    cell.close()
    assert {kind for kind, _ in cell.contents} == {"stream"}


def test_a_short_bar_is_one_line_in_a_terminal():
    cell = Cell(2, policy=TERMINAL)
    bars(cell, 20, 0.1)
    assert cell.text == ""
    cell.finish()
    cell.close()
    assert cell.text.splitlines() == ["0 │ 95% of 0", "1 │ 95% of 1"]


def test_a_bar_that_stands_still_is_said_once():
    cell = Cell(2, policy=TERMINAL)
    bars(cell, 1, 1000)
    assert cell.text.splitlines() == ["0 │ 0% of 0", "1 │ 0% of 1"]


def test_dots_are_seen_as_soon_in_a_terminal_as_elsewhere():
    cell = Cell(2, policy=TERMINAL)
    for _ in range(6):
        cell.feed(0, ".")
        cell.wait(0.125)
    assert cell.text == "0 │ " + "." * 4
    cell.finish()
    cell.close()
    assert cell.text == "0 │ " + "." * 6


def test_a_log_gets_a_line_every_30_seconds_beside_the_display():
    cell = Cell(2, policy=HEADLESS)
    bars(cell, 70, 1)
    assert [line[:4] for line in cell.text.splitlines()] == ["0 │ ", "1 │ "] * 2
    assert len(cell.of("display_data")) == 1
    assert len(cell.of("update_display_data")) > 50


def test_a_notebook_gets_the_display_alone():
    cell = Cell(2)
    bars(cell, 70, 1)
    assert cell.text == ""


def test_many_bars_are_summed_up():
    cell = Cell(16, policy=HEADLESS)
    for rank in cell.ranks:
        cell.feed(rank, f"\r{rank}% mine", "stderr")
    cell.wait(31)
    assert cell.text == "0% to 15%, slowest:\n 0 │ 0% mine\n"
    other = Cell(16, policy=HEADLESS)
    for rank in other.ranks:
        other.feed(rank, f"\rworking {rank}")
    other.wait(31)
    *rows, rest = other.text.splitlines()
    assert rows == [f" {rank} │ working {rank}" for rank in range(8)]
    assert rest == "8-15 │ … and 8 more"


def test_a_rank_that_clears_on_its_own_hides_nothing_in_a_terminal():
    cell = Cell(2, policy=TERMINAL)
    for step in range(3):
        cell.feed(0, f"step {step}\n")
        cell.feed(0, message("clear_output", wait=True))
        cell.wait(1)
    cell.finish()
    cell.close()
    assert cell.text == "0 │ step 0\n0 │ step 1\n0 │ step 2\n"


@pytest.mark.parametrize("policy", [OutputPolicy(), TERMINAL])
def test_a_view_hides_bars_of_other_ranks(policy):
    cell = Cell(3, policy=OutputPolicy(show=(1,), client=policy.client))
    bars(cell, 60, 0.1)
    cell.finish()
    cell.close()
    shown = cell.text + "".join(json.dumps(content) for content in cell.of("update_display_data"))
    assert "of 1" in shown
    assert "of 0" not in shown and "of 2" not in shown
