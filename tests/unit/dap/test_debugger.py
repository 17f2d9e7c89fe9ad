"""The debugger of the whole hub, over ranks that answer as ipykernel does, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spmd_kernel.core.dap.ids import thread_id
from spmd_kernel.core.dap.recent import murmur2
from spmd_kernel.core.dap.sources import SEED
from spmd_kernel.core.model import KeepSource, ToRank

from ...world import World, start

CELLS = "/tmp/cells/"
GOLDEN = Path(__file__).parents[2] / "golden"


def debugging(size: int = 2) -> World:
    world = start(size, cells=CELLS)
    assert world.debugged("initialize")["success"]
    assert world.debugged("attach")["success"]
    world.quiet()
    return world


def cell_stopped(world: World, *ranks: int) -> Any:
    cell = world.execute("f()")
    for rank in ranks or tuple(world.ranks):
        world.stop(world.ranks[rank])
        world.quiet()
    return cell


def told(world: World) -> list[tuple[str, int]]:
    """What clients saw of stops: the event and its rank."""
    return [
        (event["event"], (event["body"]["threadId"] >> 16) - 1)
        for event in world.debug_events
        if event["event"] in ("stopped", "continued")
    ]


def commands(world: World, rank: int) -> list[str]:
    return [request["command"] for request in world.ranks[rank].debuggee.heard]


def body(world: World, command: str, **arguments: Any) -> Any:
    reply = world.debugged(command, **arguments)
    assert reply["success"], reply
    return reply["body"]


def fails(world: World, command: str, **arguments: Any) -> str:
    reply = world.debugged(command, **arguments)
    assert not reply["success"]
    return str(reply["message"])


# ---------------------------------------------------------------- starting


def test_nothing_is_asked_of_ranks_before_a_client_does() -> None:
    world = start(2, cells=CELLS)
    world.run("x")
    assert all(commands(world, rank) == [] for rank in (0, 1))
    info = body(world, "debugInfo")
    assert info["isStarted"] is False and info["tmpFilePrefix"] == CELLS
    assert "not started" in fails(world, "setBreakpoints", source={"path": "p"}, breakpoints=[])


@pytest.mark.parametrize("command", [{"a": 1}, ["next"], 7, True])
def test_a_command_that_is_no_text_is_the_senders_fault(command: Any) -> None:
    world = debugging(2)
    sent = world.debug(command)
    world.settle()
    assert sent.reply["status"] == "error" and "'command' has type" in sent.reply["evalue"]
    assert body(world, "debugInfo")["isStarted"]


def test_initialize_is_refused_at_once_if_a_rank_is_busy() -> None:
    world = start(2)
    world.execute("x")
    sent = world.debug("initialize")
    assert "is running" in sent.reply["message"]
    assert all(commands(world, rank) == [] for rank in (0, 1))


def test_a_client_that_has_just_left_may_wait_for_the_cell() -> None:
    world = debugging(2)
    cell = cell_stopped(world)
    assert world.debugged("disconnect")["success"]
    again = world.debug("initialize")
    world.settle()
    assert cell.reply["status"] == "ok"
    assert again.reply["success"]
    world.debugged("disconnect")
    world.execute("x")
    world.debugged("debugInfo")
    assert "is running" in fails(world, "initialize")


def test_a_cell_waits_for_initialize() -> None:
    world = start(2)
    world.debug("initialize")
    cell = world.execute("x")
    assert not any(fake.inbox for fake in world.ranks.values())
    world.settle()
    assert cell.reply["status"] == "ok"


def test_one_initialized_and_one_start_for_all_clients() -> None:
    world = debugging()
    assert [e["event"] for e in world.debug_events] == ["initialized"]
    assert world.debugged("initialize")["success"]
    assert world.debugged("attach")["success"]
    assert commands(world, 0).count("initialize") == 1
    assert commands(world, 0).count("attach") == 1


def test_a_rank_that_cannot_start_its_debugger_is_named() -> None:
    world = start(3)
    world.ranks[1].debuggee.fails.add("initialize")
    assert world.debugged("initialize")["success"]
    assert commands(world, 1).count("initialize") == 2  # once more, on another port
    assert world.debugged("attach")["success"]
    (said,) = [e["body"]["output"] for e in world.debug_events if e["event"] == "output"]
    assert "does not reach all ranks" in said
    states = [r["state"] for r in body(world, "debugInfo")["spmd"]["ranks"]]
    assert states == ["running", "detached", "running"]


def test_capabilities_are_those_of_all() -> None:
    world = start(2)
    made = world.ranks[1].debuggee

    def body_of(command: str, arguments: Any) -> Any:
        body = type(made)._body(made, command, arguments)
        return body | {"supportsLogPoints": False} if command == "initialize" and body else body

    made._body = body_of  # type: ignore[method-assign]
    able = body(world, "initialize")
    assert able["supportsSetVariable"] is True and able["supportsLogPoints"] is False
    assert able["supportsSingleThreadExecutionRequests"] is True


# ---------------------------------------------------------------- paths and breakpoints


def test_breakpoints_have_one_path_for_clients_and_one_for_each_rank() -> None:
    world = debugging(3)
    path = body(world, "dumpCell", code="12345")["sourcePath"]
    assert path == CELLS + "5.py"
    assert KeepSource(path, "12345") in world.effects
    assert body(world, "source", source={"path": path}) == {"content": "12345"}
    points = [{"line": 1}, {"line": 2, "condition": "RANK == 2 and x"}]
    answer = body(world, "setBreakpoints", source={"path": path}, breakpoints=points)
    assert [(p["verified"], p["line"], p["id"]) for p in answer["breakpoints"]] == [
        (True, 1, 0),
        (True, 2, 1),
    ]
    assert {p["source"]["path"] for p in answer["breakpoints"]} == {path}
    for rank, fake in world.ranks.items():
        lines = fake.debuggee.lines[fake.debuggee.prefix + "5.py"]
        assert lines == [{"line": 1}, {"line": 2, "condition": "x"}][: 2 if rank == 2 else 1]


def test_new_ranks_get_what_the_others_have() -> None:
    world = debugging(2)
    path = body(world, "dumpCell", code="12345")["sourcePath"]
    points = [{"line": 2, "condition": "RANK == WORLD_SIZE - 1"}]
    body(world, "setBreakpoints", source={"path": path}, breakpoints=points)
    world.debugged("setExceptionBreakpoints", filters=["raised"])
    world.run("%processes 3 --keep")
    for rank, fake in world.ranks.items():
        made = fake.debuggee
        assert made.attached and made.cells == ["12345"]
        assert made.lines[made.prefix + "5.py"] == [{"line": 2}] * (rank == 2)
        assert made.heard[-1]["arguments"] == {"filters": ["raised"]}
    world.run("%processes 1")
    assert world.ranks[0].debuggee.lines[world.ranks[0].debuggee.prefix + "5.py"] == [{"line": 2}]
    assert "terminated" not in [e["event"] for e in world.debug_events]


# ---------------------------------------------------------------- stop and go on


def test_one_stop_is_told_and_no_running_rank_is_continued() -> None:
    world = debugging(3)
    cell_stopped(world, 1)
    assert told(world) == [("stopped", 1)]
    assert body(world, "continue", threadId=1) == {"allThreadsContinued": True}
    assert "continue" not in commands(world, 0) + commands(world, 2)
    assert world.debugged("continue", threadId=1)["success"]
    assert world.debugged("next", threadId=thread_id(0, 1))["success"]
    world.settle()
    assert told(world) == [("stopped", 1), ("continued", 1)]


def test_the_focus_stays_on_its_rank() -> None:
    world = debugging(3)
    cell_stopped(world, 2, 0, 1)
    for stops in ((0, 1, 2), (2, 1, 0)):
        world.debugged("next", threadId=1)
        world.quiet()
        for rank in stops:
            world.stop(world.ranks[rank], "step")
            world.quiet()
    assert told(world) == [("stopped", 2), *[("continued", 2), ("stopped", 2)] * 2]
    # Now another one, which the client chose to look at.
    world.debugged("stepIn", threadId=thread_id(1, 1))
    for rank in (0, 1, 2):
        world.stop(world.ranks[rank], "step")
    world.quiet()
    assert told(world)[-2:] == [("continued", 1), ("stopped", 1)]


def test_another_rank_takes_the_focus_when_the_first_does_not_stop_again() -> None:
    world = debugging(3)
    cell_stopped(world)
    world.debugged("next", threadId=1)
    world.stop(world.ranks[2], "step")
    world.quiet()
    assert told(world) == [("stopped", 0), ("continued", 0)]
    world.fire(("dap", "jupyter"))
    assert told(world)[2:] == [("stopped", 2)]


def test_the_next_rank_is_shown_when_one_goes_on_alone() -> None:
    world = debugging(2)
    cell_stopped(world)
    assert body(world, "continue", threadId=thread_id(0, 1), singleThread=True) == {
        "allThreadsContinued": False
    }
    world.quiet()
    assert told(world) == [("stopped", 0), ("continued", 0)]
    world.fire(("dap", "jupyter"))
    assert told(world)[2:] == [("stopped", 1)]
    assert "continue" not in commands(world, 1)


def test_an_exception_has_the_focus_before_others() -> None:
    world = debugging(3)
    cell_stopped(world)
    world.debugged("continue", threadId=1)
    world.stop(world.ranks[1])
    world.stop(world.ranks[2], "exception")
    world.quiet()
    world.fire(("dap", "jupyter"))
    assert told(world)[-1] == ("stopped", 2)


def test_a_pinned_rank_has_the_focus() -> None:
    world = debugging(3)
    assert body(world, "spmdFocus", rank=2) == {"pinned": 2, "focus": None}
    cell_stopped(world, 0)
    assert told(world) == [("stopped", 0)]
    world.stop(world.ranks[2])
    world.quiet()
    world.debugged("spmdFocus", rank=2)
    assert told(world) == [("stopped", 0), ("stopped", 2)]
    assert "no rank" in fails(world, "spmdFocus", rank=7)


def test_breakpoints_of_an_earlier_kernel_in_a_cell_whose_file_is_not_there() -> None:
    world = debugging(2)
    path = f"{CELLS}{murmur2(b'f()', SEED)}.py"
    body(world, "setBreakpoints", source={"path": path}, breakpoints=[{"line": 1}])
    world.run("f()")
    for fake in world.ranks.values():
        assert fake.debuggee.cells == ["f()"]
        order = [request["command"] for request in fake.debuggee.heard]
        assert order[-2:] == ["dumpCell", "setBreakpoints"]


def test_what_is_set_while_no_rank_lives_is_for_those_to_come() -> None:
    world = debugging(2)
    for fake in list(world.ranks.values()):
        world.die(fake)
    world.quiet()
    told = body(world, "setBreakpoints", source={"path": "/m.py"}, breakpoints=[{"line": 4}])
    assert [point["verified"] for point in told["breakpoints"]] == [False]
    assert world.debugged("setExceptionBreakpoints", filters=["raised"])["success"]
    world.run("%restart dead")
    world.quiet()
    for fake in world.ranks.values():
        heard = {request["command"]: request["arguments"] for request in fake.debuggee.heard}
        assert heard["setBreakpoints"]["lines"] == [4]
        assert heard["setExceptionBreakpoints"]["filters"] == ["raised"]


def test_a_pinned_rank_is_waited_for() -> None:
    world = debugging(3)
    world.debugged("spmdFocus", rank=2)
    world.execute("f()")
    for rank in (2, 0, 1):
        world.begin(world.ranks[rank])
    world.stop(world.ranks[0])
    world.stop(world.ranks[1])
    world.quiet()
    assert told(world) == []
    world.stop(world.ranks[2])
    world.quiet()
    assert told(world) == [("stopped", 2)]
    world.debugged("continue", threadId=1)
    world.stop(world.ranks[0])
    world.quiet()
    assert told(world)[1:] == [("continued", 2)]
    world.fire(("dap", "jupyter"))
    assert told(world)[2:] == [("stopped", 0)]  # it does not come


def test_who_is_stopped_and_where() -> None:
    world = debugging(4)
    assert {entry["state"] for entry in body(world, "spmdRanks")["ranks"]} == {"running"}
    cell_stopped(world, 1)
    world.stop(world.ranks[2], "exception")
    world.ranks[2].debuggee.silent.add("stackTrace")
    world.die(world.ranks[3])
    world.quiet()
    world.debugged("spmdFocus", rank=1)
    heard = len(commands(world, 0))
    assert body(world, "spmdRanks") == json.loads((GOLDEN / "debug" / "ranks.json").read_text())
    assert len(commands(world, 0)) == heard  # what runs is asked nothing


def test_a_stop_that_is_older_than_the_continued_before_it() -> None:
    world = debugging(2)
    world.execute("x")
    fake = world.ranks[0]
    world.begin(fake)
    world.say(fake, "iopub", "debug_event", {"event": "continued", "seq": 9, "body": {}}, None)
    stop = {"reason": "step", "threadId": 1}
    world.say(fake, "iopub", "debug_event", {"event": "stopped", "seq": 8, "body": stop}, None)
    assert told(world) == []


# ---------------------------------------------------------------- the end of a cell


def repairs(world: World) -> list[tuple[int, ...]]:
    return [
        effect.ranks
        for effect in world.effects
        if isinstance(effect, ToRank) and b"_spmd_repair" in effect.message.content
    ]


def test_stop_while_stopped_is_mended_before_the_next_cell() -> None:
    world = debugging(2)
    cell = cell_stopped(world)
    world.ask("interrupt_request", {}, channel="control")
    next_cell = world.execute("y")
    for fake in world.ranks.values():
        world.quiet()
        world.answer_shell(fake, error=True)
        assert b"_spmd_repair" in fake.inbox[-1].content or fake.rank == 1
    world.settle()
    assert cell.reply["status"] == "error" and next_cell.finished
    assert sorted(repairs(world)) == [(0,), (1,)]
    assert told(world) == [("stopped", 0), ("continued", 0)]


def test_a_step_off_the_end_is_disarmed_and_its_stop_passed_on() -> None:
    world = debugging(2)
    cell = cell_stopped(world)
    world.debugged("next", threadId=1)
    world.quiet()
    for fake in world.ranks.values():
        world.answer_shell(fake)
    assert sorted(repairs(world)) == [(0,), (1,)]
    for fake in world.ranks.values():
        while b"_spmd_repair" not in fake.inbox[0].content:
            world.answer_shell(fake)
        world.stop(fake, "step")
        world.quiet()
        assert not fake.debuggee.stopped
    world.settle()
    assert cell.reply["status"] == "ok"
    assert told(world) == [("stopped", 0), ("continued", 0)]


def test_an_interrupt_that_hits_a_debugger_at_work() -> None:
    world = debugging(2)
    world.execute("x")
    fake = world.ranks[1]
    world.begin(fake)
    hit = "<class 'KeyboardInterrupt'> raised from within the callback set in sys.settrace.\n"
    fake.debuggee.event("output", category="console", output=hit)
    world.quiet()
    assert repairs(world) == []
    world.settle()
    assert repairs(world) == [(1,)]
    assert [e["event"] for e in world.debug_events] == ["initialized"]  # it is not true any more


# ---------------------------------------------------------------- silence and death


def test_a_handler_that_fails_gives_no_reply_and_costs_no_time() -> None:
    world = debugging(2)
    world.ranks[1].debuggee.silent.add("threads")
    at = world.at
    threads = body(world, "threads")["threads"]
    assert [t["name"] for t in threads] == [
        "rank 0 · MainThread (running)",
        "rank 1 · MainThread (not answering)",
    ]
    assert world.at - at < 1
    world.ranks[1].debuggee.silent.clear()
    assert "not answering" not in body(world, "threads")["threads"][1]["name"]


def test_a_rank_that_does_not_answer_is_asked_no_more_until_it_does() -> None:
    world = debugging(2)
    sent = world.debug("modules")
    assert not sent.finished
    world.pass_time_until(lambda: sent.finished)
    assert sent.reply["message"] == "rank 0: no answer within 5.0 s"
    kept, world.ranks[0].control = world.ranks[0].control, type(world.ranks[0].control)()
    assert fails(world, "modules") == "rank 0: it is not answering"
    assert not world.ranks[0].control
    world.ranks[0].control = kept
    world.quiet()  # late, but there
    assert world.debugged("modules")["success"]


def test_a_stopped_rank_dies() -> None:
    world = debugging(3)
    cell = cell_stopped(world)
    world.die(world.ranks[0])
    said = [e for e in world.debug_events if e["event"] == "output"]
    assert "rank 0 died" in said[0]["body"]["output"]
    world.fire(("dap", "jupyter"))
    assert told(world) == [("stopped", 0), ("continued", 0), ("stopped", 1)]
    interrupted = [fake.rank for fake in world.ranks.values() if fake.interrupted]
    assert interrupted == []  # the user looks at them
    world.settle()
    assert cell.reply["ename"] == "RankLost"


def test_a_rank_dies_while_it_is_asked() -> None:
    world = debugging(2)
    sent = world.debug("debugInfo")
    world.die(world.ranks[1])
    world.quiet()
    assert sent.reply["success"]
    assert next(r["state"] for r in sent.reply["body"]["spmd"]["ranks"]) == "running"


def test_shutdown_answers_what_waits() -> None:
    world = debugging(2)
    waiting = [world.debug("threads") for _ in range(3)]
    world.ask("shutdown_request", {"restart": False}, channel="control")
    for sent in waiting:
        assert "shuts down" in sent.reply["message"] and sent.states == ["busy", "idle"]
    assert "shuts down" in world.debug("threads").reply["message"]


# ---------------------------------------------------------------- values


def test_all_ranks_scope() -> None:
    world = debugging(3)
    for rank, fake in world.ranks.items():
        fake.debuggee.locals = {"a": str(min(rank, 1)), "d": "{}"}
    world.ranks[2].debuggee.frames = [(11, "g", 9), (12, "f", 4), (13, "<module>", 7)]
    cell_stopped(world, 0, 1, 2)
    frame = body(world, "stackTrace", threadId=1)["stackFrames"][0]
    assert frame["name"] == "f [rank 0]"
    scopes = body(world, "scopes", frameId=frame["id"])["scopes"]
    assert [s["name"] for s in scopes] == ["Locals", "Globals", "All ranks"]
    rows = body(world, "variables", variablesReference=scopes[2]["variablesReference"])["variables"]
    assert [(row["name"], row["value"]) for row in rows] == [
        ("(where)", "f:4"),
        ("a ≠", "0: 0 | 1-2: 1"),
        ("d", "{}"),
    ]
    assert ["type" in row for row in rows] == [False, False, True]  # see `all_ranks._type`
    groups = body(world, "variables", variablesReference=rows[1]["variablesReference"])
    assert [row["name"] for row in groups["variables"]] == ["rank 0", "ranks 1-2"]
    inner = body(world, "variables", variablesReference=rows[2]["variablesReference"])
    assert [row["name"] for row in inner["variables"]] == ["a", "d"]
    assert body(world, "evaluate", expression="%all x", frameId=frame["id"])["result"] == (
        "0: x@0 | 1: x@1 | 2: x@2"
    )
    assert body(world, "evaluate", expression="x", frameId=frame["id"])["result"] == "x@0"
    world.debugged("continue", threadId=1)
    world.quiet()
    assert world.debugged("scopes", frameId=frame["id"])["body"] == {"scopes": []}  # for JupyterLab
    for row in (scopes[0], scopes[2], rows[1]):
        number = row["variablesReference"]
        assert fails(world, "variables", variablesReference=number).startswith("stale variable")


def test_inspect_variables_is_asked_once_for_all_that_wait() -> None:
    world = debugging(2)
    first = world.debug("inspectVariables")
    waiting = [world.debug("inspectVariables") for _ in range(5)]
    world.quiet()
    assert commands(world, 0).count("inspectVariables") == 2
    for sent in (first, *waiting):
        assert [v["name"] for v in sent.reply["body"]["variables"]] == ["a"]
        assert sent.reply["request_seq"] == 5


def test_one_rank_is_an_ordinary_debugger() -> None:
    world = debugging(1)
    cell_stopped(world)
    frames = body(world, "stackTrace", threadId=1)["stackFrames"]
    assert [f["name"] for f in frames] == ["f", "<module>"]
    scopes = body(world, "scopes", frameId=frames[0]["id"])["scopes"]
    assert [s["name"] for s in scopes] == ["Locals", "Globals"]
    assert [t["name"] for t in body(world, "threads")["threads"]] == ["MainThread"]
    assert "spmd" not in body(world, "debugInfo")
    world.ranks[0].debuggee.fails.add("evaluate")
    assert fails(world, "evaluate", expression="x") == "evaluate: no"
    world.ranks[0].debuggee.event("output", category="stdout", output="said\n")
    world.quiet()
    assert world.debug_events[-1]["body"]["output"] == "said\n"


def test_a_single_step_that_does_not_come_back_is_told_of() -> None:
    world = debugging(2)
    cell_stopped(world)
    world.debugged("next", threadId=thread_id(1, 1), singleThread=True)
    world.quiet()
    world.fire(("dap-step", 1))
    world.quiet()
    said = [e["body"]["output"] for e in world.debug_events if e["event"] == "output"]
    assert said[0].startswith("rank 1 has not come back from its step; it is in\n    f, line 4")
    world.settle()


def test_responses_are_rebuilt() -> None:
    world = debugging(2)
    sent = world.debug("configurationDone")
    assert json.loads(sent.replies[0].content) | {"seq": 0} == {
        "seq": 0,
        "type": "response",
        "request_seq": 5,
        "success": True,
        "command": "configurationDone",
    }
    assert sent.replies[0].msg_type == "debug_reply"
    numbers = [e["seq"] for e in world.debug_events]
    assert numbers == sorted(set(numbers))


def test_a_rank_that_is_about_to_be_interrupted_is_not_told_to_go_on() -> None:
    world = debugging(2)
    cell_stopped(world)
    world.ask("interrupt_request", {}, channel="control")
    sent = world.debug("continue", threadId=1)
    assert not sent.finished  # it does not show yet whether they go on by themselves
    world.quiet()
    assert sent.reply["success"] and not any("continue" in commands(world, r) for r in (0, 1))
    world.settle()
    cell_stopped(world)
    world.debugged("next", threadId=1)  # right after: that interrupt is over
    assert all("next" in commands(world, rank) for rank in (0, 1))
    world.settle()


def test_a_rank_that_an_interrupt_did_not_move_goes_on_with_the_next_continue() -> None:
    """Its cell catches KeyboardInterrupt, and comes to a breakpoint after that."""
    world = debugging(1)
    cell = world.execute("x")
    world.begin(world.ranks[0])
    world.ask("interrupt_request", {}, channel="control")
    world.stop(world.ranks[0])
    world.quiet()
    assert world.debugged("continue", threadId=1)["success"]
    assert commands(world, 0).count("continue") == 1
    world.settle()
    assert cell.finished


def test_stop_is_no_exception_to_look_at() -> None:
    """Filters of exceptions would stop a rank at the KeyboardInterrupt of the user's Stop."""
    world = debugging(2)
    cell = world.execute("x")
    fake = world.ranks[1]
    world.begin(fake)
    world.ask("interrupt_request", {}, channel="control")
    fake.debuggee.stopped = True
    text = "KeyboardInterrupt   (note: …)"
    fake.debuggee.event("stopped", reason="exception", threadId=1, text=text)
    world.quiet()
    assert told(world) == [] and not fake.debuggee.stopped
    world.settle()
    assert cell.finished


def test_an_interrupt_that_ends_a_stop_releases_the_rank() -> None:
    world = debugging(2)
    cell_stopped(world, 1)
    world.ask("interrupt_request", {}, channel="control")
    world.quiet()
    asked = world.ranks[1].debuggee.heard[-1]
    assert asked["command"] == "evaluate" and "pydev_state" in asked["arguments"]["expression"]
    world.settle()


def test_disconnect_reaches_a_rank_that_does_not_answer() -> None:
    """Nobody could let it go on any more."""
    world = debugging(2)
    cell_stopped(world)
    sent = world.debug("stackTrace", threadId=1)
    world.pass_time_until(lambda: sent.finished)
    world.debug("disconnect")
    world.settle()
    assert all("disconnect" in commands(world, rank) for rank in (0, 1))
    assert not any(fake.debuggee.stopped for fake in world.ranks.values())


# ---------------------------------------------------------------- cells with magics of ours


def test_a_cell_with_a_magic_is_the_file_that_ranks_run() -> None:
    world = debugging()
    code, ran = "%%rank 0\nx", "# %%rank 0\nx"
    path = body(world, "dumpCell", code=code)["sourcePath"]
    assert path == f"{CELLS}{len(code)}.py"
    body(world, "setBreakpoints", source={"path": path}, breakpoints=[{"line": 2}])
    fake = world.ranks[0].debuggee
    own = f"{fake.prefix}{len(ran)}.py"
    assert fake.lines == {own: [{"line": 2}]}
    sources = world.hub.debugger.sources
    assert sources.canonical(0, own) == path and sources.own(0, path) == own
    # The same text as a cell of its own is the same file in ranks: it has the breakpoints of both.
    other = body(world, "dumpCell", code=ran)["sourcePath"]
    points = body(world, "setBreakpoints", source={"path": other}, breakpoints=[{"line": 1}])
    assert [point["line"] for point in points["breakpoints"]] == [1]
    assert fake.lines == {own: [{"line": 2}, {"line": 1}]}
    assert sources.canonical(0, own) == other
    body(world, "setBreakpoints", source={"path": path}, breakpoints=[])
    assert fake.lines == {own: [{"line": 1}]}
    assert world.debugged("disconnect")["success"]
    assert sources.canonical(0, own) == other == sources.placed(0, own)
    assert sources.own(0, path) != own
