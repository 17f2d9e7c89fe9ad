"""The debug port of the whole hub: who is served, what each client is told, what leaving leaves."""

from __future__ import annotations

import json

import pytest

from spmd_kernel.core.dap.frames import framed
from spmd_kernel.core.dap.ids import thread_id
from spmd_kernel.core.dap.recent import RecentCells
from spmd_kernel.core.dap.tcp import MOST_OF_STRANGERS, MOST_STRANGERS
from spmd_kernel.core.model import ClosePort, KeepSource

from ...editors import FakeEditor
from ...world import World, start

CELLS = "/tmp/cells/"
CODE = "x = 1\ny = 2\n"
NONSENSE = [
    b"GET / HTTP/1.1\r\n",
    b"Content-Length: 2\r\n\r\n[]",
    b"Content-Length: 1\r\n\r\n{",
    framed({"seq": 1, "type": "request", "command": 5}),
    framed({"seq": "1", "type": "request", "command": "initialize"}),
    framed({"seq": 1, "type": 7}),
    framed({"seq": 1}),
    b"Content-Length: %d\r\n\r\n" % (MOST_OF_STRANGERS + 1),
]


def opened(size: int = 2) -> World:
    world = start(size, cells=CELLS)
    cell = world.run("%debugport")
    assert world.token in cell.text and str(world.port) in cell.text
    return world


def path_of(code: str) -> str:
    cells = RecentCells(CELLS)
    cells.ran(code, None)
    return str(cells.path(code))


def heard(world: World) -> list[str]:
    return [r["command"] for fake in world.ranks.values() for r in fake.debuggee.heard]


def kept(world: World) -> list[str]:
    return [effect.path for effect in world.effects if isinstance(effect, KeepSource)]


def break_in_cell(world: World, editor: FakeEditor, line: int = 2) -> None:
    source = {"path": path_of(CODE)}
    response = world.edit(editor, "setBreakpoints", source=source, breakpoints=[{"line": line}])
    assert response["success"], response


# ---------------------------------------------------------------- the port


def test_it_is_shown_once() -> None:
    world = opened()
    token, port = world.token, world.port
    text = world.run("%debugport").text
    assert token not in text and f":{port} is open · nobody is attached" in text
    world.attach()
    world.run(CODE)
    text = world.run("%debugport").text
    assert "a client is attached" in text and f"cell [3]  {path_of(CODE)}" in text
    assert kept(world)[-1] == path_of(CODE)
    assert "is disconnected" in world.run("%debugport off").text
    assert world.port is None
    assert "not open" in world.run("%debugport off").text
    text = world.run("%debugport").text
    assert text.count(world.token) == 2 and world.token != token  # for two editors


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--port 80", "no port"),
        ("--port x", "no port"),
        ("--port 99999999999", "no port"),
        ("on", "does not know 'on'"),
        ("off --port 4000", "without --port"),
        ("--prot 4000", "did you mean --port?"),
    ],
)
def test_what_is_not_understood(line: str, words: str) -> None:
    world = start(2)
    (error,) = world.run(f"%debugport {line}").errors
    assert words in "\n".join(error["traceback"]) and "hint:" in error["traceback"][-1]
    assert not world.wanted_ports


def test_a_port_that_cannot_be_had() -> None:
    world = start(1)
    cell = world.execute("%debugport --port 4321")
    world.port_opened("port 4321: Address already in use")
    assert "port 4321: Address already in use" in cell.errors[0]["evalue"]
    world.run("%debugport")
    assert world.port == 4000


def test_stop_while_it_opens_leaves_it_closed() -> None:
    """Nobody would know its token."""
    world = start(1)
    cell = world.execute("%debugport")
    world.ask("interrupt_request", {}, channel="control")
    assert cell.errors[0]["ename"] == "KeyboardInterrupt"
    world.port_opened()
    assert world.port is None
    world.run("%debugport")
    assert world.attach().attached


def test_other_languages_have_no_port() -> None:
    world = start(1, language="bash")
    assert "bash" in world.run("%debugport").errors[0]["evalue"]


# ---------------------------------------------------------------- who is served


def test_nothing_happens_to_a_rank_before_the_token() -> None:
    world = opened()
    editor = world.connect()
    assert world.edit(editor, "initialize")["body"]["supportsLoadedSourcesRequest"]
    response = world.edit(editor, "attach", token=world.token + "x")
    assert not response["success"] and "token" in response["message"]
    assert editor.hung_up and heard(world) == []
    for token in ("", None, 5, [world.token]):
        editor = world.connect()
        assert not world.edit(editor, "attach", token=token)["success"] and editor.hung_up
    assert heard(world) == [] and not editor.attached


def test_what_is_asked_before_attach_ends_it() -> None:
    world = opened()
    editor = world.connect()
    requests = editor.request("evaluate", expression="x") + editor.request("attach")
    world.tell(editor, requests)
    (response,) = editor.responses  # what came with it is not served any more
    assert "before attach" in response["message"] and editor.hung_up
    assert heard(world) == []


@pytest.mark.parametrize("data", NONSENSE)
def test_nonsense_ends_it(data: bytes) -> None:
    world = opened()
    editor = world.connect()
    world.tell(editor, data)
    assert editor.hung_up and not editor.told
    assert [log.level for log in world.logs] == ["warning"]
    trusted = world.attach()
    if data != NONSENSE[-1]:  # who is known may say more at once
        world.tell(trusted, data)
        assert trusted.hung_up
    world.settle()
    assert world.debugged("debugInfo")["body"]["isStarted"] is False


def test_who_says_nothing_is_not_kept() -> None:
    world = opened()
    editor = world.connect()
    world.edit(editor, "initialize")
    world.pass_time_until(lambda: editor.hung_up)
    assert any("in time" in log.text for log in world.logs)


def test_strangers_are_few() -> None:
    world = opened()
    editors = [world.connect() for _ in range(MOST_STRANGERS + 1)]
    assert [editor.hung_up for editor in editors] == [False] * MOST_STRANGERS + [True]
    world.edit(editors[0], "attach", token=world.token)
    assert not world.connect().hung_up


def test_one_at_a_time() -> None:
    world = opened()
    one, early, late = world.connect(), world.connect(), world.connect()
    world.edit(early, "initialize")
    world.edit(one, "attach", token=world.token)
    for editor, command in ((early, "attach"), (late, "initialize")):
        response = world.edit(editor, command, token=world.token)
        assert "another client" in response["message"] and editor.hung_up
    assert world.edit(one, "threads")["success"]
    assert world.edit(one, "attach", token=world.token)["message"] == "it is attached already"
    assert not one.hung_up
    assert world.edit(one, "disconnect")["success"] and one.hung_up
    assert world.attach().attached


@pytest.mark.parametrize(
    "odd", [{"linesStartAt1": False}, {"columnsStartAt1": False}, {"pathFormat": "uri"}]
)
def test_who_counts_otherwise_is_told(odd: dict[str, object]) -> None:
    world = opened()
    editor = world.connect()
    assert not world.edit(editor, "initialize", **odd)["success"] and editor.hung_up


def test_attach_while_a_cell_runs() -> None:
    world = opened()
    world.execute("x")
    editor = world.connect()
    world.edit(editor, "initialize")
    assert "is running" in world.edit(editor, "attach", token=world.token)["message"]
    assert editor.hung_up and heard(world) == []
    world.settle()
    assert world.attach().attached


# ---------------------------------------------------------------- what it is told


def test_every_rank_stops_and_goes_on() -> None:
    world = opened()
    world.run(CODE)
    editor = world.attach()
    assert [
        source["name"] for source in world.edit(editor, "loadedSources")["body"]["sources"]
    ] == ["cell [2]"]
    source = {"path": path_of(CODE)}
    assert world.edit(editor, "source", source=source)["body"] == {"content": CODE}
    break_in_cell(world, editor)
    for fake in world.ranks.values():
        assert [r["command"] for r in fake.debuggee.heard][-2:] == ["dumpCell", "setBreakpoints"]
    world.execute(CODE)
    world.quiet()
    for fake in world.ranks.values():
        world.stop(fake)
    world.quiet()
    stops = editor.of("stopped")
    assert [stop["threadId"] for stop in stops] == [thread_id(0, 1), thread_id(1, 1)]
    assert [stop["allThreadsStopped"] for stop in stops] == [False, True]
    assert [stop["preserveFocusHint"] for stop in stops] == [False, True]
    assert world.edit(editor, "continue", threadId=thread_id(1, 1))["body"]["allThreadsContinued"]
    world.settle()
    assert len(editor.of("continued")) == 2
    assert editor.of("loadedSource")[-1]["source"]["path"] == path_of(CODE)


def test_one_that_comes_while_ranks_are_stopped_hears_of_it() -> None:
    world = opened()
    assert world.debugged("initialize")["success"] and world.debugged("attach")["success"]
    world.execute(CODE)
    world.stop(world.ranks[1])
    world.quiet()
    editor = world.attach()
    assert [stop["threadId"] for stop in editor.of("stopped")] == [thread_id(1, 1)]


# ---------------------------------------------------------------- leaving


def test_leaving_takes_its_own_breakpoints_along() -> None:
    world = opened()
    world.run(CODE)
    editor = world.attach()
    break_in_cell(world, editor, 2)
    world.debugged("initialize"), world.debugged("attach")
    source = {"path": path_of(CODE)}
    world.debugged("setBreakpoints", source=source, breakpoints=[{"line": 1}])
    world.leave(editor)
    world.settle()
    for fake in world.ranks.values():
        last = [r for r in fake.debuggee.heard if r["command"] == "setBreakpoints"][-1]
        assert [point["line"] for point in last["arguments"]["breakpoints"]] == [1]
        assert "disconnect" not in [r["command"] for r in fake.debuggee.heard]
    assert world.debugged("debugInfo")["body"]["isStarted"]


@pytest.mark.parametrize("explicit", [True, False])
def test_the_last_one_ends_it(explicit: bool) -> None:
    world = opened()
    editor = world.attach()
    if explicit:
        world.edit(editor, "disconnect")
        assert editor.events[-1]["event"] == "terminated"
    else:
        world.leave(editor)
        world.quiet()
    world.settle()
    for fake in world.ranks.values():
        assert [r["command"] for r in fake.debuggee.heard].count("disconnect") == 1
    assert [session.name for session in world.hub.debugger.sessions] == ["jupyter"]


def test_the_next_one_waits_for_the_one_before() -> None:
    """Else the ranks would be disconnected under it."""
    world = opened()
    world.leave(world.attach())  # the ranks have not answered its disconnect
    editor = world.attach()
    assert editor.attached and not editor.of("terminated")
    assert world.edit(editor, "threads")["success"]


def test_one_that_vanishes_in_the_middle_of_attach() -> None:
    world = opened()
    editor = world.connect()
    world.tell(editor, editor.request("attach", token=world.token) + editor.request("threads"))
    assert "debugInfo" in [
        json.loads(m.content)["command"] for f in world.ranks.values() for m in f.control
    ]
    world.leave(editor)
    world.settle()
    for fake in world.ranks.values():
        commands = [r["command"] for r in fake.debuggee.heard]
        assert commands.index("initialize") < commands.index("disconnect")
        assert "threads" not in commands
    assert world.run("x").finished
    assert world.attach().attached


def test_the_end_of_the_kernel() -> None:
    world = opened()
    editor, stranger = world.attach(), world.connect()
    world.execute(CODE)
    world.stop(world.ranks[0])
    world.quiet()
    world.tell(editor, editor.request("evaluate", expression="x"))
    world.ask("shutdown_request", {"restart": False}, channel="control")
    world.settle()
    assert editor.events[-1]["event"] == "terminated"
    assert editor.hung_up and stranger.hung_up and world.port is None
    assert ClosePort() in world.effects and world.exits == [0]
    assert not [log for log in world.logs if log.level == "error"]
