"""Questions are answered while a cell runs on real ranks, and whatever state rank 0 is in."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from .client import Kernel

# Ends when the file is there: no question has waited for it.
WAIT = "import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.01)"
HOLD = (  # sleeps in C, and does not let go of the interpreter's lock
    "import ctypes, os, time\n"
    "while not os.path.exists({path!r}): ctypes.PyDLL(None).usleep(400000); time.sleep(0)"
)
COMPLETE = {"code": "some_na", "cursor_pos": 7}
QUESTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("complete_request", COMPLETE, "some_name"),
    ("inspect_request", {"code": "some_name", "cursor_pos": 9, "detail_level": 0}, "12345"),
    ("is_complete_request", {"code": "for x in y:"}, "incomplete"),
    (
        "history_request",
        {"hist_access_type": "tail", "n": 9, "raw": True, "output": False},
        "12345",
    ),
    ("kernel_info_request", {}, "language_info"),
    ("comm_info_request", {}, "comms"),
]


def started(size: int) -> Kernel:
    kernel = Kernel()
    if size > 1:
        kernel.ok(f"%processes {size}")
    kernel.ok("some_name = 12345")
    return kernel


def working(kernel: Kernel, path: Path, code: str = WAIT) -> str:
    """A cell that has begun."""
    cell = kernel.send(f"print('begun', flush=True)\n{code.format(path=str(path))}")
    kernel.wait_iopub(lambda m: "begun" in m["content"].get("text", ""))
    return cell


def finish(kernel: Kernel, path: Path, cell: str) -> None:
    path.touch()
    while (reply := kernel.client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != cell:
        pass
    assert reply["content"]["status"] == "ok", reply


def settled(kernel: Kernel, kind: str, content: dict[str, Any], found: str, channel: str) -> None:
    """The answer comes while the cell runs; on a loaded machine a first one may be empty."""
    for _ in range(40):
        if found in str(kernel.request(kind, content, channel)):
            return
    raise AssertionError(f"{kind} on {channel}: only empty answers")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_questions_while_a_cell_runs(size: int, tmp_path: Path) -> None:
    with started(size) as kernel:
        cell = working(kernel, tmp_path / "go")
        for kind, content, found in QUESTIONS:
            for channel in ("shell", "control"):
                settled(kernel, kind, content, found, channel)
        listed = kernel.request("list_subshell_request", {}, "control")
        assert listed["subshell_id"] == []
        finish(kernel, tmp_path / "go", cell)


def test_another_rank_answers_for_one_that_is_stopped(tmp_path: Path) -> None:
    with started(2) as kernel:
        (pid,) = re.findall(
            r"0 │ pid (\d+)", kernel.ok("import os; print('pid', os.getpid())").text
        )
        cell = working(kernel, tmp_path / "go")
        os.kill(int(pid), signal.SIGSTOP)
        try:
            settled(kernel, *QUESTIONS[1], "shell")
        finally:
            os.kill(int(pid), signal.SIGCONT)
        finish(kernel, tmp_path / "go", cell)


def test_another_rank_answers_for_one_that_is_dead(tmp_path: Path) -> None:
    with started(3) as kernel:
        (pid,) = re.findall(
            r"0 │ pid (\d+)", kernel.ok("import os; print('pid', os.getpid())").text
        )
        os.kill(int(pid), signal.SIGKILL)
        kernel.wait_iopub(lambda m: "died" in m["content"].get("text", ""))
        cell = kernel.send(f"%%rank 1-2\n{WAIT.format(path=str(tmp_path / 'go'))}")
        settled(kernel, *QUESTIONS[1], "shell")
        finish(kernel, tmp_path / "go", cell)


CODES = ["from xml.dom import minid", "alpha = [1]\nalpha[0].bit_le"]
FOUND = "['minidom']['bit_length']"


@pytest.mark.parametrize("left", [0, 100])
def test_a_parser_s_cache_that_a_killed_rank_has_cut(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def completed() -> str:
        with Kernel() as kernel:
            contents = [{"code": code, "cursor_pos": len(code)} for code in CODES]
            return "".join(str(kernel.request("complete_request", c)["matches"]) for c in contents)

    def sizes() -> dict[Path, int]:
        return {path: path.stat().st_size for path in tmp_path.rglob("*.pkl")}

    assert completed() == FOUND
    before = sizes()
    assert before, "the parser keeps nothing there"
    for path in before:
        os.truncate(path, left)
    assert completed() == FOUND
    after = sizes()
    assert any(after[path] > left for path in before)
    assert all(after[path] in (left, size) for path, size in before.items())


@pytest.mark.parametrize("size", [1, 2])
def test_an_empty_answer_while_all_ranks_hold_the_interpreter(size: int, tmp_path: Path) -> None:
    with started(size) as kernel:
        cell = working(kernel, tmp_path / "go", HOLD)
        for kind, content, _ in QUESTIONS:
            assert kernel.request(kind, content)["status"] in ("ok", "unknown", "incomplete")
        finish(kernel, tmp_path / "go", cell)
        assert kernel.request("complete_request", COMPLETE)["matches"] == ["some_name"]


def test_questions_leave_the_output_of_threads_where_it_belongs(tmp_path: Path) -> None:
    """Each of them makes itself the parent of what ipykernel's plain threads print."""
    path = tmp_path / "go"
    with started(2) as kernel:
        kernel.ok("import threading, time")
        cell = kernel.send(
            "def say():\n"
            "    for number in range(40): print('said', number, flush=True); time.sleep(0.02)\n"
            "thread = threading.Thread(target=say); thread.start()\n"
            f"thread.join()\n{WAIT.format(path=str(path))}"
        )
        for _ in range(20):
            kernel.request("inspect_request", QUESTIONS[1][1])
        path.touch()
        result = kernel.collect(cell)
        lines = {line.rpartition("said ")[2] for line in result.stdout.splitlines()}
        assert lines == {str(number) for number in range(40)}
        assert not [m for m in kernel.stray if m["header"]["msg_type"] == "stream"]
