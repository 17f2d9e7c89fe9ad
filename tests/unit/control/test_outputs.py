from __future__ import annotations

import json
from typing import Any

import pytest

from ...world import Sent, World, start
from .asking import checked, now, refused

KINDS = ("stream", "display_data", "update_display_data", "execute_result", "error", "clear_output")


def printing(world: World, cell: Sent, text: str, rank: int = 0) -> None:
    fake = world.ranks[rank]
    content = {"name": "stdout", "text": text}
    world.say(fake, "iopub", "stream", content, cell.message)


def published(sent: Sent) -> list[tuple[str, Any]]:
    return [(e.msg_type, json.loads(e.content)) for e in sent.of(*KINDS)]


def logged(data: Any) -> list[tuple[str, Any]]:
    return [(m["msg_type"], m["content"]) for m in data["messages"]]


def test_exactly_what_was_missed() -> None:
    world = start(1)
    cell = world.execute("work()")
    msg_id = cell.message.msg_id
    for number in range(5):
        printing(world, cell, f"{number}\n")
    first = now(world, "outputs", msg_id=msg_id)
    assert logged(first) == published(cell)
    assert (first["next"], first["state"], first["dropped"]) == (5, "running", 0)
    printing(world, cell, "5\n")
    data = {"data": {"text/plain": "d"}, "metadata": {"a": 1}, "transient": {}}
    world.say(world.ranks[0], "iopub", "display_data", data, cell.message, {"m": 1})
    world.settle()
    rest = now(world, "outputs", msg_id=msg_id, **{"from": first["next"]})
    assert logged(rest) == published(cell)[5:]
    assert [m["seq"] for m in rest["messages"]] == [5, 6]
    assert rest["messages"][1]["metadata"] == {"m": 1}
    assert (rest["next"], rest["state"], rest["more"]) == (7, "done", False)
    assert now(world, "outputs", msg_id=msg_id, **{"from": 7})["messages"] == []


def test_the_merged_outputs_of_several_ranks() -> None:
    world = start(2)
    cell = world.execute("work()")
    printing(world, cell, "both\n", 0)
    printing(world, cell, "both\n", 1)
    printing(world, cell, "one\n", 1)
    world.settle()
    data = now(world, "outputs")
    assert data["msg_id"] == cell.message.msg_id
    assert logged(data) == published(cell)
    assert "".join(m["content"]["text"] for m in data["messages"]) == "both\n1 │ one\n"


def test_what_the_log_has_comes_before_the_answer_on_iopub_and_the_rest_after() -> None:
    """So a client that counts nothing knows which live messages it has got twice."""
    world = start(1)
    cell = world.execute("work()")
    printing(world, cell, "a\n")
    sent = world.control("outputs")
    printing(world, cell, "b\n")
    order = [e for e in world.effects if e in cell.of("stream") or e in sent.effects]
    kinds = [getattr(e, "msg_type", "") for e in order]
    assert kinds == ["stream", "status", "spmd_reply", "status", "stream"]
    assert len(checked("outputs", sent)["messages"]) == 1


def test_late_output_of_a_thread_is_in_the_log_of_its_cell() -> None:
    world = start(1)
    cell = world.run("thread()")
    world.run("y")
    printing(world, cell, "late\n")
    world.settle()
    data = now(world, "outputs", msg_id=cell.message.msg_id)
    assert logged(data) == published(cell) != []
    assert data["state"] == "done"


def test_without_a_name_it_is_the_running_or_the_last_cell_and_all_are_listed() -> None:
    world = start(1)
    assert now(world, "outputs")["state"] == "unknown"
    first = world.run("x")
    second = world.execute("y")
    data = now(world, "outputs")
    assert (data["msg_id"], data["execution_count"]) == (second.message.msg_id, 2)
    assert [c["msg_id"] for c in data["cells"]] == [first.message.msg_id, second.message.msg_id]
    waiting = world.execute("z", cell_id="c3")
    *_, last = now(world, "outputs")["cells"]
    assert (last["msg_id"], last["cell_id"], last["state"]) == (
        waiting.message.msg_id,
        "c3",
        "queued",
    )
    world.settle()
    world.run("silent()", silent=True)
    assert now(world, "outputs")["msg_id"] == waiting.message.msg_id
    assert len(now(world, "outputs")["cells"]) == 3, "a silent cell that says nothing is no cell"


def test_each_cell_says_how_many_ranks_there_were() -> None:
    world = start(1)
    world.run("x")
    world.run("%processes 2")
    world.run("%%rank 0\ny")
    world.run("%processes 3\nz")
    sizes = [cell["size"] for cell in now(world, "outputs")["cells"]]
    assert sizes == [1, None, 2, 3]


def test_a_cell_that_has_not_begun() -> None:
    world = start(1)
    world.execute("x")
    waiting = world.execute("y")
    data = now(world, "outputs", msg_id=waiting.message.msg_id)
    assert (data["state"], data["messages"]) == ("queued", [])
    early = World(1)
    waiting = early.execute("y")
    assert now(early, "outputs", msg_id=waiting.message.msg_id)["state"] == "queued"


def test_the_oldest_go_first_and_it_is_said() -> None:
    world = start(1, kept_outputs=10_000)
    old = world.execute("x")
    printing(world, old, "x" * 100)
    world.settle()
    cell = world.execute("y")
    for number in range(100):
        printing(world, cell, f"{number:3}\n")
    world.settle()
    with pytest.raises(AssertionError):
        now(world, "outputs", msg_id=old.message.msg_id)
    data = now(world, "outputs", msg_id=cell.message.msg_id)
    kept = len(data["messages"])
    assert 20 < kept < 40
    assert data["dropped"] == 100 - kept and data["next"] == 100
    assert logged(data) == published(cell)[-kept:]
    assert data["messages"][0]["seq"] == 100 - kept
    some = now(world, "outputs", msg_id=cell.message.msg_id, **{"from": 90})
    assert some["dropped"] == 0 and len(some["messages"]) == 10


def test_a_large_display_is_there_if_it_fits_and_said_if_not() -> None:
    world = start(1, kept_outputs=100_000)
    cell = world.execute("x")
    for size in (50_000, 200_000, 10):
        data = {"data": {"image/png": "x" * size}, "metadata": {}, "transient": {}}
        world.say(world.ranks[0], "iopub", "display_data", data, cell.message)
    data = now(world, "outputs")
    assert [m["seq"] for m in data["messages"]] == [0, 2]
    assert (data["dropped"], data["next"]) == (1, 3)


def test_a_long_answer_comes_in_parts() -> None:
    world = start(1)
    cell = world.execute("x")
    for number in range(10):
        printing(world, cell, f"{number}" * 1000)
    world.settle()
    found, start_at, rounds = [], 0, 0
    while True:
        data = now(world, "outputs", **{"from": start_at, "most": 3000})
        found += logged(data)
        start_at, rounds = data["next"], rounds + 1
        if not data["more"]:
            break
    assert found == published(cell) and rounds == 5
    assert len(now(world, "outputs", most=0)["messages"]) == 1


def test_contents_leave_as_they_came() -> None:
    """Not decoded and encoded: ipykernel sends bytes that are no UTF-8, and big numbers."""
    world = start(1)
    cell = world.execute("x")
    raw = b'{"name": "stdout", "text": "\xff \\ud800 \xc3\xa4", "n": 1.0e2}'
    world.say(world.ranks[0], "iopub", "stream", raw, cell.message)
    sent = world.control("outputs")
    assert raw in sent.replies[0].content


@pytest.mark.parametrize("raw", [b"", b"{", b"no json", b"\xff", b"[" * 5000])
def test_a_rank_that_sends_nonsense_does_not_spoil_the_answer(raw: bytes) -> None:
    world = start(1)
    cell = world.execute("x")
    world.say(world.ranks[0], "iopub", "stream", raw, cell.message)
    printing(world, cell, "sense")
    data = now(world, "outputs")
    assert data["messages"][0]["content"] == {}
    assert data["messages"][1]["content"]["text"] == "sense"


def test_buffers_travel_with_the_reply() -> None:
    world = start(1)
    cell = world.execute("x")
    content = {"data": {}, "metadata": {}, "transient": {}}
    for buffers in ((b"one", b"two"), (), (memoryview(b"three"),)):
        world.say(world.ranks[0], "iopub", "display_data", content, cell.message, {}, buffers)
    sent = world.control("outputs")
    assert [m["buffers"] for m in checked("outputs", sent)["messages"]] == [2, 0, 1]
    assert list(map(bytes, sent.replies[0].buffers)) == [b"one", b"two", b"three"]


def test_nothing_is_kept_where_nothing_shall_be() -> None:
    world = start(1, kept_outputs=0)
    cell = world.execute("x")
    printing(world, cell, "a")
    refused(world.control("outputs", msg_id=cell.message.msg_id))
    assert now(world, "outputs")["messages"] == []


def test_the_log_is_bounded_whatever_runs() -> None:
    world = start(1, kept_outputs=50_000)
    for number in range(400):
        cell = world.execute("x")
        printing(world, cell, "x" * (number * 37 % 3000))
        world.settle()
    journal = world.hub.stage.journal
    assert len(journal.cells) <= 256
    sizes = [message.size for log in journal.cells for message in log.messages]
    assert sum(sizes) == journal._size <= 50_000
