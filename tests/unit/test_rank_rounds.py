"""Ranks that make process groups again and again meet, whoever gave up in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.rank.rounds import Round, is_ours


class Store:
    """What torch's store does."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if self.values.get(key, "") == expected:
            self.values[key] = desired
        return self.values[key].encode()


def test_all_meet_in_the_same_round_and_next_time_in_a_later_one() -> None:
    store = Store()
    for number in range(3):
        rounds = [Round(store, rank, 3) for rank in (2, 0, 1)]
        assert [one.wait(0) for one in rounds] == [[], [], []]
        assert {one.number for one in rounds} == {number}
    assert len({one.prefix for one in rounds}) == 1


def test_who_gave_up_meets_those_who_come_later() -> None:
    store = Store()
    assert Round(store, 1, 2).wait(0) == [0]
    first = Round(store, 0, 2)  # already there as the other comes again
    second = Round(store, 1, 2)
    assert first.number == second.number == 0
    assert first.wait(0) == second.wait(0) == []


def test_who_is_stopped_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    waiting = Round(store, 0, 2)

    def stopped(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", stopped)
    with pytest.raises(KeyboardInterrupt):
        waiting.wait(60)
    assert [Round(store, rank, 2).number for rank in (1, 0)] == [0, 0]


@given(st.lists(st.sampled_from([0, 1, 2]), max_size=20), st.permutations([0, 1, 2]))
def test_whatever_was_given_up_before(alone: list[int], order: list[int]) -> None:
    store = Store()
    for rank in alone:
        Round(store, rank, 3).wait(0)
    rounds = [Round(store, rank, 3) for rank in order]
    assert [one.wait(0) for one in rounds] == [[], [], []]
    assert len({one.number for one in rounds}) == 1


def test_only_the_world_of_this_rank_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4000", "RANK": "1", "WORLD_SIZE": "2"}
    for name, value in world.items():
        monkeypatch.setenv(name, value)
    assert is_ours("127.0.0.1", 4000, 1, 2)
    assert not is_ours("127.0.0.1", 4001, 1, 2)
    assert not is_ours("127.0.0.1", 4000, 0, 1)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert not is_ours("127.0.0.1", 4000, 1, 2)
