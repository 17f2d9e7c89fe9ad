"""Text of real ranks: what folds, what stays together, whose it is.

Where it matters that ranks say the same at about the same time, which a busy machine does not
promise, outputs are grouped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spmd_kernel.core.outputs import parse_label

from .client import ANSI, Kernel

# Every rank prints at its own pace; nothing is equal on all of them but what is meant to be.
BLOCKS = """
import os, random, sys, time
import numpy as np
rank = int(os.environ["RANK"])
blocks = []
def block(text, file=sys.stdout):
    blocks.append(str(text))
    print(text, file=file)
for step in range(6):
    time.sleep(random.random() / 20)
    block(np.arange(6).reshape(2, 3) * 10 + rank)
    block(f"a table of {rank}\\n" + "\\n".join(f"| {i} | {i * rank} |" for i in range(3)))
    print("step", step)
    try:
        raise ValueError(f"of {rank}")
    except ValueError:
        import traceback
        block(traceback.format_exc().rstrip())
"""


@pytest.mark.parametrize("size", [2, 4, 8])
def test_what_one_write_says_stays_together(size: int) -> None:
    with Kernel() as kernel:
        kernel.ok(f"%processes {size}")
        lines = [parse_label(line) for line in kernel.ok(BLOCKS).stdout.splitlines()]
        for rank in range(size):
            mine = [
                (i, rest) for i, (ranks, rest) in enumerate(lines) if not ranks or rank in ranks
            ]
            text = "\n".join(rest for _, rest in mine)
            (said,) = kernel.ok(f"%rank {rank} blocks").of("execute_result")
            assert [r for r in mine if r[1].startswith("step")][-1][1] == "step 5"
            for block in eval(_unlabelled(said["data"]["text/plain"])):
                assert block in text
                at = text[: text.index(block)].count("\n")
                places = [i for i, _ in mine[at : at + block.count("\n") + 1]]
                assert places == list(range(places[0], places[0] + len(places)))


def _unlabelled(text: str) -> str:
    return "\n".join(parse_label(line)[1] for line in text.splitlines())


def test_text_that_differs_only_by_its_process_is_one(four: Kernel) -> None:
    four.ok("%processes --output grouped")
    code = """
import os, time
rank = int(os.environ["RANK"])
print(f"on cuda:{rank}", f"tensor at 0x7f{rank:010x}")
print(f"12:00:0{rank} ready")
print("checksum", hex(0xabcdef0 + rank))
"""
    lines = four.ok(code).stdout.splitlines()
    assert lines[:2] == ["on cuda:* tensor at 0x7f0000000000", "12:00:00 ready"]
    assert lines[2:] == [f"{rank} │ checksum {hex(0xABCDEF0 + rank)}" for rank in range(4)]


def test_lines_that_read_like_labels_get_one(four: Kernel) -> None:
    four.ok("%processes --output grouped")
    code = "import os\nprint('0 │ x')\nprint(os.environ['RANK'], '│ y')"
    lines = four.ok(code).stdout.splitlines()
    assert lines == ["0-3 │ 0 │ x", *(f"{rank} │ {rank} │ y" for rank in range(4))]


def test_colour_left_open_colours_no_label_and_no_other_rank(pair: Kernel) -> None:
    code = """
import os
rank = os.environ["RANK"]
print(f"\\x1b[31mred {rank}\\nstill\\nagain {rank}\\x1b[0m plain")
print("after", rank)
"""
    text = pair.ok(code).stdout
    for line in text.splitlines():
        label, _, rest = line.partition("│ ")
        assert "\x1b" not in label
        assert rest.count("\x1b[31m") == rest.count("\x1b[0m")
    rank_0 = [line for line in ANSI.sub("", text).splitlines() if line.startswith("0")]
    assert rank_0 == ["0 │ red 0", "0 │ still", "0 │ again 0 plain", "0 │ after 0"]


def test_unfinished_lines_are_shown_and_finished(pair: Kernel, tmp_path: Path) -> None:
    """The ranks go on when we have seen what they began."""
    code = f"""
import os, time
print("working", end="", flush=True)
while not os.path.exists({str(tmp_path / "seen")!r}):
    time.sleep(0.01)
print(" done", os.environ["RANK"])
"""
    msg_id = pair.send(code)
    pair.wait_iopub(lambda m: m["content"].get("text") == "working")
    (tmp_path / "seen").touch()
    lines = pair.collect(msg_id).stdout.splitlines()
    # The line that was open is ended, and each rank's part of it goes on under its label.
    assert lines[0] == ""
    assert sorted(lines[1:]) == ["0 │  done 0", "1 │  done 1"]


def test_marks_are_seen_by_nobody(pair: Kernel) -> None:
    pair.ok("%processes --output grouped")
    code = """
from IPython.utils.capture import capture_output
with capture_output() as captured:
    print("a\\nb")
print(repr(captured.stdout))
captured.show()
print("kept:", repr("".join(get_ipython().history_manager.outputs[3][0].bundle["stream"])))
"""
    pair.ok("print('c\\nd')")
    assert pair.ok(code).stdout.splitlines() == ["'a\\nb\\n'", "a", "b", "kept: 'c\\nd\\n'"]
    own = "print('\\x1fx\\n\\x1f\\x1fy', end='\\x1f\\n')"
    assert pair.ok(own).stdout == "\x1fx\n\x1f\x1fy\x1f\n"
    pair.ok("%processes 1")
    assert pair.ok(own).stdout == "\x1fx\n\x1f\x1fy\x1f\n"


def test_lines_of_a_command_are_lines(pair: Kernel) -> None:
    pair.ok("%processes --output grouped")
    lines = pair.ok("!printf 'one\\ntwo %s\\nthree\\n' $RANK").stdout.splitlines()
    assert lines == ["one", "0 │ two 0", "1 │ two 1", "three"]
