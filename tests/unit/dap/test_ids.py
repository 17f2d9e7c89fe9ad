from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.dap.ids import Table, Threads, thread_id
from spmd_kernel.core.errors import UsageError

PAIRS = st.tuples(st.integers(0, 70), st.integers(0, 1 << 50))


@given(st.lists(PAIRS))
def test_threads_are_injective_both_ways(pairs: list[tuple[int, int]]) -> None:
    threads = Threads()
    numbers = {pair: threads.out(*pair) for pair in pairs}
    assert len(set(numbers.values())) == len(numbers)
    for pair, number in numbers.items():
        assert threads.out(*pair) == number
        assert threads.back(number) == pair
        assert 1 < number < 1 << 53  # a number in JavaScript, and not the one that Lab makes up


def test_the_number_1_is_no_thread() -> None:
    assert Threads().back(1) is None
    assert thread_id(0, 1) == 65537
    assert Threads().back(1 << 45) is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("out"), st.integers(0, 3), st.integers(0, 4)),
        st.tuples(st.just("drop"), st.integers(0, 3), st.just(0)),
    )
)


@given(STEPS)
def test_no_number_is_given_twice(steps: list[tuple[str, int, int]]) -> None:
    table, given_out, live = Table("frame"), {0}, {}
    for step, rank, own in steps:
        if step == "drop":
            table.drop([rank])
            live = {key: number for key, number in live.items() if key[0] != rank}
            continue
        number = table.out(rank, own)
        if own == 0:
            assert number == 0
        elif (rank, own) in live:
            assert live[rank, own] == number
        else:
            assert number not in given_out
            given_out.add(number)
            live[rank, own] = number
    assert len(table) == len(live)
    for key, number in live.items():
        assert table.back(number) == key
    for number in given_out - set(live.values()) - {0}:
        with pytest.raises(UsageError, match="stale frame"):
            table.back(number)


def test_tables_that_share_their_numbers() -> None:
    numbers = count(1)
    one, other = Table("variable", numbers), Table("variable", numbers)
    assert [one.out(0, 5), other.out(0, 5), one.fresh(), other.out(1, 5)] == [1, 2, 3, 4]
    assert 1 in one and 1 not in other
