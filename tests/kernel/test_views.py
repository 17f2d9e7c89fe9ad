"""Grouped mode, views, `%output` and log files, with real ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from .client import Kernel, Result

RACE = """
import os, random, sys, time
rank = int(os.environ["RANK"])
for step in range(4):
    time.sleep(random.random() / 5)
    print("step", step)
    print("warning", step, file=sys.stderr)
    print("loss", rank + step)
rank // 2
"""
OUTPUTS = ("stream", "display_data", "execute_result", "error")


def outputs(result: Result) -> list[Any]:
    return [{**content, "execution_count": 0} for content in result.of(*OUTPUTS)]


def test_grouped(pair: Kernel) -> None:
    assert "rank by rank" in pair.ok("%processes --output grouped").stdout
    first, second = pair.ok(RACE), pair.ok(RACE)
    assert outputs(first) == outputs(second)
    texts = [c["text"].splitlines() for c in first.of("stream")]
    assert texts == [
        [line for i in range(4) for line in (f"step {i}", f"0 │ loss {i}", f"1 │ loss {i + 1}")],
        [f"warning {i}" for i in range(4)],
    ]
    kinds = [m["header"]["msg_type"] for m in first.messages]
    assert kinds.index("stream") > kinds.index("execute_input")
    failing = "import os\nprint('x')\nraise ValueError(os.environ['RANK'])"
    errors = [pair.run(failing) for _ in range(2)]
    assert outputs(errors[0])[1:] and [len(e.errors) for e in errors] == [2, 2]
    assert [e.errors[0][:4] for e in errors] == ["0 │ ", "0 │ "]


def test_a_question_is_asked_with_what_came_before_it(pair: Kernel) -> None:
    pair.ok("%processes --output grouped")
    msg_id = pair.send("print('before')\nname = input('who? ')\nprint(name)", allow_stdin=True)
    pair.wait_iopub(lambda m: "before" in str(m["content"].get("text", "")))
    pair.client.get_stdin_msg(timeout=60)
    pair.client.input("ann")
    assert pair.collect(msg_id).stdout.endswith("ann\n")


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMD_OUTPUT", "grouped")
    with Kernel() as kernel:
        text = kernel.ok("%processes 2 --output live").stdout
        assert "SPMD_OUTPUT=grouped wins over --output live" in text
        assert outputs(kernel.ok(RACE)) == outputs(kernel.ok(RACE))


def test_a_view_and_what_it_hides(four: Kernel) -> None:
    four.ok("%processes 4 --show 1")
    code = """
import os
rank = int(os.environ["RANK"])
print("I", rank)
if rank == 3:
    raise KeyError("three")
rank
"""
    result = four.run(code)
    assert result.stdout == "1 │ I 1\n"
    assert [c["data"]["text/plain"] for c in result.of("execute_result")] == ["1 │ 1"]
    assert len(result.errors) == 1 and result.errors[0].startswith("3 │ ")
    assert four.ok("%output 2").stdout == "I 2\n2\n"
    assert "KeyError: 'three'" in four.ok("%output 3").text
    assert four.ok("%output 0-1").stdout == "── rank 0 ──\nI 0\n0\n── rank 1 ──\nI 1\n1\n"
    assert four.ok("%%rank 2\nprint('for me')").stdout == "for me\n"
    four.ok("%processes --show all")
    assert len(four.ok("print('I', rank)").stdout.splitlines()) == 4


def test_log_files_and_a_full_disk(pair: Kernel, tmp_path: Path) -> None:
    pair.ok(f"%processes --log-dir '{tmp_path}/logs of mine'")
    pair.ok("import os\nprint('a\\nb', os.environ['RANK'])")
    for rank in (0, 1):
        assert (tmp_path / f"logs of mine/rank-{rank}.log").read_text() == f"a\nb {rank}\n"
        os.symlink("/dev/full", tmp_path / f"rank-{rank}.log")
    pair.ok(f"%processes --log-dir {tmp_path}")
    first = pair.ok("print('still here')")
    pair.stray += first.messages
    told = pair.wait_iopub(lambda m: "No space left" in str(m["content"].get("text", "")))
    assert told["content"]["name"] == "stderr"
    again = pair.ok("print('and here')")
    assert again.text == "and here\n"
    assert pair.run("%processes --log-dir /proc/x").status == "error"
