"""``breakpoint()`` of several ranks: the debugger if there is one, never competing prompts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spmd_kernel.settings import DEBUGGING, setup_code

from .client import Kernel

SETUP = "import os; r = int(os.environ['RANK'])"
SKIPPED = r"breakpoint\(\) at {} skipped: no debugger is attached"


def skipped(text: str, place: str) -> list[str]:
    """The ranks named before each warning; an empty string: all of them."""
    return re.findall(r"(?:^|\n)(?:([\d,-]+) │ )?" + SKIPPED.format(re.escape(place)), text)


def test_it_warns_once_for_a_place_and_goes_on(four: Kernel, tmp_path: Path) -> None:
    four.ok(SETUP)
    started = four.ok("def f():\n    breakpoint()\n    return 1\nprint(sum(f() for _ in range(10000)))")  # fmt: skip
    assert "10000\n" in started.stdout
    assert len(skipped(started.text, "cell line 2")) in (1, 2, 3, 4)  # one, if they come together
    assert started.text.count("skipped") == started.text.count("hint: turn on the debugger")
    count = four.ok("1").reply["execution_count"] - 1
    again = four.ok("f(); f()\nbreakpoint(); breakpoint()", allow_stdin=True)
    assert skipped(again.text, f"line 2 of cell [{count}]")
    assert skipped(again.text, "cell line 2")
    one = four.ok("if r == 1:\n    breakpoint()")
    assert skipped(one.text, "cell line 2") == ["1"]
    assert "1 │ hint: " in one.text
    (tmp_path / "model_of_mine.py").write_text("def step():\n    breakpoint()\n")
    four.ok(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import model_of_mine")
    assert skipped(four.ok("model_of_mine.step()").text, f"{tmp_path}/model_of_mine.py:2")
    assert not four.client.stdin_channel.socket.poll(0)


def test_what_the_user_has_chosen_is_obeyed(pair: Kernel) -> None:
    pair.ok("import sys, os\nos.environ['PYTHONBREAKPOINT'] = '0'")
    assert pair.ok("breakpoint()").text == ""
    pair.ok("import builtins\ncalled = []\nbuiltins.mine = called.append\nos.environ['PYTHONBREAKPOINT'] = 'builtins.mine'")  # fmt: skip
    assert pair.ok("breakpoint(5)\nprint(called)").stdout == "[5]\n"
    pair.ok("del os.environ['PYTHONBREAKPOINT']")
    assert "skipped" in pair.ok("breakpoint()").text
    pair.ok("ours, sys.breakpointhook = sys.breakpointhook, lambda: print('mine')")
    assert pair.ok("breakpoint()").stdout == "mine\n"
    pair.ok("%processes 3 --keep")
    assert pair.ok("%%rank 0,1\nbreakpoint()").stdout == "mine\n"
    assert "skipped" in pair.ok("%%rank 2\nbreakpoint()").text
    pair.ok("%%rank 0,1\nsys.breakpointhook = ours")
    assert "skipped" in pair.ok("breakpoint()").text


def test_a_world_of_one_is_left_as_it_was(kernel: Kernel) -> None:
    code = "import sys; print(sys.breakpointhook.__module__, type(sys.breakpointhook).__name__)"
    with Kernel("python3") as bare:
        theirs = bare.ok(code).text
        said = bare.ok("breakpoint()").text
    assert kernel.ok(code).text == theirs
    assert kernel.ok("breakpoint()").text == said
    kernel.ok("%processes 2 --keep")
    assert "Hook" in kernel.ok(code).text
    kernel.ok("%processes 1 --keep")
    assert kernel.ok(code).text == theirs


def test_an_attached_debugger_stops_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an ordinary kernel that was set up as a rank is, with the debugger as JupyterLab uses it."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Kernel("python3") as rank:
        debugger = Debugger(rank)
        rank.ok(setup_code())
        assert skipped(rank.ok("breakpoint()").text, "cell line 1")
        debugger.attach()
        msg_id = rank.send("x = 1\nbreakpoint()\ny = 2")
        stopped = debugger.event("stopped")
        stack = debugger.ask("stackTrace", threadId=stopped["threadId"])["body"]["stackFrames"]
        assert stack[0]["name"] == "<module>" and stack[0]["line"] in (2, 3)
        debugger.ask("continue", threadId=stopped["threadId"])
        result = rank.collect(msg_id)
        assert result.status == "ok" and "skipped" not in result.text
        debugger.ask("disconnect", restart=False, terminateDebuggee=False)
        assert "skipped" in rank.ok("breakpoint()").text


def test_continue_is_answered_when_nothing_is_stopped() -> None:
    """ipykernel would wait for it, and answer nothing on control any more."""
    with Kernel("python3") as rank:
        rank.ok(setup_code(DEBUGGING))
        debugger = Debugger(rank)
        debugger.attach()
        for _ in range(2):
            assert debugger.ask("continue", threadId=1)["success"]
        msg_id = rank.send("x = 1\nbreakpoint()")
        stopped = debugger.event("stopped")
        assert debugger.ask("continue", threadId=stopped["threadId"])["success"]
        assert rank.collect(msg_id).status == "ok"
        assert rank.request("kernel_info_request", {}, "control")["status"] == "ok"


class Debugger:
    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.seq = 0

    def ask(self, command: str, **arguments: Any) -> Any:
        self.seq += 1
        content = {
            "type": "request",
            "seq": self.seq,
            "command": command,
            "arguments": arguments,
        }
        return self.kernel.request("debug_request", content, "control")

    def attach(self) -> None:
        names = {"clientID": "test", "adapterID": "", "pathFormat": "path"}
        assert self.ask("initialize", **names, linesStartAt1=True)["success"]
        assert self.ask("attach")["success"]
        assert self.ask("configurationDone")["success"]

    def event(self, name: str) -> Any:
        message = self.kernel.wait_iopub(
            lambda m: m["header"]["msg_type"] == "debug_event" and m["content"]["event"] == name
        )
        return message["content"]["body"]
