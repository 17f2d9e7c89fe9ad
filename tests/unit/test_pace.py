from spmd_kernel.core.model import Effect, Listen
from spmd_kernel.core.pace import Pace


def test_a_rank_is_heard_again_when_no_machine_has_too_much_of_it() -> None:
    effects: list[Effect] = []
    pace = Pace(effects.append)
    pace.set("cell", frozenset({1, 0}))
    pace.set("cell", frozenset({1, 0}))
    assert effects == [Listen((0, 1), False)]
    pace.set("late", frozenset({1}))
    pace.set("cell", frozenset())
    assert effects[1:] == [Listen((0,), True)]
    pace.set("cell", frozenset({2}))
    pace.set("late", frozenset({2}))
    assert effects[2:] == [Listen((2,), False), Listen((1,), True)]
