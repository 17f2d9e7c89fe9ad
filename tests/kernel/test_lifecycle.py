"""Errors, deaths, interrupts, ends: nothing is lost, nothing hangs, nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .client import Kernel, Result, descendants, wait_gone
from .test_ranks import pids

RANK = "int(__import__('os').environ['RANK'])"


def once(action: Callable[[], None], when: Callable[[Result], bool]) -> Callable[[Result], None]:
    done: list[bool] = []

    def watch(result: Result) -> None:
        if not done and when(result):
            done.append(True)
            action()

    return watch


def says(text: str, times: int = 1) -> Callable[[Result], bool]:
    return lambda result: result.text.count(text) >= times


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("os._exit(3)", "code 3"),
    ],
)
def test_a_rank_dies(pair: Kernel, end: str, words: str) -> None:
    pair.ok("import os, time; x = 41")
    before = pids(pair)
    code = f"""
print('last words of', {RANK})
if {RANK} == 1: {end}
time.sleep(600)
"""
    result = pair.run(code)
    assert result.status == "error"
    assert result.reply["ename"] == "RankLost"
    assert "rank 1" in result.reply["evalue"] and words in result.reply["evalue"]
    assert "last words of 1" in result.text
    assert result.text.index("last words of 1") < result.text.index("RankLost")
    refused = pair.run("print('must not run')")
    assert refused.status == "error" and "rank 1" in refused.text and "hint:" in refused.text
    assert pair.request("kernel_info_request", {})["status"] == "ok"
    assert "print" in str(pair.request("complete_request", {"code": "pri", "cursor_pos": 3}))
    assert "dead" in pair.ok("%ranks").text
    assert pair.ok("%%rank 0\nx + 1").of("execute_result")[0]["data"]["text/plain"] == "42"
    report = pair.ok("%processes 2").text
    assert "rank 1" in report
    after = pids(pair)
    assert after[0] == before[0] and after[1] != before[1]
    assert pair.ok("%rank 0 x").of("execute_result")[0]["data"]["text/plain"] == "41"


CRASHES = {
    "print('words'); os.kill(os.getpid(), 9)": "words\n",
    "print('words', flush=True); os._exit(3)": "words\n",
    "print('said'); time.sleep(0.2); print('words', end=''); ctypes.string_at(0)": "words",
    "os.fork() or (print('child'), os._exit(0)); os.wait(); print('words'); os.abort()": "words\n",
}


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("size", [1, 2])
def test_what_was_printed_right_before_a_crash_is_shown_once(
    kernel: Kernel, size: int, crash: str
) -> None:
    kernel.ok(f"%processes {size}")
    result = kernel.run(f"import ctypes, os, time\nif {RANK} == {size - 1}:\n    {crash}")
    assert result.status == "error" and result.reply["ename"] == "RankLost"
    shown = result.stdout
    assert shown.count(CRASHES[crash]) == 1, shown
    assert shown.count("said") == crash.count("said")
    assert shown.count("child") == crash.count("child")


def test_the_only_rank_dies(kernel: Kernel) -> None:
    result = kernel.run("import os; os._exit(1)")
    assert result.status == "error" and "rank 0" in result.text
    assert kernel.run("1").status == "error"
    kernel.ok("%processes 1")
    assert kernel.ok("print(1)").stdout == "1\n"


def test_a_survivor_that_does_not_listen_is_killed_and_it_says_so(
    pair: Kernel, tmp_path: Path
) -> None:
    deaf = tmp_path / "deaf"
    code = f"""
import os, signal, time
if {RANK} == 1:
    while not os.path.exists({str(deaf)!r}):
        time.sleep(0.01)
    os._exit(5)
signal.signal(signal.SIGINT, signal.SIG_IGN)
open({str(deaf)!r}, "w").close()
time.sleep(600)
"""
    result = pair.run(code)
    assert "code 5" in result.reply["evalue"]
    assert "still busy 5 s after its interrupt" in result.text


def test_headless_error_stops_ranks_that_wait(pair: Kernel) -> None:
    result = pair.run(f"import time\nif {RANK} == 0: raise LookupError('cause')\ntime.sleep(600)")
    assert result.reply["ename"] == "LookupError" and result.reply["evalue"] == "cause"
    assert "KeyboardInterrupt" in result.text


@pytest.mark.parametrize("how", ["message", "signal"])
@pytest.mark.parametrize(
    "code",
    [
        "import time; print('go', flush=True); time.sleep(600)",
        "print('go', flush=True)\nwhile True: pass",
        "import asyncio; print('go', flush=True); await asyncio.sleep(600)",
    ],
)
def test_interrupt(pair: Kernel, how: str, code: str) -> None:
    pair.ok("x = 41")
    before = pids(pair)

    def stop() -> None:
        if how == "signal":
            os.kill(pair.pid, signal.SIGINT)
        else:
            pair.manager.interrupt_kernel()

    result = pair.collect(pair.send(code), once(stop, says("go")))
    assert result.status == "error"
    assert result.reply["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert pair.ok("print(x + 1)").stdout == "42\n"
    assert pids(pair) == before


def test_interrupt_reaches_shell_commands(pair: Kernel) -> None:
    children: set[int] = set()

    def stop() -> None:
        for pid in descendants(pair.pid):
            with contextlib.suppress(OSError):
                if b"98765" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    children.add(pid)
        pair.manager.interrupt_kernel()

    result = pair.collect(pair.send("!echo go; sleep 98765"), once(stop, says("go")))
    assert result.reply
    assert len(children) >= 2
    wait_gone(children)
    assert pair.ok("print('usable')").stdout == "usable\n"


def test_control_answers_while_a_cell_runs(pair: Kernel) -> None:
    msg_id = pair.send("answer = input()", allow_stdin=True)
    pair.client.get_stdin_msg(timeout=60)
    assert pair.request("kernel_info_request", {}, "control")["status"] == "ok"
    assert pair.request("kernel_info_request", {})["status"] == "ok"
    assert pair.request("comm_info_request", {})["status"] == "ok"
    pair.client.input("go")
    assert pair.collect(msg_id).status == "ok"


def test_queued_cells_are_aborted(pair: Kernel) -> None:
    first = pair.send("answer = input()\nraise ValueError(answer)", allow_stdin=True)
    second, third = pair.send("print('never')"), pair.send("print('never')")
    pair.client.get_stdin_msg(timeout=60)
    pair.client.input("x")
    assert pair.collect(first).status == "error"
    for msg_id in (second, third):
        result = pair.collect(msg_id)
        assert result.status == "aborted" and "never" not in result.text


def leftovers() -> set[Path]:
    places = {Path(tempfile.gettempdir()), Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp"))}
    return {path for place in places for path in place.glob("spmd-*") if path.is_dir()}


@pytest.mark.parametrize("how", ["shutdown", "SIGTERM", "SIGKILL"])
def test_nothing_outlives_the_kernel(
    how: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    kernel = Kernel()
    try:
        kernel.ok("%processes 2")
        kernel.ok("import subprocess; p = subprocess.Popen(['sleep', '98765'])")
        family = descendants(kernel.pid) | {kernel.pid}
        assert len(family) >= 6
        assert len(list(place.glob("spmd-*"))) == 1
        if how == "shutdown":
            kernel.close()
        else:
            os.kill(kernel.pid, getattr(signal, how))
        wait_gone(family)
        assert not list(place.glob("spmd-*"))
    finally:
        if how != "shutdown":
            kernel.close()


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    return ""


def test_restart_leaves_exactly_one_group(pair: Kernel) -> None:
    old = descendants(pair.pid) | {pair.pid}
    for _ in range(2):
        pair.manager.restart_kernel(now=False)
        pair.client.wait_for_ready(timeout=60)
        pair.ok("%processes 2")
        wait_gone(old)
        old = descendants(pair.pid) | {pair.pid}
    assert len(old) == 4  # kernel, supervisor, ranks
    assert len(pids(pair)) == 2


def test_exit_ends_the_kernel(pair: Kernel) -> None:
    family = descendants(pair.pid) | {pair.pid}
    pair.run("exit()")
    wait_gone(family)


def test_a_kernel_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's interpreter fails: every cell says why, with its last words."""
    for name, argv in {
        "broken": [sys.executable, "-c", "raise SystemExit('no such wheel: boom')"],
    }.items():
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        spec = {"argv": [*argv, "{connection_file}"], "display_name": name, "language": "python"}
        (folder / "kernel.json").write_text(__import__("json").dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    subprocess.run(
        [sys.executable, "-m", "spmd_kernel.cli", "install", "--kernel", "broken", "--prefix", str(tmp_path)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("JUPYTER_PATH", f"{tmp_path}{os.pathsep}{tmp_path}/share/jupyter")
    with Kernel("spmd-broken") as kernel:
        result = kernel.run("1")
        assert result.status == "error"
        assert "rank 0 could not start" in result.text
        assert "no such wheel: boom" in result.text and "hint:" in result.text


def test_two_clients_at_once(pair: Kernel) -> None:
    other = pair.manager.client()
    other.session.session = "another"
    other.start_channels()
    try:
        other.wait_for_ready(timeout=60)
        msg_id = other.execute("print('from the other')", allow_stdin=False)
        assert pair.ok("print('from the first')").stdout == "from the first\n"
        reply = other.get_shell_msg(timeout=60)
        assert reply["parent_header"]["msg_id"] == msg_id
        assert reply["content"]["status"] == "ok"
    finally:
        other.stop_channels()


def test_only_loopback_is_listened_on_and_files_are_private(pair: Kernel) -> None:
    family = descendants(pair.pid) | {pair.pid}
    inodes = set()
    for pid in family:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link))
                inodes |= {found[1]} if found else set()
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [row.split() for row in rows if row.split()[3] == "0A"]
    ours = [row[1] for row in listening if row[9] in inodes]
    assert ours and all(address.startswith("0100007F:") for address in ours)
    for folder in leftovers():
        assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP"])
def test_the_kernel_leaves_without_a_word(how: str, tmp_path: Path) -> None:
    with open(tmp_path / "stderr", "w") as stderr:
        kernel = Kernel(stderr=stderr)
    try:
        kernel.ok("%processes 2")
        family = descendants(kernel.pid) | {kernel.pid}
        os.kill(kernel.pid, getattr(signal, how))
        wait_gone(family)
    finally:
        kernel.close()
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_the_kernel_ends_with_its_parent(tmp_path: Path) -> None:
    """Whoever started the kernel is killed hard: nobody can reach it any more."""
    script = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.kernel.client import Kernel, descendants
kernel = Kernel()
kernel.ok("%processes 2")
print(*descendants(kernel.pid), kernel.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        family = {int(pid) for pid in parent.stdout.readline().split()}
        assert len(family) == 4
        parent.kill()
    wait_gone(family)


def test_daemons_of_old_ranks_go_with_them(pair: Kernel) -> None:
    pair.ok("import subprocess; subprocess.Popen(['setsid', 'sleep', '97531'])")
    daemons = {pid for pid in descendants(pair.pid) if "97531" in command(pid)}
    assert daemons
    pair.ok("%processes 1")
    wait_gone(daemons)


def test_ranks_stay_aligned_over_interrupts(pair: Kernel) -> None:
    code = "import time\nprint('go', flush=True)\nwhile True: time.sleep(0.001)"
    for _ in range(5):
        pair.collect(pair.send(code), once(pair.manager.interrupt_kernel, says("go")))
    assert "│" not in pair.ok("print(len(In))").text
    assert len(pair.run("1 / 0").errors) == 1
    (value,) = pair.ok("'same'").of("execute_result")
    assert value["metadata"]["spmd"]["ranks"] == [0, 1]


def test_stop_reaches_a_widget_callback(pair: Kernel) -> None:
    code = """
from comm import create_comm
import time
def forever(_):
    print('in the callback', flush=True)
    time.sleep(600)
cm = create_comm(target_name='t')
cm.on_msg(forever)
"""
    comm_id = pair.ok(code).of("comm_open")[0]["comm_id"]
    message = pair.client.session.msg("comm_msg", {"comm_id": comm_id, "data": {}})
    pair.client.shell_channel.send(message)
    pair.wait_iopub(lambda m: "in the callback" in str(m["content"].get("text", "")))
    # Its reply is awaited: it comes on another socket than the cell, which it could stop instead.
    assert pair.request("interrupt_request", {}, "control")["status"] == "ok"
    assert pair.ok("print('usable')").stdout == "usable\n"
