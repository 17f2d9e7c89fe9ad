"""What ipykernel's own tests expect of a kernel, from one rank and from two.

The conformance suite has the rest of the messages; test_subshells, test_threads, test_stdin_real and
test_text look at what two ranks say.  Here both worlds must do what one bare kernel does: text that all
ranks print is one unmarked line, and equal values are one value.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from .client import DEADLINE, Kernel, Result, wait_gone

SIZES = [1, 2]


def environment(size: int) -> dict[str, str]:
    return {**os.environ, "SPMD_PROCESSES": str(size)}


@pytest.fixture(scope="module", params=SIZES)
def shared(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """For all that leaves a kernel as it was."""
    environ = {k: v for k, v in environment(request.param).items() if k != "PYTEST_CURRENT_TEST"}
    with Kernel(env=environ) as kernel:
        yield kernel


@pytest.fixture(params=SIZES)
def own(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """For what ends the kernel, or leaves it changed."""
    with Kernel(env=environment(request.param)) as kernel:
        yield kernel


def next_reply(kernel: Kernel, channel: str = "shell") -> dict[str, Any]:
    message: dict[str, Any] = getattr(kernel.client, f"get_{channel}_msg")(timeout=DEADLINE)
    return message


def said_by_all(result: Result) -> list[str]:
    """The text of each rank: what has no label is of all."""
    lines = result.text.splitlines()
    ranks = sorted({line.split(" │ ")[0] for line in lines if " │ " in line}) or ["0"]
    return [
        "\n".join(
            line.removeprefix(f"{rank} │ ")
            for line in lines
            if " │ " not in line or line.startswith(f"{rank} │ ")
        )
        for rank in ranks
    ]


def wait_until(what: Any) -> None:
    deadline = time.monotonic() + DEADLINE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---------------------------------------------------------------- cells


def test_counts(shared: Kernel) -> None:
    first = shared.ok("x = 1").reply["execution_count"]
    silent = shared.ok("print('seen'); x", silent=True)
    assert {m["header"]["msg_type"] for m in silent.messages} == {"status", "stream"}
    assert silent.reply["execution_count"] in (first, first + 1)
    assert shared.ok("x", store_history=False).of("execute_result")
    assert shared.ok("x = 2").reply["execution_count"] == first + 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("1/0", "error"),
        ("class Bad:\n    def __repr__(self): 1 / 0\nBad()", "error"),
        ("try:\n    1/0\nexcept ZeroDivisionError:\n    get_ipython().showtraceback()", "ok"),
        ("x =", "error"),
        ("import sys; sys.exit(0) if False else None", "ok"),
    ],
)
def test_what_counts_as_a_failure(shared: Kernel, code: str, status: str) -> None:
    result = shared.run(code)
    assert result.status == status
    if status == "error":
        assert {"ename", "evalue", "traceback", "execution_count"} <= result.reply.keys()
        assert result.of("error")


def test_an_error_aborts_what_waits_unless_told_otherwise(shared: Kernel) -> None:
    fails = "import asyncio; await asyncio.sleep(0.5); raise ValueError"
    ids = [shared.send(code) for code in (fails, "1", "2")]
    assert [next_reply(shared)["content"]["status"] for _ in ids] == ["error", "aborted", "aborted"]
    ids = [shared.send(fails, stop_on_error=False), shared.send("1")]
    assert [next_reply(shared)["content"]["status"] for _ in ids] == ["error", "ok"]


def test_questions_that_follow_an_error_are_answered_after_it(shared: Kernel) -> None:
    """Sent without a pause: nothing has told their client that the cell runs."""
    for _ in range(5):  # on a busy machine a client may pause where it does not want to
        shared.run("pass")
        cell = shared.client.execute("import time; time.sleep(0.4); raise ValueError")
        asked = [shared.client.kernel_info(), shared.client.comm_info(), shared.client.inspect("p")]
        replies = [next_reply(shared) for _ in range(4)]
        assert {r["parent_header"]["msg_id"] for r in replies} == {cell, *asked}
        assert sorted(r["content"]["status"] for r in replies) == ["error", "ok", "ok", "ok"]
        if replies[0]["parent_header"]["msg_id"] == cell:
            return
    raise AssertionError("no question has waited")


def test_a_hundred_cells_in_one_go_are_answered_in_order(shared: Kernel) -> None:
    before = shared.ok("n = 0").reply["execution_count"]
    ids = [shared.send("n += 1\nn") for _ in range(100)]
    replies = [next_reply(shared) for _ in ids]
    assert [r["parent_header"]["msg_id"] for r in replies] == ids
    assert [r["content"]["execution_count"] for r in replies] == [
        before + 1 + n for n in range(100)
    ]


def test_cells_on_the_control_channel_run_one_after_the_other(shared: Kernel) -> None:
    seconds = [0.3, 0.2, 0.05]
    code = "import time; time.sleep({})"
    asked = [
        shared.begin("execute_request", {"code": code.format(s), "silent": False}, "control")
        for s in seconds
    ]
    end: datetime | None = None
    for msg_id, slept in zip(asked, seconds, strict=True):
        reply = next_reply(shared, "control")
        assert reply["parent_header"]["msg_id"] == msg_id
        began = datetime.fromisoformat(str(reply["metadata"]["started"]))
        assert end is None or began >= end
        end = datetime.fromisoformat(str(reply["header"]["date"]))
        assert (end - began).total_seconds() >= slept


def test_control_goes_before_cells_that_wait(shared: Kernel, tmp_path: Path) -> None:
    path = str(tmp_path / "go")
    cell = f"import asyncio, os\nwhile not os.path.exists({path!r}): await asyncio.sleep(0.01)"
    waiting = [shared.send(code) for code in (cell, "1", "2")]
    assert all(
        shared.request("kernel_info_request", {}, "control")["status"] == "ok" for _ in "abc"
    )
    Path(path).touch()
    assert [next_reply(shared)["parent_header"]["msg_id"] for _ in waiting] == waiting


def test_expressions(shared: Kernel) -> None:
    asked = {"two": "x + 1", "bad": "no_such_name"}
    found = shared.ok("x = 1", user_expressions=asked).reply["user_expressions"]
    assert found["two"]["status"] == "ok" and found["two"]["data"] == {"text/plain": "2"}
    assert found["bad"]["status"] == "error" and found["bad"]["ename"] == "NameError"


def test_payloads_come_once(shared: Kernel, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("a = 1\n")
    code = "for _ in range(3): get_ipython().set_next_input('again')"
    sources = {code: "set_next_input", f"%load {script}": "set_next_input", "print?": "page"}
    shared.ok("import os; rank = os.environ['RANK']")
    sources["rank?"] = "page"  # which differs
    for cell, source in sources.items():
        assert [p["source"] for p in shared.ok(cell).reply["payload"]] == [source]


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("code", "status", "indent"),
    [
        ("2+2", "complete", None),
        ("raise = 2", "invalid", None),
        ("a = [1,\n2,", "incomplete", ""),
        ("for x in y:", "incomplete", "    "),
        ("%%timeit\na\n\n", "complete", None),
    ],
)
def test_is_complete(shared: Kernel, code: str, status: str, indent: str | None) -> None:
    reply = shared.request("is_complete_request", {"code": code})
    assert (reply["status"], reply.get("indent")) == (status, indent)


def test_help(shared: Kernel) -> None:
    shared.ok("a = 5\nip = get_ipython()")

    def ask(code: str, level: int = 0) -> Any:
        content = {"code": code, "cursor_pos": len(code), "detail_level": level}
        return shared.request("inspect_request", content)

    text = ask("a")["data"]["text/plain"]
    assert "Type:" in text and "Docstring:" in text
    text = ask("ip.object_inspect", 1)["data"]["text/plain"]
    assert "Signature:" in text and "Source:" in text
    assert ask("does_not_exist")["found"] is False


def test_completions_fit_where_they_go(shared: Kernel) -> None:
    shared.ok("alpha = albert = 5")
    cell = "import os\nb = alpha."
    reply = shared.request("complete_request", {"code": cell, "cursor_pos": len(cell)})
    start, end = reply["cursor_start"], reply["cursor_end"]
    assert end == len(cell) and reply["matches"]
    assert all((cell[:start] + match).startswith(cell) for match in reply["matches"])
    reply = shared.request("complete_request", {"code": "al", "cursor_pos": 2})
    assert {"alpha", "albert"} <= set(reply["matches"])


@pytest.mark.parametrize(
    "access",
    [
        {"hist_access_type": "tail", "n": 1},
        {"hist_access_type": "search", "n": 1, "pattern": "*history*"},
        {"hist_access_type": "search", "n": 1, "pattern": "*history*", "unique": True},
        {"hist_access_type": "range", "session": 0, "start": 1, "stop": 2},
    ],
)
@pytest.mark.parametrize("output", [True, False])
def test_history(shared: Kernel, access: dict[str, Any], output: bool) -> None:
    shared.ok("'history ü'")
    reply = shared.request("history_request", {**access, "output": output, "raw": True})
    (entry,) = reply["history"]
    assert len(entry) == 3
    source = entry[2][0] if output else entry[2]
    assert isinstance(source, str)
    if access["hist_access_type"] != "range":
        assert source == "'history ü'"


def test_the_history_is_saved(shared: Kernel, tmp_path: Path) -> None:
    shared.ok('b = "abcþ"')
    for name, command in (("1.py", "%hist -f"), ("2.py", "%history -n -f"), ("3.py", "%save")):
        file = tmp_path / name
        assert shared.ok(f"{command} {file}", allow_stdin=True).of("error") == []
        written = file.read_text(encoding="utf-8")
        assert 'b = "abcþ"' in written
        shared.ok(f"%save -a {file} 1", allow_stdin=True)
        assert len(file.read_text(encoding="utf-8").splitlines()) == len(written.splitlines()) + 1
    cell = shared.send(f"%hist -f {tmp_path / '1.py'}", allow_stdin=True)
    assert "Overwrite" in next_reply(shared, "stdin")["content"]["prompt"]
    shared.client.input("n")
    assert "Aborting" in shared.collect(cell).text


def test_state(shared: Kernel) -> None:
    info = shared.request("kernel_info_request", {})
    assert info["implementation"] == "ipython" and "kernel subshells" in info["supported_features"]
    ports = shared.request("connect_request", {})
    assert {f"{name}_port" for name in ("shell", "iopub", "stdin", "hb", "control")} <= ports.keys()
    assert shared.request("comm_info_request", {})["comms"] == {}


# ---------------------------------------------------------------- text and its parent


THREAD = """
import threading
from IPython.display import display
parent, begin, end = get_ipython().get_parent(), threading.Event(), threading.Event()
def speak():
    ip = get_ipython()
    if {how!r} == 'global':
        ip.set_parent(parent)
    elif {how!r} == 'thread':
        token = ip.set_thread_parent(parent)
    print('before', flush=True); display(1)
    end.set(); begin.wait(10); begin.clear()
    print('during', flush=True); display(2)
    if {how!r} == 'thread':
        ip.reset_thread_parent(token)
    end.set(); begin.wait(10)
    print('after', flush=True); display(3)
thread = threading.Thread(target=speak); thread.start(); end.wait(10); end.clear()
"""


@pytest.mark.parametrize(
    ("how", "cells"), [("global", (0, 0, 0)), ("thread", (0, 0, 2)), ("none", (0, 1, 2))]
)
def test_a_thread_speaks_into_a_cell(shared: Kernel, how: str, cells: tuple[int, ...]) -> None:
    shared.stray.clear()
    codes = [THREAD.format(how=how), "begin.set(); end.wait(10)", "begin.set(); thread.join()"]
    ids = []
    for code in codes:
        ids.append(shared.send(code))
        shared.stray += shared.collect(ids[-1]).messages

    def said(cell: str) -> list[str]:
        contents = [
            m["content"]
            for m in shared.stray
            if m["header"]["msg_type"] in ("stream", "display_data")
            and m["parent_header"].get("msg_id") == cell
        ]
        text = "".join(c.get("text") or c["data"]["text/plain"] + "\n" for c in contents)
        return text.splitlines()

    words = [["before", "1"], ["during", "2"], ["after", "3"]]
    wanted = [
        [word for n in range(3) if cells[n] == cell for word in words[n]] for cell in range(3)
    ]
    deadline = time.monotonic() + 20
    while [said(cell) for cell in ids] != wanted:
        assert time.monotonic() < deadline, [said(cell) for cell in ids]
        if shared.client.iopub_channel.msg_ready():
            shared.stray.append(shared.client.get_iopub_msg())


@pytest.mark.parametrize("what", ["a child thread", "a task"])
def test_what_is_said_late_goes_where_it_began(shared: Kernel, what: str) -> None:
    code = {
        "a child thread": """
import threading, time
parent = get_ipython().get_parent()
def child():
    get_ipython().set_thread_parent(parent)
    for n in range(5):
        print(n, end='', flush=True); time.sleep(0.1)
def grandparent():
    time.sleep(0.2)
    thread = threading.Thread(target=child); thread.start(); thread.join()
threading.Thread(target=grandparent).start()
""",
        "a task": """
import asyncio
async def late():
    for n in range(5):
        print(n, end='', flush=True); await asyncio.sleep(0.1)
task = asyncio.get_event_loop().create_task(late());
""",
    }[what]
    shared.stray.clear()
    first = shared.send(code)
    shared.stray += shared.collect(first).messages
    assert shared.ok("pass").text == ""

    def digits() -> set[str]:
        streams = [m for m in shared.stray if m["header"]["msg_type"] == "stream"]
        assert {m["parent_header"]["msg_id"] for m in streams} <= {first}
        text = "".join(m["content"]["text"] for m in streams)
        said = {"0": "", "1": ""}  # by rank; what no label is in front of is of all
        for line in text.splitlines():
            rank, label, words = line.rpartition(" │ ")
            for key in [rank] if label else said:
                said[key] += words
        return set(said.values())

    while digits() != {"01234"}:
        shared.stray.append(shared.client.get_iopub_msg(timeout=DEADLINE))


def test_context_variables_live_on(shared: Kernel) -> None:
    shared.ok("from contextvars import ContextVar\nv = ContextVar('v', default='unset')")
    assert shared.ok("print(v.get())").stdout == "unset\n"
    assert shared.ok("v.set('set'); print(v.get())").stdout == "set\n"
    assert shared.ok("print(v.get())").stdout == "set\n"


def test_who_has_asked(shared: Kernel) -> None:
    """Of the private names that ipykernel keeps, as much code reads them."""
    code = "p = get_ipython().kernel.get_parent({0!r})['header']; print(p['msg_id'], p['session'], get_ipython().kernel._parent_ident[{0!r}])"
    session = shared.client.session.session
    asked = shared.send(code.format("shell"))
    assert shared.collect(asked).stdout == f"{asked} {session} [b'{session}']\n"
    asked = shared.begin("kernel_info_request", {}, "control")
    assert next_reply(shared, "control")["parent_header"]["msg_id"] == asked
    deadline = time.monotonic() + DEADLINE
    while (
        said := shared.ok(code.format("control")).stdout
    ) != f"{asked} {session} [b'{session}']\n":
        assert time.monotonic() < deadline, said


def test_a_question_by_those_names_reaches_the_client(shared: Kernel) -> None:
    code = "k = get_ipython().kernel\nprint(k._input_request('name? ', k._parent_ident['shell'], k.get_parent('shell')))"
    cell = shared.send(code, allow_stdin=True)
    assert next_reply(shared, "stdin")["content"]["prompt"] == "name? "
    shared.client.input("Ada")
    assert shared.collect(cell).stdout == "Ada\n"


# ---------------------------------------------------------------- processes


CHILDREN = """
import multiprocessing, sys
fork = multiprocessing.get_context('fork')
children = [fork.Process(target={target}, args=({args})) for n in range({number})]
for child in children: child.start()
for child in children: child.join()
"""


def test_forked_children(shared: Kernel) -> None:
    said = said_by_all(shared.ok(CHILDREN.format(target="print", args="'hello', n", number=5)))
    for text in said:  # one rank's children may interrupt each other, as in ipykernel
        assert [text.count(word) for word in ("hello", *"01234")] == [5, 1, 1, 1, 1, 1]
    assert shared.ok(CHILDREN.format(target="range", args="n,", number=5)).text == ""
    failed = shared.ok(CHILDREN.format(target="int", args="'hi',", number=1))
    assert failed.stdout == "" and "ValueError" in failed.text
    masters = "print(sys.stdout._is_master_process(), sys.stderr._is_master_process())"
    assert shared.ok(masters).stdout == "True True\n"


def test_commands_and_file_descriptors(shared: Kernel) -> None:
    shared.stray.clear()
    shared.ok("import os, subprocess")
    cell = shared.send(
        "_ = subprocess.run(['sh', '-c', 'echo one; echo two >&2']); os.system('echo three')"
    )
    shared.stray += shared.collect(cell).messages

    def said(name: str) -> str:
        streams = [m for m in shared.stray if m["header"]["msg_type"] == "stream"]
        assert {m["parent_header"]["msg_id"] for m in streams} <= {cell}
        return "".join(m["content"]["text"] for m in streams if m["content"]["name"] == name)

    while (said("stdout"), said("stderr")) != ("one\nthree\n", "two\n"):  # ipykernel may be late
        shared.stray.append(shared.client.get_iopub_msg(timeout=DEADLINE))


def test_the_path(shared: Kernel) -> None:
    assert shared.ok("import sys; print('' in sys.path)").stdout == "True\n"


def test_words_behind_the_connection_file_go_to_the_ranks(tmp_path: Path) -> None:
    environ = {**environment(2), "IPYTHONDIR": str(tmp_path / "ipython")}
    profile = tmp_path / "profile"
    profile.mkdir()
    with Kernel(env=environ, extra_arguments=["--profile-dir", str(profile)]) as kernel:
        code = "import sys; print('' in sys.path, get_ipython().profile_dir.location)"
        assert kernel.ok(code).stdout == f"True {profile}\n"


def test_faulthandler(shared: Kernel) -> None:
    code = (
        "import faulthandler, signal; faulthandler.enable(); faulthandler.register(signal.SIGUSR2)"
    )
    shared.ok(code)
    shared.ok("import os; faulthandler.unregister(signal.SIGUSR2)")


def test_figures_are_inline(shared: Kernel) -> None:
    code = "import matplotlib, matplotlib.pyplot as plt; backend = matplotlib.get_backend()"
    found = shared.ok(code, user_expressions={"backend": "backend"}).reply["user_expressions"]
    assert "inline" in found["backend"]["data"]["text/plain"]


# ---------------------------------------------------------------- stop, and the end


@pytest.mark.parametrize("how", ["message", "signal"])
@pytest.mark.parametrize("asks", ["input()", "import pdb; pdb.set_trace()"])
def test_stop_while_it_asks(shared: Kernel, asks: str, how: str) -> None:
    first, second = shared.send(asks, allow_stdin=True), shared.send("3 + 4")
    assert next_reply(shared, "stdin")["content"]["prompt"] in ("", "ipdb> ", "(Pdb) ")
    if how == "message":
        shared.request("interrupt_request", {}, "control")
    else:
        os.kill(shared.pid, 2)
    replies = [next_reply(shared) for _ in range(2)]
    assert [r["parent_header"]["msg_id"] for r in replies] == [first, second]
    assert replies[0]["content"]["status"] in ("error", "ok")  # pdb takes it for "continue"
    assert shared.ok("3 + 4").of("execute_result")


def test_async_cells(shared: Kernel) -> None:
    shared.ok("import asyncio; await asyncio.sleep(0.05)")
    cell = shared.send("print('begin'); await asyncio.sleep(60)")
    shared.wait_iopub(lambda m: "begin" in m["content"].get("text", ""))
    shared.manager.interrupt_kernel()
    reply = next_reply(shared)
    assert reply["parent_header"]["msg_id"] == cell
    assert reply["content"]["ename"] in ("CancelledError", "KeyboardInterrupt")


def test_an_async_cell_waits_for_a_comm_and_the_next_cell_for_it(shared: Kernel) -> None:
    code = """
import asyncio, comm
answer = asyncio.get_running_loop().create_future()
widget = comm.create_comm(target_name='t')
widget.on_msg(lambda message: answer.set_result(message['content']['data']))
result = await asyncio.wait_for(answer, 60)
"""
    shared.stray.clear()
    first = shared.send(code)
    opened: list[str] = []
    while not opened:
        opened = [
            m["content"]["comm_id"] for m in shared.stray if m["header"]["msg_type"] == "comm_open"
        ]
        if not opened:
            shared.stray.append(shared.client.get_iopub_msg(timeout=DEADLINE))
    second = shared.send("result")
    told: set[str] = set()
    replies: list[dict[str, Any]] = []
    while len(replies) < 2:  # each rank opens its own
        if shared.client.iopub_channel.msg_ready():
            shared.stray.append(shared.client.get_iopub_msg())
        for message in shared.stray:
            comm_id = message["content"].get("comm_id")
            if message["header"]["msg_type"] == "comm_open" and comm_id not in told:
                told.add(comm_id)
                shared.begin("comm_msg", {"comm_id": comm_id, "data": 42})
        if shared.client.shell_channel.msg_ready():
            replies.append(shared.client.get_shell_msg())
    assert [r["parent_header"]["msg_id"] for r in replies] == [first, second]
    assert [r["content"]["status"] for r in replies] == ["ok", "ok"]
    shared.ok("widget.close()")


def test_it_ends_when_it_is_asked_to(own: Kernel) -> None:
    own.create_subshell()
    own.ok("a = 1")
    own.client.shutdown()
    wait_gone({own.pid})


# ---------------------------------------------------------------- subshells


def in_shell(kernel: Kernel, subshell: str | None, code: str) -> Result:
    return kernel.collect(
        kernel.send(code) if subshell is None else kernel.send_beside(subshell, code)
    )


def test_subshells_are_threads_that_come_and_go(shared: Kernel) -> None:
    def listed() -> Any:
        return shared.request("list_subshell_request", {}, "control")["subshell_id"]

    def threads() -> list[int]:
        code = "import threading; print(threading.active_count())"
        return [int(text) for text in said_by_all(shared.ok(code))]

    same = "print(threading.get_ident() == threading.main_thread().ident)"
    before = threads()
    assert listed() == []
    subshell = shared.create_subshell()
    assert listed() == [subshell]
    assert threads() == [n + 1 for n in before]
    assert shared.ok(same).stdout == "True\n"
    assert in_shell(shared, subshell, same).stdout == "False\n"
    deleted = shared.request("delete_subshell_request", {"subshell_id": subshell}, "control")
    assert deleted["status"] == "ok" and listed() == []
    wait_until(lambda: threads() == before)


def test_a_subshell_is_made_while_a_cell_runs(shared: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "go"
    cell = shared.send(
        f"import os, time\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)"
    )
    subshell = shared.create_subshell()
    path.touch()
    assert shared.collect(cell).status == "ok"
    shared.request("delete_subshell_request", {"subshell_id": subshell}, "control")


SHELLS = [(False, True), (True, False), (True, True)]


@pytest.fixture
def shells(shared: Kernel, request: pytest.FixtureRequest) -> Iterator[list[str | None]]:
    made = [shared.create_subshell() if beside else None for beside in request.param]
    yield made
    for subshell in filter(None, made):
        shared.request("delete_subshell_request", {"subshell_id": subshell}, "control")


def send_in(kernel: Kernel, subshell: str | None, code: str) -> str:
    return kernel.send(code) if subshell is None else kernel.send_beside(subshell, code)


@pytest.mark.parametrize("shells", SHELLS, indirect=True)
def test_two_shells_meet(shared: Kernel, shells: list[str | None]) -> None:
    shared.ok("import threading; meeting = threading.Barrier(2)")
    ids = [send_in(shared, shell, "meeting.wait(60)") for shell in shells]
    replies = [next_reply(shared) for _ in ids]
    assert {r["parent_header"]["msg_id"] for r in replies} == set(ids)
    assert [r["content"]["status"] for r in replies] == ["ok", "ok"]


@pytest.mark.parametrize("shells", SHELLS, indirect=True)
def test_an_error_stops_its_own_shell(shared: Kernel, shells: list[str | None]) -> None:
    shared.ok("import asyncio, threading; failed = threading.Event()")
    codes = [
        (0, "await asyncio.sleep(0.3); raise ValueError"),
        (0, "1"),
        (1, "failed.wait(0.6)"),
        (1, "2"),
    ]
    ids = [send_in(shared, shells[place], code) for place, code in codes]
    replies = {}
    while len(replies) < len(ids):
        reply = next_reply(shared)
        replies[reply["parent_header"]["msg_id"]] = reply
    found = [replies[msg_id] for msg_id in ids]
    assert [r["content"]["status"] for r in found] == ["error", "aborted", "ok", "ok"]
    named = [r["parent_header"].get("subshell_id") for r in found]
    assert named == [shells[0], shells[0], shells[1], shells[1]]
    assert in_shell(shared, shells[0], "3").status == "ok"


@pytest.mark.parametrize("shells", SHELLS, indirect=True)
def test_each_request_has_its_own_busy_and_idle(shared: Kernel, shells: list[str | None]) -> None:
    shared.ok("import time")
    shared.stray.clear()
    ids = [send_in(shared, shell, "print('x'); time.sleep(0.2)") for shell in shells]
    states: dict[str, list[tuple[str, Any]]] = {msg_id: [] for msg_id in ids}
    while not all(s and s[-1][0] == "idle" for s in states.values()):
        message = shared.client.get_iopub_msg(timeout=DEADLINE)
        parent = message["parent_header"]
        if message["header"]["msg_type"] == "status" and parent.get("msg_id") in states:
            state = message["content"]["execution_state"]
            states[parent["msg_id"]].append((state, parent.get("subshell_id")))
    for msg_id, shell in zip(ids, shells, strict=True):
        assert states[msg_id] == [("busy", shell), ("idle", shell)]


@pytest.mark.parametrize("shells", [(False,), (True,)], indirect=True)
def test_silence(shared: Kernel, shells: list[str | None]) -> None:
    (shell,) = shells
    for silent in (True, False):
        content = {"code": "1 + 1", "silent": silent, "allow_stdin": False}
        header = {} if shell is None else {"subshell_id": shell}
        result = shared.collect(shared.begin("execute_request", content, **header))
        assert bool(result.of("execute_input", "execute_result")) is not silent


def test_unknown_subshells(shared: Kernel) -> None:
    asked = shared.send_beside("unknown", "1")
    result = shared.collect(asked)
    assert result.reply["status"] == "error"
    assert "SubshellError" in result.reply["ename"] or "subshell" in result.reply["evalue"].lower()
    assert [c["execution_state"] for c in result.of("status")] == ["busy", "idle"]
    close = {"comm_id": "none", "data": {}}
    asked = shared.begin("comm_close", close, subshell_id="unknown")
    shared.wait_iopub(
        lambda m: (
            m["parent_header"].get("msg_id") == asked
            and m["content"].get("execution_state") == "idle"
        )
    )
    assert shared.ok("1").status == "ok"


def test_a_comm_is_answered_in_the_shell_that_has_opened_it(shared: Kernel) -> None:
    subshell = shared.create_subshell()
    code = "import comm, threading; ends = []; w = comm.create_comm(target_name='t'); w.on_msg(lambda m: ends.append(threading.current_thread() is threading.main_thread()))"
    opened = {c["comm_id"] for c in in_shell(shared, subshell, code).of("comm_open")}
    for header in ({"subshell_id": subshell}, {}):
        for comm_id in opened:
            shared.begin("comm_msg", {"comm_id": comm_id, "data": {}}, **header)
        wait_until(lambda n=1 if header else 2: shared.ok("print(len(ends))").stdout == f"{n}\n")
    assert shared.ok("print(ends); w.close()").stdout == "[False, False]\n"
    shared.request("delete_subshell_request", {"subshell_id": subshell}, "control")
