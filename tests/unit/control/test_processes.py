from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.control import COMMANDS
from spmd_kernel.core.control.speech import quoted
from spmd_kernel.core.magics.arguments import words
from spmd_kernel.core.magics.processes import PROCESSES
from spmd_kernel.core.model import Facts

from ...world import World, start
from .asking import checked, now, refused


def test_it_answers_with_the_text_of_the_magic_when_the_ranks_are_ready() -> None:
    world = start(1)
    sent = world.control("processes", size=3)
    world.survey()
    world.die(world.ranks[0])
    world.survey()
    assert not sent.replies and sent.states == ["busy"]
    world.settle()
    data = checked("processes", sent)
    assert data["size"] == 3 == world.hub.group.size
    assert data["text"].startswith("3 ranks ready in ")
    other = start(1)
    assert data["text"] == other.run("%processes 3").text


def test_nothing_is_published_in_a_cell() -> None:
    world = start(1)
    cell = world.run("x")
    before = list(cell.effects)
    sent = world.control("processes", size=2)
    world.settle()
    assert cell.effects == before
    assert sent.kinds == ["status", "spmd_reply", "status"]


def test_cells_wait_for_it_and_keep_their_count() -> None:
    world = start(1)
    world.run("x")
    sent = world.control("processes", size=2)
    cell = world.execute("y")
    assert not cell.effects
    assert now(world, "status")["state"] == "busy"
    world.settle()
    assert sent.replies and cell.reply["execution_count"] == 2
    assert world.ranks.keys() == {0, 1}


def test_while_a_cell_runs_it_is_refused() -> None:
    world = start(1)
    world.execute("work()")
    _, what, hint = refused(world.control("processes", size=2))
    assert what == "cell [1] is running" and "wait: true" in hint
    world.settle()
    assert world.ranks.keys() == {0}


def test_while_ranks_are_being_started_it_is_refused() -> None:
    world = start(1)
    first = world.control("processes", size=2)
    _, what, _ = refused(world.control("processes", size=3))
    assert what == "ranks are being started"
    world.settle()
    assert checked("processes", first)["size"] == 2


def test_it_can_wait_for_the_cells_before_it() -> None:
    world = start(1)
    cells = [world.execute("a"), world.execute("b")]
    sent = world.control("processes", size=2, wait=True)
    last = world.execute("c")
    assert sent.kinds == ["status"]
    world.answer_shell(world.ranks[0])
    world.answer_shell(world.ranks[0])
    assert all(cell.finished for cell in cells) and not sent.replies and not last.effects
    world.settle()
    assert checked("processes", sent)["size"] == 2
    assert last.reply["status"] == "ok"


def test_a_cell_that_fails_aborts_cells_but_not_what_a_toolbar_wants() -> None:
    world = start(1)
    world.execute("fails", stop_on_error=True)
    behind = world.execute("b")
    sent = world.control("processes", size=2, wait=True)
    world.answer_shell(world.ranks[0], error=True)
    assert behind.reply["status"] == "aborted"
    world.settle()
    assert checked("processes", sent)["size"] == 2


def test_while_the_first_ranks_start_it_waits_as_a_cell_does() -> None:
    world = World(1)
    sent = world.control("processes", size=2)
    assert not sent.effects
    world.settle()
    assert checked("processes", sent)["size"] == 2


def test_every_option_of_the_magic_has_its_argument() -> None:
    names = {option.name.strip("-").replace("-", "_") for option in PROCESSES.options}
    assert names <= set(COMMANDS["processes"].arguments)
    world = start(2)
    arguments = {
        "size": 2,
        "fresh": True,
        "env": {"A_B": "it's {x} $y", "C": ""},
        "on_error": "stop",
        "output": "grouped",
        "show": "0",
    }
    sent = world.control("processes", **arguments)
    world.settle()
    text = checked("processes", sent)["text"]
    assert "2 ranks ready" in text and "only outputs of rank 0" in text
    assert world.launches[-1].request.ranks[0].env["A_B"] == "it's {x} $y"
    assert world.launches[-1].request.ranks[0].env["C"] == ""
    settings = now(world, "status")["settings"]
    assert (settings["output"], settings["show"], settings["on_error"]) == ("grouped", [0], "stop")


def test_stop_breaks_it_off() -> None:
    world = start(1)
    sent = world.control("processes", size=2)
    world.survey()
    world.die(world.ranks[0])
    world.survey()
    world.ask("interrupt_request", {}, channel="control")
    world.settle()
    name, _, _ = refused(sent)
    assert name == "KeyboardInterrupt"
    assert world.run("x").reply["status"] == "error", "no rank lives"
    sent = world.control("processes", size=1)
    world.settle()
    assert checked("processes", sent)["size"] == 1
    assert world.run("x").reply["status"] == "ok"


def test_a_shutdown_ends_it() -> None:
    for steps in range(4):
        world = start(1)
        running = world.control("processes", size=2)
        waiting = world.control("processes", size=3, wait=True)
        for _ in range(steps):
            world.step()
        world.ask("shutdown_request", {"restart": False}, channel="control")
        late = world.control("processes", size=2)
        world.settle()
        assert world.exits == [0] and not world.ranks
        for sent in (running, waiting, late):
            assert "shuts down" in refused(sent)[1]


def test_too_little_memory_is_said() -> None:
    world = start(1)
    world.facts = Facts(memory_available=50 << 20)
    sent = world.control("processes", size=8)
    world.settle()
    assert "not enough memory" in refused(sent)[1]
    assert world.ranks.keys() == {0}


@given(st.lists(st.text(max_size=6), max_size=3))
def test_words_mean_what_they_are(given_words: list[str]) -> None:
    assert ["".join(w) for w in words(" ".join(map(quoted, given_words)))] == given_words  # type: ignore[arg-type]
