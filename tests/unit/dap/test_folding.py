from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.dap.all_ranks import Place, matching
from spmd_kernel.core.dap.nodes import Folded, Split, fold, group_texts


def variable(name: str, value: str, ref: int = 0) -> dict[str, Any]:
    return {"name": name, "value": value, "type": "int", "variablesReference": ref}


def test_equal_values_are_one_row_and_different_ones_split() -> None:
    rows = fold(
        {
            0: [variable("a", "1"), variable("b", "20"), variable("d", "{}", 5)],
            1: [variable("a", "1"), variable("b", "20"), variable("d", "{}", 6)],
            2: [variable("a", "1"), variable("b", "22"), variable("z", "9")],
        }
    )
    assert [(row.name, row.value) for row in rows] == [
        ("a", "1"),
        ("b", "0-1: 20 | 2: 22"),
        ("d", "0-1: {} | 2: (not defined)"),
        ("z", "2: 9 | 0-1: (not defined)"),
    ]
    assert rows[0].node is None
    assert isinstance(rows[1].node, Split) and rows[1].node.ranks == (0, 1, 2)
    assert rows[2].groups[0].refs == {0: 5, 1: 6}
    assert fold({0: [variable("d", "{}", 5)], 1: [variable("d", "{}", 6)]})[0].node == Folded(
        {0: 5, 1: 6}
    )


def test_addresses_are_no_difference() -> None:
    texts = [f"<object at 0x7f{i}>" for i in range(2)]
    (row,) = fold({i: [variable("o", text)] for i, text in enumerate(texts)})
    assert row.value == "<object at 0x…>"
    assert group_texts(dict(enumerate(texts))) == "<object at 0x…>"
    assert group_texts({0: texts[0], 1: "x"}) == "0: <object at 0x7f0> | 1: x"


@given(st.dictionaries(st.integers(0, 5), st.lists(st.sampled_from("abc"), max_size=3), min_size=1))
def test_every_rank_is_in_one_group_of_each_row(names: dict[int, list[str]]) -> None:
    found = {
        rank: [variable(name, str(rank % 2)) for name in dict.fromkeys(had)]
        for rank, had in names.items()
    }
    for row in fold(found):
        ranks = [rank for group in row.groups for rank in group.ranks]
        assert sorted(ranks) == sorted(found)


def test_which_frame_of_another_rank_matches() -> None:
    def frames(*names: str) -> list[dict[str, Any]]:
        return [{"id": i, "name": name} for i, name in enumerate(names)]

    def found(stack: list[dict[str, Any]]) -> Any:
        frame = matching(stack, Place("p", "f", 2), dict.fromkeys(range(9), "p"))
        return frame and frame["id"]

    assert found(frames("f", "<module>")) == 0
    assert found(frames("f", "f", "<module>")) == 1  # the same depth, not the innermost
    assert found(frames("f", "f", "g", "<module>")) == 0  # the same function
    assert found(frames("g", "<module>")) == 0  # the top
    assert found(frames("f (Current frame)", "<module>")) == 0
    assert found([]) is None
