"""Grouped mode: how what the ranks said is put together when all of it is known."""

import pytest

from spmd_kernel.core.outputs import OutputPolicy, grouped

from .document import Cell, display, error, result

GROUPED = OutputPolicy(mode="grouped")


def shown(*texts):
    cell = Cell(len(texts), policy=GROUPED)
    for rank, text in enumerate(texts):
        cell.feed(rank, text)
    cell.finish()
    cell.close()
    return cell.text


def test_ranks_in_step_stay_in_step():
    """Rank 1 prints what rank 0 prints one step later: that is no reason to bring it together."""
    text = shown(*("".join(f"step {i}\nloss {r + i}\n" for i in range(3)) for r in range(3)))
    assert text.splitlines() == [
        line for i in range(3) for line in (f"step {i}", *(f"{r} │ loss {r + i}" for r in range(3)))
    ]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("a\nb\n", "c\nd\n"), "0 │ a\n0 │ b\n1 │ c\n1 │ d\n"),
        (("extra\na\nb\n", "a\nb\n"), "0 │ extra\na\nb\n"),
        (("late\na\n", "a\nlate\n"), "0 │ late\na\n1 │ late\n"),
        (("a\nb", "a\nc"), "a\n0 │ b\n1 │ c"),
        (("\r1%\r100%\n", "\r3%\r100%\n"), "100%\n"),
        (("\r1%\r50%", "\r3%\r60%"), "0 │ 50%\n1 │ 60%"),
    ],
)
def test_lines(texts, expected):
    assert shown(*texts) == expected


def test_an_interrupted_rank_is_not_the_first_that_failed():
    cell = Cell(3, policy=GROUPED)
    cell.feed(0, error("stopped", ename="KeyboardInterrupt"))
    cell.feed(2, error("two"))
    cell.feed(1, error("one"))
    cell.finish()
    cell.close()
    assert [content["evalue"] for content in cell.of("error")] == ["one", "stopped", "two"]


def test_other_outputs_keep_their_place():
    cell = Cell(2, policy=GROUPED)
    for rank in (1, 0):
        cell.feed(rank, "to stderr\n", "stderr")
        cell.feed(rank, f"before {rank}\n")
        cell.feed(rank, display({"image/png": f"{rank}"}))
        cell.feed(rank, "after\n")
        cell.feed(rank, result("42"))
    cell.finish()
    assert not cell.published
    cell.close()
    kinds = [kind for kind, _ in cell.shown()]
    assert kinds == [
        "stdout", "stderr", "display_data", "display_data", "display_data", "display_data",
        "stdout", "execute_result",
    ]  # fmt: skip


def test_too_much_is_shown_early(monkeypatch):
    monkeypatch.setattr(grouped, "HELD", 1000)
    cell = Cell(2, policy=GROUPED)
    lines = [f"line {number}\n" for number in range(300)]
    for line in lines:
        cell.feed_all(line)
    assert len(cell.text) > len("".join(lines)) - 1000
    cell.finish()
    cell.close()
    assert cell.text == "".join(lines)


def test_a_question_needs_what_came_before_it():
    cell = Cell(2, policy=GROUPED)
    cell.feed(0, "mine\n")
    cell.feed(1, "other\n")
    cell.cut(1)
    assert cell.text == "1 │ other\n"
    cell.finish()
    cell.close()
    assert cell.text == "1 │ other\n0 │ mine\n"
