"""What a dump shows of the ranks of a cell: where each is, what it waits for, whether it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .collectives import Wait, waits
from .model import Dumped, Pulse, Rank
from .stacks import RunningCode, Stack, anonymous, main_stack

SLACK = 3  # switches of a main thread that only waits: the dump itself is one, a SIGINT another
IDLE_CPU = 0.1  # of one processor: less is no work (a dump costs about 1 ms)


@dataclass(frozen=True, slots=True)
class Sight:
    at: float
    code: RunningCode
    stacks: Mapping[Rank, Stack]  # of those that answered
    waits: Mapping[Rank, Wait] = field(default_factory=dict)
    pulses: Mapping[Rank, Pulse] = field(default_factory=dict)

    @classmethod
    def of(cls, dumped: Dumped, code: RunningCode) -> Sight:
        stacks = {rank: main_stack(text) for rank, text in sorted(dumped.stacks.items())}
        found = {rank: waits(stack, code) for rank, stack in stacks.items()}
        known = {rank: wait for rank, wait in found.items() if wait is not None}
        return cls(dumped.at, code, stacks, known, dumped.pulses)

    def all_wait(self, ranks: tuple[Rank, ...]) -> bool:
        return set(self.waits) >= set(ranks)

    def is_failing(self, rank: Rank) -> bool:
        """The rank's cell has ended, and IPython writes its traceback."""
        return any(frame.function == "showtraceback" for frame in self.stacks.get(rank, ()))

    def place(self, rank: Rank) -> str:
        """``in all_reduce, cell line 4``; ``cell line 4``; empty if it did not answer."""
        stack = self.stacks.get(rank, ())
        if not stack:
            return ""
        where, wait = self.code.where(stack), self.waits.get(rank)
        known = wait is not None and wait.evidence != "if stuck"
        return f"in {wait.name}, {where}" if wait and known else where

    def stands(self, rank: Rank, before: Sight) -> bool:
        """The rank only waits, and has done nothing else since ``before``."""
        wait = self.waits.get(rank)
        if wait is None or wait.evidence == "if stuck" or rank not in before.waits:
            return False
        if anonymous(self.stacks[rank]) != anonymous(before.stacks[rank]):
            return False
        now, then = self.pulses.get(rank), before.pulses.get(rank)
        if now is None or then is None:
            return False
        # Waiting for a key, torch's store is asked again and again.
        still = wait.kind == "store" or now.switches - then.switches <= SLACK
        used = (now.cpu - then.cpu) / max(self.at - before.at, 1e-3)
        return still and (wait.evidence == "sure" or used < IDLE_CPU)
