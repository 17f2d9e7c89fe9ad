"""Subshells of real ranks: what ipykernel's own suite asks of one kernel, asked of N.

Times are never asserted: that two shells are at work at once shows in that each waits for the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from .client import Kernel, Result

SIZES = [1, 2, 4]
EVENTS = "import threading\na, b = threading.Event(), threading.Event()"
FIRST = "a.set(); assert b.wait(60)"  # ends only if the other one runs meanwhile
SECOND = "assert a.wait(60); b.set()"
THREAD = "print('main', threading.current_thread() is threading.main_thread())"


@pytest.fixture(params=SIZES)
def ranks(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with Kernel() as kernel:
        if request.param > 1:
            kernel.ok(f"%processes {request.param}")
        kernel.ok(EVENTS)
        yield kernel


def both(kernel: Kernel, first: str, second: str) -> list[Result]:
    """What two cells left that are at work at the same time."""
    found: dict[str, Result] = {first: Result(), second: Result()}
    idle: set[str] = set()

    def sort(message: dict[str, Any]) -> bool:
        parent = str(message["parent_header"].get("msg_id"))
        if parent in found:
            found[parent].messages.append(message)
            if message["content"].get("execution_state") == "idle":
                idle.add(parent)
        return idle == set(found)

    kernel.wait_iopub(sort)
    while not all(result.reply for result in found.values()):
        message = kernel.client.get_shell_msg(timeout=60)
        if result := found.get(message["parent_header"].get("msg_id")):
            result.reply = message["content"]
    return list(found.values())


def test_two_shells_at_once(ranks: Kernel) -> None:
    assert "kernel subshells" in ranks.request("kernel_info_request", {})["supported_features"]
    one, other = ranks.create_subshell(), ranks.create_subshell()
    for first, second in ((None, one), (one, None), (one, other)):
        sent = [
            ranks.send(code) if shell is None else ranks.send_beside(shell, code)
            for shell, code in ((first, f"print('one')\n{FIRST}"), (second, f"{SECOND}\n{THREAD}"))
        ]
        results = both(ranks, *sent)
        assert [result.status for result in results] == ["ok", "ok"], results
        assert results[0].stdout == "one\n"
        assert results[1].stdout == f"main {second is None}\n"
        shells = {m["parent_header"].get("subshell_id") for m in results[1].messages}
        assert shells == {second}
        ranks.ok("a.clear(); b.clear()")
    content = {"subshell_id": one}
    listed = ranks.request("list_subshell_request", {}, "control")
    assert listed == {"status": "ok", "subshell_id": [one, other]}
    assert ranks.request("delete_subshell_request", content, "control") == {"status": "ok"}
    again = ranks.request("delete_subshell_request", content, "control")
    assert again["evalue"] == f"Unknown subshell_id {one!r}"
    lost = ranks.collect(ranks.send_beside(one, "x = 1"))
    assert lost.reply["ename"] == "UnknownSubshellError"
    assert [m["header"]["msg_type"] for m in lost.messages] == ["status", "status"]
    assert ranks.collect(ranks.send_beside(other, "1")).status == "ok"


def test_a_thread_less_when_it_is_deleted(ranks: Kernel) -> None:
    def threads() -> str:
        return ranks.ok("print(len(threading.enumerate()))").text

    before = threads()
    subshell = ranks.create_subshell()
    assert threads() != before
    ranks.request("delete_subshell_request", {"subshell_id": subshell}, "control")
    assert threads() == before


def test_what_ranks_print_in_a_subshell_is_merged(pair: Kernel) -> None:
    pair.ok("import os")
    subshell = pair.create_subshell()
    result = pair.collect(
        pair.send_beside(subshell, "print('same'); print(os.environ['RANK']); os.environ['RANK']")
    )
    assert result.stdout.splitlines()[0] == "same"
    assert {"0 │ 0", "1 │ 1"} < set(result.text.splitlines())
    assert len(result.of("execute_result")) == 2
    failed = pair.collect(pair.send_beside(subshell, "1/int(os.environ['RANK'])"))
    assert failed.status == "error" and "0 │" in failed.errors[0]
    after = pair.ok("print(len(In), get_ipython().execution_count)")
    numbers = [result.reply["execution_count"], after.reply["execution_count"]]
    assert numbers[1] == numbers[0] + 2
    assert re.fullmatch(rf"{numbers[1] + 1} ({numbers[1]}|{numbers[1] + 1})\n", after.stdout)


def test_numbers_after_cells_at_once(pair: Kernel) -> None:
    pair.ok(EVENTS)
    subshell = pair.create_subshell()
    results = both(pair, pair.send(FIRST), pair.send_beside(subshell, SECOND))
    counts = [result.reply["execution_count"] for result in results]
    after = pair.ok("print(len(In), get_ipython().execution_count)")
    assert counts == [3, 4] and after.reply["execution_count"] == 5
    assert after.stdout in ("6 5\n", "6 6\n"), "IPython counts before a cell or after it"


def test_an_error_aborts_the_queue_of_its_shell_alone(pair: Kernel) -> None:
    pair.ok(EVENTS)
    subshell = pair.create_subshell()
    main = pair.send("assert b.wait(60)")
    beside = [pair.send_beside(subshell, "a.wait(60); 1/0"), pair.send_beside(subshell, "2")]
    other = pair.create_subshell()
    assert pair.collect(pair.send_beside(other, "a.set()")).status == "ok"
    results = both(pair, *beside)
    assert [result.status for result in results] == ["error", "aborted"]
    results = both(pair, main, pair.send_beside(subshell, "b.set()"))
    assert [result.status for result in results] == ["ok", "ok"]


def test_ranks_that_come_later_have_it(pair: Kernel) -> None:
    subshell = pair.create_subshell()
    pair.ok("%restart 1")
    pair.ok("%processes 3 --keep")
    pair.ok("import threading, os")
    cell = f"print('rank', os.environ['RANK']); {THREAD}"
    result = pair.collect(pair.send_beside(subshell, cell))
    assert result.status == "ok", result.text
    assert sorted(re.findall(r"rank (\d)", result.text)) == ["0", "1", "2"]
    assert "main False\n" in result.text and "main True" not in result.text
    pair.ok("%processes 2 --fresh")
    again = pair.collect(pair.send_beside(subshell, "1 + 1"))
    assert again.text == "2\n", "JupyterLab goes on to use it"


def test_a_rank_that_dies_in_a_subshell(pair: Kernel) -> None:
    pair.ok("import os, signal, time; x = 5")
    subshell = pair.create_subshell()
    code = "time.sleep(0.2)\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)"
    result = pair.collect(pair.send_beside(subshell, code))
    assert result.status == "error" and "rank 1 died" in result.text
    pair.ok("%restart dead")
    assert "0 │ 5" in pair.run("print(globals().get('x'))").text
    assert pair.collect(pair.send_beside(subshell, "2 + 2")).text == "4\n"


COMM = """\
import threading
from comm import create_comm
widget = create_comm(target_name="test")
def on_reply(message):
    print("main", threading.current_thread() is threading.main_thread())
    got.set()
got = threading.Event()
widget.on_msg(on_reply)
"""


def test_a_comm_answers_through_its_subshell_while_a_cell_runs(ranks: Kernel) -> None:
    subshell = ranks.create_subshell()
    # ipykernel 7.4 serves a comm where it was last used, wherever its message was sent.
    opened = ranks.collect(ranks.send_beside(subshell, COMM))
    comm_ids = [content["comm_id"] for content in opened.of("comm_open")]
    cell = ranks.send("assert got.wait(60)")
    sent = [
        ranks.begin("comm_msg", {"comm_id": comm_id, "data": {}}, subshell_id=subshell)
        for comm_id in comm_ids
    ]
    assert ranks.collect(cell).status == "ok", "it ends once its comm has been told"
    said = ranks.wait_iopub(
        lambda m: m["header"]["msg_type"] == "stream" and "main False" in m["content"]["text"]
    )
    assert said["parent_header"]["msg_id"] in sent
    assert said["parent_header"]["subshell_id"] == subshell


ASYNC = """\
import asyncio
reply = asyncio.get_running_loop().create_future()
widget = create_comm(target_name="test")
widget.on_msg(lambda message: reply.set_result(5))
print("got", await asyncio.wait_for(reply, 60))
"""


def test_a_comm_of_an_async_cell_is_not_at_work_for_ever(pair: Kernel) -> None:
    """ipykernel serves it in the cell, whatever subshell was named, and never says that it has."""
    pair.ok("from comm import create_comm")
    subshell = pair.create_subshell()
    cell = pair.send(ASYNC)
    comm_ids: list[str] = []

    def is_another(message: dict[str, Any]) -> bool:
        found = message["header"]["msg_type"] == "comm_open"
        return found and message["content"]["comm_id"] not in comm_ids

    for _ in range(2):  # each rank has one of its own
        comm_ids.append(pair.wait_iopub(is_another)["content"]["comm_id"])
    sent = [
        pair.begin("comm_msg", {"comm_id": comm_id, "data": {}}, subshell_id=subshell)
        for comm_id in comm_ids
    ]
    assert pair.collect(cell).stdout == "got 5\n"
    deleted = pair.request("delete_subshell_request", {"subshell_id": subshell}, "control")
    assert deleted == {"status": "ok"}
    for msg_id in sent:
        pair.wait_iopub(
            lambda m, msg_id=msg_id: (
                m["parent_header"].get("msg_id") == msg_id
                and m["content"].get("execution_state") == "idle"
            )
        )


def test_a_reply_of_its_parent_names_the_shell_as_the_client_does(ranks: Kernel) -> None:
    subshell = ranks.create_subshell()
    msg_id = ranks.send_beside(subshell, "1", silent=True)
    while True:
        reply = ranks.client.get_shell_msg(timeout=60)
        if reply["parent_header"]["msg_id"] == msg_id:
            break
    assert reply["parent_header"]["subshell_id"] == subshell
    assert json.dumps(reply["content"]).count('"ok"') == 1
