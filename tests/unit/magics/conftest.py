"""A world for magics to see, and a driver that plays the hub's part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from spmd_kernel.core.content import Content
from spmd_kernel.core.magics import MAGICS
from spmd_kernel.core.magics.base import Call, RankView
from spmd_kernel.core.model import Settings
from spmd_kernel.core.outputs import OutputPolicy
from spmd_kernel.core.timings import Timing


@dataclass
class World:
    """A `base.Context`."""

    world: tuple[RankView, ...] = ()
    settings: Settings = field(default_factory=lambda: Settings(session="s"))
    on_error: str | None = None
    headless: bool = False
    preload: tuple[str, ...] = ()
    policy: OutputPolicy = field(default_factory=OutputPolicy)
    words: dict[int, str] = field(default_factory=dict)  # what each rank said
    timings: tuple[Timing, ...] = ()

    @property
    def kernel(self):
        return self.settings.kernel

    def set_on_error(self, value):
        self.on_error = value

    def set_policy(self, value):
        self.policy = value

    def said(self, rank):
        return self.words.get(rank, "")


def world_of(*states, **settings):
    """A world with these states; ``killed`` is a dead rank with a cause."""
    views = tuple(
        RankView(rank, 1000 + rank, "dead", cause="killed by SIGKILL (signal 9)")
        if state == "killed"
        else RankView(rank, 1000 + rank, state)
        for rank, state in enumerate(states)
    )
    return World(views, Settings(session="s", **settings))


def play(steps, answers: Iterable[object]):
    """Run a generator: (the steps it yielded, what it returned). Exceptions in answers are thrown.

    It must take every answer: one too many would mean that a step did not happen.
    """
    answers, yielded, value = list(answers), [], None
    while True:
        try:
            raises = isinstance(value, Exception)
            step = steps.throw(value) if raises else steps.send(value)
        except StopIteration as stop:
            assert not answers, f"never asked for: {answers}"
            return yielded, stop.value
        yielded.append(step)
        value = answers.pop(0) if answers else None


@pytest.fixture
def world():
    return world_of


@pytest.fixture
def ties():
    """What ranks answer to the question what binds them: ``ties(0, 1, jax=(0,), silent=(1,))``."""

    def answers(*ranks, jax=(), torch=(), silent=()):
        def reply(rank):
            live = {"jax": rank in jax, "torch": rank in torch}
            values = {name: {"data": {"text/plain": str(value)}} for name, value in live.items()}
            return Content(status="ok", user_expressions=values)

        return {rank: None if rank in silent else reply(rank) for rank in ranks}

    return answers


@pytest.fixture
def drive():
    return play


@pytest.fixture
def use():
    """The steps of one line such as ``%processes 4``, with the answers to them in order."""

    def run(line, context, *answers, body=""):
        name, _, args = line.partition(" ")
        return play(MAGICS[name].run(Call(name, args, body), context), answers)[0]

    return run
