"""Debugging, and little else: the machine of `test_hub` does everything, but this seldom.

The ranks' own debuggers assert what ipykernel does not forgive (`tests.debuggees`).
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spmd_kernel.core.dap.ids import thread_id

from .test_hub import Machine

STEPS = [
    "cell", "cell", "stop", "stop", "stop all", "stop all", "exception", "serve", "serve", "tell",
    "tell", "tell", "tell", "continue", "continue", "next", "next", "alone", "pin", "interrupt",
    "die", "%restart dead", "%processes 2", "%processes 3 --keep", "tick", "tick", "silent",
    "look", "look", "inspect", "all", "disconnect", "start", "step off",
]  # fmt: skip


class Debugging(Machine):
    def take(self, step: str, number: int) -> None:
        world = self.world
        fakes = [fake for fake in world.ranks.values() if fake.alive]
        fake = fakes[number % len(fakes)] if fakes else None
        match step:
            case "cell":
                world.execute("work()", stop_on_error=False)
            case "%restart dead" | "%processes 2" | "%processes 3 --keep":
                world.execute(step, stop_on_error=False)
            case "stop" | "exception" if fake in self.may_stop:
                assert fake is not None
                world.stop(fake, "breakpoint" if step == "stop" else "exception")
            case "stop all":
                for one in self.may_stop:
                    world.stop(one)
            case "step off":
                world.debug("next", threadId=1)
                world.quiet()
                for one in self.servable:
                    world.answer_shell(one)
            case "serve" if self.servable:
                world.answer_shell(self.servable[number % len(self.servable)])
            case "tell":
                for _ in range(number + 1):
                    world.step_of_debuggers()
            case "continue" | "next":
                world.debug(step, threadId=thread_id(number, 1) if number else 1)
            case "alone":
                world.debug("stepIn", threadId=thread_id(number, 1), singleThread=True)
            case "pin":
                world.debug("spmdFocus", rank=number or None)
            case "interrupt":
                self.interrupt(True)
            case "die" if world.ranks:
                self.world.die(list(world.ranks.values())[number % len(world.ranks)])
            case "tick" if world.timers:
                self.time_passes()
            case "silent" if fake is not None:
                fake.debuggee.silent ^= {["stackTrace", "scopes", "variables", "threads"][number]}
            case "look":
                self.look_around(number)
            case "inspect":
                world.debug("inspectVariables")
            case "all":
                world.debug("evaluate", expression="%all x")
            case "disconnect":
                world.debug("disconnect")
            case "start":
                world.debug("initialize")
                world.debug("attach")

    def look_around(self, number: int) -> None:
        """Frames, scopes, variables: with ids that may be stale by the time they are asked for."""
        self.world.debug("stackTrace", threadId=thread_id(number, 1) if number else 1)
        for known in range(1, 1 + 3 * number, 2):
            self.world.debug("scopes", frameId=known)
            self.world.debug("variables", variablesReference=known)


@given(
    size=st.sampled_from([1, 2, 3]),
    subshells=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_debugging_of_ranks_that_do_anything(
    size: int, subshells: bool, steps: list[tuple[str, int]]
) -> None:
    machine = Debugging()
    machine.begin(size=size, started=True, subshells=subshells)
    debug: Any = machine.world.debug
    for command in ("initialize", "attach"):
        debug(command)
        machine.world.quiet()
    for step, number in steps:
        machine.take(step, number)
        machine.no_internal_error()
    machine.teardown()
    hub = machine.world.hub
    assert not hub.debugger.debuggees.all and not hub.debugger.nodes
    assert not hub.debugger.asking.owing
