"""What ranks said in the last cell, and what of it goes to log files."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from spmd_kernel.core import transcript
from spmd_kernel.core.model import AppendLog, LogFailed, Message, Settings
from spmd_kernel.core.stage import Stage
from spmd_kernel.core.transcript import Transcript

from ..world import World, start


def message(kind: str, **content: Any) -> Message:
    return Message({"msg_type": kind}, {}, {}, json.dumps(content).encode())


def stream(text: str, name: str = "stdout") -> Message:
    return message("stream", name=name, text=text)


def fresh() -> Transcript:
    return Transcript(Stage(Settings(session="s", setup="x")))


def test_it_is_what_the_rank_said_in_its_order() -> None:
    said = fresh()
    said.begin("a")
    said.heard(1, stream("one\n\x1ftwo"))
    said.heard(0, stream("another's\n"))
    said.heard(1, message("display_data", data={"text/plain": "<Figure>", "image/png": "x"}))
    said.heard(1, message("execute_result", data={"text/plain": "42"}))
    said.heard(1, message("error", traceback=["ValueError", "  here"]))
    said.heard(1, message("display_data", data={"image/png": "x" * transcript.RICH}))
    said.heard(1, message("clear_output", wait=True))
    said.heard(1, Message({"msg_type": "stream"}, {}, {}, b"{"))
    assert said.of(1) == "one\ntwo\n<Figure>\n42\nValueError\n  here\n[display_data, 65 kB]\n"
    assert said.of(2) == ""
    said.begin("a")
    assert said.of(0) == "another's\n"
    said.begin("b")
    assert said.of(0) == ""


def test_only_the_end_of_it_is_kept() -> None:
    said = fresh()
    for number in range(30_000):
        said.heard(0, stream(f"{number:0100}\n"))
    text = said.of(0)
    assert text.startswith("… what came before is not kept\n")
    assert text.endswith(f"{29_999:0100}\n")
    assert 0.6 * transcript.KEPT < len(text) <= transcript.KEPT
    said.heard(0, stream("x" * 3 * transcript.LIMIT + "the end"))
    assert said.of(0).endswith("xthe end")
    assert len(said.of(0)) <= 1.1 * transcript.KEPT


def test_a_long_message_is_kept_while_what_follows_it_is_short() -> None:
    said = fresh()
    said.heard(0, stream("x" * 2 * transcript.KEPT))
    said.heard(0, stream("the end"))
    assert said.of(0) == "x" * 2 * transcript.KEPT + "the end"
    said.heard(0, stream("y" * transcript.KEPT))
    assert said.of(0).startswith("… what came before is not kept\ny")


def test_the_log_has_text_and_errors_without_marks() -> None:
    stage = Stage(Settings(session="s", setup="x"))
    said = Transcript(stage)
    said.heard(0, stream("not logged\n"))
    stage.policy = replace(stage.policy, log_dir="d")
    said.heard(2, stream("a\n\x1fb\n", "stderr"))
    said.heard(2, message("execute_result", data={"text/plain": "42"}))
    said.heard(2, message("error", traceback=["E", "here"]))
    assert stage.take() == [AppendLog("d", 2, "a\nb\n"), AppendLog("d", 2, "E\nhere\n")]


def speak(world: World, text: str) -> None:
    """Every rank says it in the cell that it runs, and the cell goes on to its end."""
    for fake in list(world.ranks.values()):
        world.say(fake, "iopub", "stream", {"name": "stdout", "text": text}, fake.inbox[0])
    world.settle()


def test_output_and_log_of_a_whole_kernel() -> None:
    world = start(2)
    world.run("%processes --log-dir d")
    world.execute("cell")
    speak(world, "hello\n")
    assert world.run("%output 1").text == "hello\n"
    assert world.run("%output 1").text == "hello\n"  # it ran on no rank itself
    logs = [effect for effect in world.effects if isinstance(effect, AppendLog)]
    assert logs == [AppendLog("d", 0, "hello\n"), AppendLog("d", 1, "hello\n")]
    assert world.run("%output 0\npass").text == "hello\n"
    assert world.run("%output 0").text == "rank 0 said nothing\n"


def test_a_log_that_fails_is_told_once_and_ends() -> None:
    world = start(2)
    world.run("%processes --log-dir d")
    cell = world.execute("cell")
    world.feed(LogFailed(world.tick(), "d", "No space left on device"))
    speak(world, "hello\n")
    assert cell.text.count("No space left on device") == 1
    assert cell.reply["status"] == "ok"
    assert not [effect for effect in world.effects if isinstance(effect, AppendLog)]


def test_world_size_1_has_a_transcript_too() -> None:
    world = start()
    world.execute("cell")
    speak(world, "hello\n")
    assert world.run("%output 0").text == "hello\n"
