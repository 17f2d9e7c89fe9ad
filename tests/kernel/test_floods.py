"""Cells that say far too much, and clients that do not read: sizes are reduced, the rules are real."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from spmd_kernel.core.outputs import parse_label

from .client import DEADLINE, Bytes, Kernel
from .test_memory import kilobytes

MB = 1_000_000


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A limit of 1 MB, and where the rest goes."""
    monkeypatch.setenv("SPMD_STREAM_LIMIT", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "spmd-kernel" / "outputs"


@pytest.fixture
def eight(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bytes]:
    monkeypatch.setenv("SPMD_PROCESSES", "8")
    with Bytes() as kernel:
        kernel.ok("import os; RANK = int(os.environ['RANK'])")
        kernel.client.iopub_channel.socket.rcvhwm = 0
        yield kernel


def resident(pid: int) -> int:
    return kilobytes(Path(f"/proc/{pid}/status"), "VmRSS")


def test_a_loop_that_prints_on_eight_ranks_stays_bounded_and_stops(
    eight: Bytes, cache: Path
) -> None:
    """Nobody reads the client's IOPub meanwhile."""
    status = eight.request("spmd_request", {"command": "status"}, "control")["data"]
    pids = [entry["pid"] for entry in status["ranks"]]
    msg_id = eight.send("while True: print(RANK, 'x' * 70)")

    def written() -> int:
        return sum(path.stat().st_size for path in cache.glob("*")) if cache.exists() else 0

    def wait_for(size: int) -> None:
        deadline = time.monotonic() + DEADLINE
        while written() < size:
            assert time.monotonic() < deadline
            assert eight.request("spmd_request", {"command": "status"}, "control")
            time.sleep(0.05)  # a file tells nobody that it grew

    wait_for(4 * MB)
    before = [resident(pid) for pid in (eight.pid, *pids)]
    wait_for(24 * MB)
    after = [resident(pid) for pid in (eight.pid, *pids)]
    assert all(b < a + 12_000 for a, b in zip(before, after, strict=True)), (before, after)
    eight.client.control_channel.send(eight.client.session.msg("interrupt_request", {}))
    reply = eight.client.get_shell_msg(timeout=DEADLINE)
    assert reply["parent_header"]["msg_id"] == msg_id
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    (path,) = cache.iterdir()
    lines = path.read_text().splitlines()
    for rank in range(8):  # whole lines, and none is lost or torn, but what Stop left unfinished
        own = [line for line in lines if line.startswith(f"{rank} │ ")]
        assert len(own) > 1000
        assert set(own[:-2]) == {f"{rank} │ {rank} {'x' * 70}"}


@pytest.mark.parametrize(
    "say",
    ["print('x')", "print('x', flush=True)", "display('x')"],
    ids=["print", "flush", "display"],
)
@pytest.mark.parametrize("size", [1, 2])
def test_who_says_more_than_is_read_waits(
    size: int, say: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMD_PROCESSES", str(size))
    with Bytes() as kernel:
        kernel.client.iopub_channel.socket.rcvhwm = 0
        msg_id = kernel.send(f"""\
import os
said, fd = 0, os.open({str(tmp_path)!r} + "/" + os.environ["RANK"], os.O_CREAT | os.O_WRONLY)
while True:
    {say}
    said += 1
    os.pwrite(fd, b"%d" % said, 0)""")

        def said() -> list[int]:
            return [int(path.read_bytes() or b"0") for path in sorted(tmp_path.iterdir())]

        def wait(since: list[int], change: bool) -> list[int]:
            deadline = time.monotonic() + DEADLINE
            while True:
                time.sleep(0.5)  # numbers that do not change tell nobody
                now = said()
                if len(now) == size and all(
                    (a != b) == change for a, b in zip(now, since, strict=True)
                ):
                    return now
                assert time.monotonic() < deadline, (since, now)
                since = since if change else now

        wait([0] * size, change=True)
        os.kill(kernel.pid, signal.SIGSTOP)
        try:
            standing = wait(said(), change=False)
        finally:
            os.kill(kernel.pid, signal.SIGCONT)
        wait(standing, change=True)
        kernel.client.control_channel.send(kernel.client.session.msg("interrupt_request", {}))
        reply = kernel.client.get_shell_msg(timeout=DEADLINE)
        assert reply["parent_header"]["msg_id"] == msg_id
        assert reply["content"]["ename"] == "KeyboardInterrupt"


@pytest.mark.parametrize("mode", ["live", "grouped"])
@pytest.mark.parametrize("size", [1, 2])
def test_the_first_and_the_last_lines_are_shown_and_all_are_in_the_file(
    size: int, mode: str, cache: Path
) -> None:
    with Kernel() as kernel:
        kernel.client.iopub_channel.socket.rcvhwm = 0
        kernel.ok(f"%processes {size} --output {mode}")
        result = kernel.ok("for number in range(200_000): print(number)")
        (path,) = cache.iterdir()
        text = path.read_text()
        by_rank: dict[int, list[str]] = {rank: [] for rank in range(size)}
        for line in text.splitlines():
            ranks, said = parse_label(line)
            for rank in ranks or range(size):
                by_rank[rank].append(said)
        for said_by in by_rank.values():
            assert said_by == [str(number) for number in range(200_000)]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "…" not in result.stdout  # what the kernel says stands on stderr
        assert result.stdout.startswith(text[: MB // 2])
        assert result.stdout.endswith(text[-MB // 20 :])
        assert len(result.stdout) < 1.2 * MB
        notes = [c["text"] for c in result.of("stream") if c["name"] == "stderr"]
        assert str(path) in notes[0] and str(path) in notes[-1]
        assert kernel.ok("print('next')").stdout == "next\n"
        assert len(list(cache.iterdir())) == 1


def test_a_single_huge_print_a_line_without_end_and_an_error_with_a_huge_message(
    cache: Path,
) -> None:
    with Kernel() as kernel:
        kernel.client.iopub_channel.socket.rcvhwm = 0
        kernel.ok("%processes 2")
        kernel.ok("import os; RANK = int(os.environ['RANK'])")
        for text in ("'x' * 79 + '\\n'", "'y' * 80"):
            result = kernel.ok(f"if RANK == 1: print(({text}) * 100_000)")
            assert len(result.stdout) < 1.2 * MB
            newest = max(cache.iterdir(), key=lambda path: path.stat().st_mtime)
            said = newest.read_text().replace("1 │ ", "").replace("\n", "")
            assert len(said) in (79 * 100_000, 80 * 100_000)
        result = kernel.run("if RANK == 1: raise ValueError('z' * 5_000_000)")
        assert result.reply["ename"] == "ValueError" and len(result.reply["evalue"]) == 5_000_000
        kernel.ok("pass")


@pytest.mark.parametrize("size", [1, 2])
def test_an_output_widget_shows_no_more_than_a_cell(size: int, cache: Path) -> None:
    with Kernel() as kernel:
        kernel.client.iopub_channel.socket.rcvhwm = 0
        kernel.ok(f"%processes {size}")
        code = "import ipywidgets\nwith ipywidgets.Output():\n"
        code += "    for number in range(300_000): print(number)\nprint('after')"
        result = kernel.ok(code)
        (path,) = cache.iterdir()
        said = path.read_text().splitlines()
        assert len(said) == size * 300_000 + 1 and said.count("299999") == size
        assert str(path) in result.text and "after\n" in result.text
        assert len(result.text) < 1.3 * MB
        assert kernel.ok("print('next')").text == "next\n"


def test_many_displays_and_many_clears(cache: Path) -> None:
    with Kernel() as kernel:
        kernel.client.iopub_channel.socket.rcvhwm = 0
        kernel.ok("%processes 2")
        kernel.ok("import os; RANK = int(os.environ['RANK'])")
        code = "for i in range(1000): display({'text/plain': f'{RANK} {i}'}, raw=True)"
        shown = [c["data"]["text/plain"] for c in kernel.ok(code).of("display_data")]
        for rank in range(2):
            own = [text for text in shown if text.startswith(f"{rank} │ ")]
            assert own == [f"{rank} │ {rank} {i}" for i in range(1000)]
        code = "from IPython.display import clear_output\nfor i in range(500):\n"
        code += "    clear_output(wait=True)\n    print(i)"
        kernel.ok(code)
        kernel.ok("for i in range(20_000): print(f'\\r{i}', end='')")
        assert kernel.ok("print('next')").stdout == "next\n"


def test_clients_that_do_not_read_cost_the_others_nothing(eight: Bytes) -> None:
    info = eight.client.get_connection_info()
    session = eight.client.session
    with zmq.Context() as context:
        deaf = context.socket(zmq.SUB)
        deaf.subscribe(b"")
        askers = {name: context.socket(zmq.DEALER) for name in ("shell", "control")}
        try:
            for name, socket in {**askers, "iopub": deaf}.items():
                socket.linger, socket.rcvhwm = 0, 1
                socket.connect(f"tcp://{info['ip']}:{info[name + '_port']}")
            deaf.poll(DEADLINE * 1000)  # it is welcomed; then nobody reads any more
            for asker in askers.values():
                for _ in range(500):
                    session.send(asker, session.msg("kernel_info_request", {}))
            before = resident(eight.pid)
            data = "{'text/plain': f'{RANK} {i}', 'text/html': 'x' * 3_000}"
            code = f"for i in range(6000): display({data}, raw=True)"
            said, reply = eight.contents(code)
            assert json.loads(reply)["status"] == "ok"
            shown = [content for kind, content in said if kind == "display_data"]
            assert sum(content.count(b"x" * 3_000) for content in shown) == 8 * 6000
            # 144 MB were shown; ZeroMQ keeps 4000 messages of each client that does not read
            peak = kilobytes(Path(f"/proc/{eight.pid}/status"), "VmHWM")
            assert peak < before + 100_000
            said, _ = eight.contents("print('still here')")
            assert said == [("stream", b'{"name":"stdout","text":"still here\\n"}')]
        finally:
            for socket in (deaf, *askers.values()):
                socket.close()


def test_a_file_that_cannot_be_made_costs_only_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, where a directory should be")
    monkeypatch.setenv("SPMD_STREAM_LIMIT", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with Kernel() as kernel:
        kernel.client.iopub_channel.socket.rcvhwm = 0
        result = kernel.ok("for number in range(200_000): print(number)")
        assert result.stdout.endswith("199999\n") and len(result.stdout) < 1.2 * MB
        notes = [c["text"] for c in result.of("stream") if c["name"] == "stderr"]
        assert "Not a directory" in notes[0]
        assert os.listdir(tmp_path) == ["blocked"]
