from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.dap.conditions import NEVER, for_rank, message_for_rank


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("RANK == 2", ""),
        ("RANK != 2", NEVER),
        ("RANK == 2 and step > 10", "step > 10"),
        ("step > 10 and RANK == 1", NEVER),
        ("RANK == 1 or step > 10", "step > 10"),
        ("RANK == 2 or step > 10", ""),
        ("not RANK", NEVER),
        ("RANK in (0, 2)", ""),
        ("RANK in range(3, 9)", NEVER),
        ("RANK % 2 == 0 and 0 <= RANK < WORLD_SIZE", ""),
        ("RANK == WORLD_SIZE - 1", NEVER),
        ("step % WORLD_SIZE == RANK", "step % 4 == 2"),
        ("x[RANK] > 3", "x[2] > 3"),
        ("f(RANK=1)", "f(RANK=1)"),
        ("(lambda RANK: RANK)(1)", "(lambda RANK: RANK)(1)"),
        ("any(RANK for RANK in x)", "any(RANK for RANK in x)"),
        ("RANK ==", "RANK =="),
        ("", ""),
        ("step > 10", "step > 10"),
        ("RANK // 0", "2 // 0"),
        ("RANK < 'a'", "2 < 'a'"),
        ("RANKS == 3", "RANKS == 3"),
    ],
)
def test_what_is_left_for_rank_2_of_4(condition: str, left: Any) -> None:
    assert for_rank(condition, 2, 4) == left


ATOMS = st.sampled_from(
    ["RANK == 1", "RANK < 2", "RANK in (0, 3)", "x", "x > 1", "WORLD_SIZE == 4", "RANK"]
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
    ),
    max_leaves=8,
)


@given(condition=CONDITIONS, rank=st.integers(0, 3), x=st.integers(0, 3))
def test_it_holds_where_the_whole_one_does(condition: str, rank: int, x: int) -> None:
    whole = bool(eval(condition, {"RANK": rank, "WORLD_SIZE": 4, "x": x}))
    left = for_rank(condition, rank, 4)
    if left is NEVER:
        assert not whole
    else:
        assert bool(eval(str(left) or "True", {"x": x})) == whole


def test_messages_of_log_points() -> None:
    text = "RANK {RANK} of {WORLD_SIZE}: {x + RANK} {BRANK}"
    assert message_for_rank(text, 2, 4) == "RANK {2} of {4}: {x + 2} {BRANK}"
