"""Lines that real ranks rewrite, in a headless run: who reads its log sees them too."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spmd_kernel.core.outputs import parse_label

from .client import Kernel, Result

# The kernel as it is, but that half a second stands for thirty.
MAIN = """
import sys
from spmd_kernel.core.outputs import policy
policy.RESTATES["headless"] = 0.5
from spmd_kernel.__main__ import main
sys.exit(main())
"""
# Each rank rewrites its line until we have seen enough.
BARS = """
import os, sys, time
rank, step = os.environ["RANK"], 0
while not os.path.exists({seen!r}):
    step += 1
    print(f"\\r{{step}} steps of {{rank}}", end="", file=sys.stderr, flush=True)
    time.sleep(0.02)
print(f"\\rended on {{rank}}".ljust(30), file=sys.stderr)
"""


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    spec: dict[str, Any] = {
        "argv": [sys.executable, "-c", MAIN, "-f", "{connection_file}"],
        "display_name": "hasty",
        "language": "python",
    }
    folder = tmp_path / "kernels" / "hasty"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    with Kernel("hasty") as kernel:
        yield kernel


@pytest.mark.parametrize("size", [2, 4])
def test_lines_that_are_rewritten_are_said_from_time_to_time(
    hasty: Kernel, size: int, tmp_path: Path
) -> None:
    hasty.ok(f"%processes {size}")

    def watch(result: Result) -> None:
        said = [line for c in result.of("stream") for line in c["text"].splitlines()]
        if min(sum(f"of {rank}" in line for line in said) for rank in range(size)) >= 3:
            (tmp_path / "seen").touch()

    result = hasty.collect(hasty.send(BARS.format(seen=str(tmp_path / "seen"))), watch)
    assert result.status == "ok"
    steps: dict[int, list[int]] = {rank: [] for rank in range(size)}
    ended = []
    for line in "".join(c["text"] for c in result.of("stream")).splitlines():
        ranks, text = parse_label(line)
        assert ranks is not None and len(ranks) == 1, line
        if text.startswith("ended"):
            assert text == f"ended on {ranks[0]}"
            ended.append(ranks[0])
        else:
            number, _, rest = text.partition(" ")
            assert rest == f"steps of {ranks[0]}"
            steps[ranks[0]].append(int(number))
    assert sorted(ended) == list(range(size))
    for said in steps.values():
        assert said == sorted(set(said))  # a state of the line is said once
        assert len(said) < said[-1]  # and far from every one
    assert len(result.of("display_data")) == 1  # the slot, for whoever looks at the notebook


def test_a_notebook_with_a_reader_gets_the_display_alone(hasty: Kernel, tmp_path: Path) -> None:
    """The cell is one of a notebook in which somebody can answer questions."""
    hasty.ok("%processes 2")
    content = {"code": BARS.format(seen=str(tmp_path / "seen")), "silent": False, "allow_stdin": True}  # fmt: skip
    request = hasty.client.session.msg("execute_request", content, metadata={"cellId": "c"})
    hasty.client.shell_channel.send(request)

    def watch(result: Result) -> None:
        if len(result.of("update_display_data")) > 20:  # of which ten take a second
            (tmp_path / "seen").touch()

    result = hasty.collect(request["header"]["msg_id"], watch)
    assert result.status == "ok"
    text = "".join(content["text"] for content in result.of("stream"))
    assert sorted(text.splitlines()) == ["0 │ ended on 0", "1 │ ended on 1"]
