"""The debug port with real ranks, and with debugpy's own channel as the editor."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from .client import Kernel, descendants, wait_gone
from .dap import CODE, Dap, thread
from .editor import Address, Editor, editor, open_port

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

LIBRARY = """\
def shard(rank, items):
    begin = rank * 2
    end = begin + 2
    part = items[begin:end]
    return sum(part)
"""


@pytest.fixture(params=[1, 2])
def few(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with Kernel() as kernel:
        if request.param > 1:
            kernel.ok(f"%processes {request.param}")
        yield kernel


def size_of(kernel: Kernel) -> int:
    content = {"command": "status", "arguments": {}}
    return len(kernel.request("spmd_request", content, "control")["data"]["ranks"])


def cell_path(one: Editor, code: str) -> str:
    """Of a cell that ran: what an editor lists as loaded."""
    for source in one.ask("loadedSources")["sources"]:
        if one.ask("source", source=source, sourceReference=0)["content"] == code:
            return str(source["path"])
    raise AssertionError("the cell is not listed")


# ---------------------------------------------------------------- in cells and files


def test_break_in_a_cell(few: Kernel) -> None:
    size = size_of(few)
    few.ok(CODE)
    with editor(open_port(few)) as one:
        path = cell_path(one, CODE)
        assert Path(path).read_text() == CODE
        (point,) = one.break_at(path, 4)
        assert point["verified"] and point["line"] == 4
        cell = few.send(CODE)
        stops = one.stops(size)
        assert {stop["reason"] for stop in stops.values()} == {"breakpoint"}
        assert {t["id"] for t in one.ask("threads")["threads"]} == {thread(r) for r in range(size)}
        for rank in range(size):
            top = one.frames(thread(rank))[0]
            assert top["line"] == 4 and top["source"]["path"] == path
            assert re.fullmatch(r"cell \[\d+\]", top["source"]["name"])
            assert one.scope(top, "Locals")["a"]["value"] == str(rank)
        if size > 1:
            assert one.scope(top, "All ranks")["a ≠"]["value"] == "0: 0 | 1: 1"
        one.ask("next", threadId=thread(0))
        assert set(one.stops(size)) == set(range(size))
        assert one.frames(thread(0))[0]["line"] == 5
        one.ask("continue", threadId=thread(0))
        assert few.collect(cell).status == "ok"
        one.ask("disconnect")
        one.wait_closed()
    assert few.ok(CODE).status == "ok"  # its breakpoint went with it


def test_break_in_a_file_on_one_rank(tmp_path: Path) -> None:
    """The other rank runs on; the one that stopped steps alone, and both can be looked at."""
    library = tmp_path / "library.py"
    library.write_text(LIBRARY)
    with Kernel() as kernel:
        kernel.ok("%processes 2")
        kernel.ok(f"import os, sys; sys.path.insert(0, {str(tmp_path)!r})")
        with editor(open_port(kernel)) as one:
            (point,) = one.break_at(str(library), {"line": 4, "condition": "RANK == 1"})
            assert point["verified"]
            cell = kernel.send(
                "from library import shard\nprint(shard(int(os.environ['RANK']), list(range(4))))"
            )
            stop = one.event("stopped")
            assert stop["threadId"] == thread(1) and not stop["allThreadsStopped"]
            names = [t["name"] for t in one.ask("threads")["threads"]]
            assert names == ["rank 0 · MainThread (running)", "rank 1 · MainThread"]
            top = one.frames(thread(1))[0]
            assert (top["line"], top["source"]["path"]) == (4, str(library))
            assert one.scope(top, "Locals")["begin"]["value"] == "2"
            value = one.ask("evaluate", expression="%all end - begin", frameId=top["id"])
            assert "1: 2" in value["result"]
            one.ask("next", threadId=thread(1), singleThread=True)
            assert one.event("stopped")["threadId"] == thread(1)
            top = one.frames(thread(1))[0]
            assert one.scope(top, "Locals")["part"]["value"] == "[2, 3]"
            changed = one.ask(
                "evaluate", expression="part.append(10)", frameId=top["id"], context="repl"
            )
            assert changed["result"] in ("", "None")
            one.ask("continue", threadId=thread(1))
            assert kernel.collect(cell).stdout == "0 │ 1\n1 │ 15\n"


def test_breakpoint_and_errors_stop(few: Kernel) -> None:
    size = size_of(few)
    with editor(open_port(few)) as one:
        cell = few.send("z = 1\nbreakpoint()\nz = 2")
        assert set(one.stops(size)) == set(range(size))
        one.ask("continue", threadId=thread(0))
        assert few.collect(cell).status == "ok"
        one.ask("setExceptionBreakpoints", filters=["userUnhandled"])
        cell = few.send(f"import os\n1 / (int(os.environ['RANK']) - {size - 1})")
        stop = one.event("stopped")
        assert (stop["threadId"], stop["reason"]) == (thread(size - 1), "exception")
        info = one.ask("exceptionInfo", threadId=stop["threadId"])
        assert "ZeroDivisionError" in info["exceptionId"]
        one.ask("continue", threadId=stop["threadId"])
        assert few.collect(cell).status == "error"


# ---------------------------------------------------------------- beside a notebook


def test_beside_a_notebook(few: Kernel) -> None:
    """Each has its breakpoints and hears of both; one that leaves takes only its own along."""
    size = size_of(few)
    lab = Dap(few)
    lab.start()
    path = lab.breakpoints(CODE, 4)
    with editor(open_port(few)) as one:
        assert one.break_at(path, 5)[0]["verified"]
        cell = few.send(CODE)
        for line in (4, 5):
            assert set(one.stops(size)) == set(range(size))
            assert lab.stopped()["reason"] == "breakpoint"
            assert {one.frames(thread(rank))[0]["line"] for rank in range(size)} == {line}
            if line == 4:
                one.ask("continue", threadId=thread(0))
        lab.ok("continue", threadId=1)
        assert few.collect(cell).status == "ok"
        one.ask("disconnect")
        one.wait_closed()
    info = lab.ok("debugInfo")
    assert info["isStarted"]
    assert info["breakpoints"] == [{"source": path, "breakpoints": [{"line": 4}]}]
    cell = few.send(CODE)
    lab.stopped()
    assert lab.line() == 4
    if size > 1:
        lab.until_stopped(set(range(size)))  # who stops later would be stopped anew
    lab.ok("continue", threadId=1)
    assert few.collect(cell).status == "ok"


def test_a_notebook_that_comes_later_and_leaves_first(few: Kernel) -> None:
    few.ok(CODE)
    with editor(open_port(few)) as one:
        assert one.break_at(cell_path(one, CODE), 5)[0]["verified"]
        lab = Dap(few)
        assert not lab.ok("debugInfo")["isStarted"]
        lab.start()
        lab.breakpoints(CODE, 4)
        lab.ok("disconnect")
        cell = few.send(CODE)
        assert set(one.stops(size_of(few))) == set(range(size_of(few)))
        assert one.frames(thread(0))[0]["line"] == 5
        one.ask("continue", threadId=thread(0))
        assert few.collect(cell).status == "ok"


def test_an_editor_that_vanishes_leaves_nothing_stopped(few: Kernel) -> None:
    few.ok(CODE)
    address = open_port(few)
    with editor(address) as one:
        one.break_at(cell_path(one, CODE), 4)
        cell = few.send(CODE)
        one.stops(size_of(few))
    assert few.collect(cell).status == "ok"
    with editor(address) as other:  # and the next one is served
        assert len(other.ask("threads")["threads"]) == size_of(few)
        assert few.ok(CODE).status == "ok"


def test_ranks_that_come_later_have_the_breakpoints() -> None:
    with Kernel() as kernel:
        kernel.ok(CODE)
        with editor(open_port(kernel)) as one:
            one.break_at(cell_path(one, CODE), {"line": 4, "condition": "RANK == 1"})
            kernel.ok("%processes 2")
            cell = kernel.send(CODE)
            assert one.event("stopped")["threadId"] == thread(1)
            one.ask("continue", threadId=thread(1))
            assert kernel.collect(cell).status == "ok"


def test_breakpoints_of_an_earlier_kernel(few: Kernel) -> None:
    """An editor keeps them by the path of the cell, and sends them before the cell has run."""
    with Kernel() as earlier:
        earlier.ok(CODE)
        with editor(open_port(earlier)) as one:
            path = cell_path(one, CODE)
    with editor(open_port(few)) as one:
        assert not one.break_at(path, 4)[0]["verified"]
        cell = few.send(CODE)
        assert set(one.stops(size_of(few))) == set(range(size_of(few)))
        assert one.frames(thread(0))[0]["line"] == 4
        changed = [body for kind, body in one.events if kind == "breakpoint"]
        assert [body["breakpoint"]["verified"] for body in changed] == [True]
        one.ask("continue", threadId=thread(0))
        assert few.collect(cell).status == "ok"


# ---------------------------------------------------------------- who is refused


def last_words(address: Address, data: bytes) -> bytes:
    """What a client that says this gets before the connection is closed."""
    with closing(address.connect()) as stream:
        stream.sendall(data)
        said = b""
        with suppress(ConnectionResetError):  # closed before all that we sent was read
            while part := stream.recv(65536):
                said += part
        return said


def frame(body: str) -> bytes:
    return f"Content-Length: {len(body)}\r\n\r\n{body}".encode()


def test_who_is_refused(kernel: Kernel) -> None:
    address = open_port(kernel)
    for data in (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: 2\r\nContent-Type: text/plain\r\n\r\n{}",
        b"Content-Length: 4194305\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        frame("[]"),
        frame("{"),
        frame('{"seq": 1, "type": "request"}'),
        frame('{"seq": "1", "type": "request", "command": "initialize"}'),
        b"",  # it says nothing at all
    ):
        assert last_words(address, data) == b"", data
    for arguments in ({}, {"token": ""}, {"token": None}, {"token": address.token[:-1]}):
        with editor(address, attached=False) as one:
            one.initialize()
            assert "token" in one.fails("attach", **arguments)
            one.wait_closed()
    for command in (
        "threads",
        "evaluate",
        "setBreakpoints",
        "debugInfo",
        "source",
        "loadedSources",
    ):
        with editor(address, attached=False) as one:
            assert "nothing is served before attach" in one.fails(command)
            one.wait_closed()
    with editor(address, attached=False) as one:
        assert "count from 1" in one.fails("initialize", linesStartAt1=False)
        one.wait_closed()
    assert not Dap(kernel).ok("debugInfo")["isStarted"]  # and no rank has heard of any of this
    with editor(address) as one:
        with editor(address, attached=False) as second:
            assert "another client is attached" in second.fails("initialize")
            second.wait_closed()
        assert one.ask("threads")["threads"]
        stream = one.channel.stream
        stream._writer.write(b"Content-Length: 5000000\r\n\r\n")
        one.wait_closed()


def test_attach_while_a_cell_runs(few: Kernel, tmp_path: Path) -> None:
    """It is told so, as Lab is; a rank at work would hear nothing on control from then on."""
    address = open_port(few)
    go = tmp_path / "go"
    wait = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    cell = few.send(f"import os, time\nprint('runs', flush=True)\n{wait}")
    few.wait_iopub(lambda m: "runs" in str(m["content"].get("text")))
    with editor(address, attached=False) as one:
        one.initialize()
        assert "is running" in one.fails("attach", token=address.token)
        one.wait_closed()
    assert few.request("usage_request", {}, "control")["kernel_memory"] > 0
    go.touch()
    assert few.collect(cell).status == "ok"
    with editor(address) as one:
        assert one.ask("threads")["threads"]


# ---------------------------------------------------------------- the port itself


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses (as the system writes them) and TCP ports that a process listens on."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed since
            inodes.add(os.readlink(entry))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address, port = fields[1].split(":")
                found.add((address, int(port, 16)))
    return found


def refused(address: Address) -> bool:
    try:
        address.connect().close()
    except ConnectionRefusedError:
        return True
    return False


def test_it_listens_only_while_it_is_open(kernel: Kernel) -> None:
    before = listening(kernel.pid)
    address = open_port(kernel)
    assert listening(kernel.pid) - before == {("0100007F", address.port)}
    again = kernel.ok("%debugport").stdout
    assert f":{address.port} is open" in again and address.token not in again
    with editor(address) as one:
        assert "a client is attached" in kernel.ok("%debugport").stdout
        assert "is disconnected" in kernel.ok("%debugport off").stdout
        one.event("terminated")
        one.wait_closed()
    assert refused(address) and listening(kernel.pid) == before
    assert "not open" in kernel.ok("%debugport off").stdout
    other = open_port(kernel, f"--port {address.port}")
    assert other.port == address.port and other.token != address.token
    with editor(other, attached=False) as one:
        one.initialize()
        assert "token" in one.fails("attach", token=address.token)


def test_a_port_that_is_taken(kernel: Kernel) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        error = kernel.run(f"%debugport --port {port}").errors[0]
    assert f"port {port}: Address already in use" in error and "hint:" in error
    assert open_port(kernel).port != port


def test_nothing_is_left() -> None:
    """A kernel that ends while ranks are stopped in it."""
    kernel = Kernel()
    try:
        kernel.ok("%processes 2")
        address = open_port(kernel)
        one = Editor(address)
        one.attach()
        kernel.send("breakpoint()\nx = 1")
        one.stops(2)
        processes = descendants(kernel.pid) | {kernel.pid}
    finally:
        kernel.close()
    one.wait_closed()
    one.close()
    assert ("terminated", {}) in one.events
    wait_gone(processes)
    assert refused(address)
