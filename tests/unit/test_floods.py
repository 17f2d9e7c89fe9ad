"""Cells of a whole hub that print too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spmd_kernel.core.model import AppendText, DropText, TextFailed
from spmd_kernel.core.outputs import fold

from ..world import Sent, World, start

LINES = "".join(f"line {number:05}\n" for number in range(3000))


def flood(world: World, sent: Sent, times: int = 1) -> None:
    """Every rank says `LINES`, in pieces."""
    for _ in range(times):
        for begin in range(0, len(LINES), 3000):
            for fake in list(world.ranks.values()):
                content = {"name": "stdout", "text": LINES[begin : begin + 3000]}
                world.say(fake, "iopub", "stream", content, sent.message)


def filed(world: World) -> dict[str, str]:
    files: dict[str, str] = {}
    for effect in world.effects:
        if isinstance(effect, AppendText):
            files[effect.path] = files.get(effect.path, "") + effect.text.decode()
        elif isinstance(effect, DropText):
            files.pop(effect.path)
    return files


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("mode", ["live", "grouped"])
def test_beyond_the_limit_the_text_is_in_a_file_that_the_output_names(size: int, mode: str) -> None:
    world = start(size, stream_limit=10_000, spill_folder="/cache", output=mode)
    sent = world.execute("print(...)")
    flood(world, sent)
    world.settle()
    ((path, text),) = filed(world).items()
    assert path.startswith("/cache/output-own-") and text == LINES
    assert path in sent.text
    assert sent.text.startswith(LINES[:9000]) and sent.text.endswith(LINES[-1000:])
    assert len(sent.text) < 12_000
    assert sent.kinds[-1] == "status" and sent.reply["status"] == "ok"
    # The next cell has a limit, and a file, of its own.
    again = world.execute("print(...)")
    flood(world, again)
    world.settle()
    assert len(filed(world)) == 2


def test_a_cell_below_the_limit_leaves_no_file() -> None:
    world = start(2, stream_limit=80_000, spill_folder="/cache")
    sent = world.execute("print(...)")
    flood(world, sent)
    assert filed(world)  # in case there comes more
    world.settle()
    assert not filed(world)
    assert sent.text == LINES


def test_without_a_limit_all_is_shown() -> None:
    world = start(2, stream_limit=0)
    sent = world.execute("print(...)")
    flood(world, sent, 5)
    world.settle()
    assert sent.text == LINES * 5 and not filed(world)


def test_a_file_that_cannot_be_written_is_told_of() -> None:
    world = start(1, stream_limit=10_000, spill_folder="/cache")
    sent = world.execute("print(...)")
    flood(world, sent)
    (path,) = filed(world)
    world.feed(TextFailed(world.tick(), path, "No space left on device"))
    world.settle()
    assert "no longer kept: No space left on device" in sent.text
    assert sent.text.endswith(LINES[-1000:])


def test_a_rank_that_is_far_ahead_is_not_heard_until_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fold, "MUCH", 50_000)
    monkeypatch.setattr(fold, "SLICE", 50)
    world = start(2)
    sent = world.execute("print(...)")
    content = {"name": "stdout", "text": LINES}
    world.say(world.ranks[1], "iopub", "stream", content, sent.message)
    assert world.unheard == {1}
    world.pass_time_until(lambda: not world.unheard)
    world.settle()
    assert not world.unheard
    assert sent.text == "".join(f"1 │ {line}\n" for line in LINES.splitlines())


def test_a_cell_that_ends_with_much_to_show_lets_others_be_served_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fold, "LAST", 20)
    world = start(2)
    sent = world.execute("print(...)")
    for fake in world.ranks.values():
        own = "".join(f"{number}\n{fake.rank} {number}\n" for number in range(200))
        world.say(fake, "iopub", "stream", {"name": "stdout", "text": own}, sent.message)
    for fake in world.ranks.values():
        world.answer_shell(fake)
    assert not sent.finished
    status = world.control("status")
    assert status.replies and not sent.finished
    world.settle()
    assert sent.finished
    assert sent.text.count("0 │ ") == sent.text.count("1 │ ") == 200
    assert sum(line.isdigit() for line in sent.text.splitlines()) == 200


def test_stop_shows_all_that_came_and_does_not_search_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "SLICE", 10)
    world = start(2)
    sent = world.execute("while True: print(...)")
    for fake in world.ranks.values():
        own = "".join(f"{number}\n{fake.rank} {number}\n" for number in range(200))
        world.say(fake, "iopub", "stream", {"name": "stdout", "text": own}, sent.message)
    world.ask("interrupt_request", {}, channel="control")
    world.settle()
    labelled = [line for line in sent.text.splitlines() if line.startswith(("0 │ ", "1 │ "))]
    for rank in range(2):
        own = [line.partition(" │ ")[2] for line in labelled if line.startswith(str(rank))]
        shared = [line for line in sent.text.splitlines() if " │ " not in line]
        assert len(own) + len(shared) >= 400


@pytest.mark.parametrize("size", [1, 2])
def test_what_output_widgets_take_counts_as_text_of_the_cell(size: int) -> None:
    world = start(size, stream_limit=10_000, spill_folder="/cache")
    sent = world.execute("with out: print(...)")
    for fake in world.ranks.values():
        state = {"_model_name": "OutputModel", "msg_id": ""}
        opened = {"comm_id": f"o{fake.rank}", "target_name": "t", "data": {"state": state}}
        world.say(fake, "iopub", "comm_open", opened, fake.inbox[0])
        data = {"method": "update", "state": {"msg_id": fake.inbox[0].msg_id}}
        switched = {"comm_id": f"o{fake.rank}", "data": data}
        world.say(fake, "iopub", "comm_msg", switched, fake.inbox[0])
    flood(world, sent)
    world.settle()
    ((path, text),) = filed(world).items()
    assert len(text) == size * len(LINES)
    assert f"from here on it goes to {path}" in sent.text and f"all in {path}" in sent.text
    assert len(sent.text) < 14_000 and sent.text.endswith(LINES[-500:])
    assert sent.reply["status"] == "ok"


def test_callbacks_of_widgets_cost_a_cell_that_runs_no_limit() -> None:
    world = start(1, stream_limit=10_000, spill_folder="/cache")
    sent = world.execute("print(...)")
    (fake,) = world.ranks.values()
    for number in range(40):
        parent = replace(sent.message, header={"msg_id": f"m{number}", "msg_type": "comm_msg"})
        world.say(fake, "iopub", "stream", {"name": "stdout", "text": "x\n"}, parent)
        content = {"name": "stdout", "text": LINES[:1000]}
        world.say(fake, "iopub", "stream", content, sent.message)
    world.settle()
    assert len(sent.text) < 14_000
