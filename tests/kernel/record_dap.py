"""Writes the traces in tests/golden/dap anew, with real ranks; `tests.dap_traces` says what they are.

    python -m tests.kernel.record_dap [NAME…]

After that, look at the difference: git diff --stat, and a few lines of each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spmd_kernel.io.record import read

from ..dap_traces import of_recording, plain
from .client import Kernel
from .dap import CODE, Dap, thread

GOLDEN = Path(__file__).parent.parent / "golden" / "dap"


class Patient(Dap):
    """It does not fill the trace with questions."""

    def until_stopped(self, ranks: set[int]) -> Any:
        time.sleep(1)
        return super().until_stopped(ranks)


def lockstep(dap: Dap) -> None:
    """Stop, look, step, go on; the scope of all ranks."""
    dap.breakpoints(CODE, 4)
    cell = dap.kernel.send(CODE)
    dap.stopped()
    dap.until_stopped({0, 1})
    dap.ok("threads")
    frame = dap.frames()[0]
    dap.scope(frame, "Locals")
    dap.scope(frame, "All ranks")
    dap.ok("evaluate", expression="%all a", frameId=frame["id"])
    dap.ok("next", threadId=1)
    dap.stopped()
    dap.until_stopped({0, 1})
    dap.ask("scopes", frameId=frame["id"])  # stale
    dap.ok("continue", threadId=1)
    dap.kernel.collect(cell)
    dap.ok("continue", threadId=1)


def alone(dap: Dap) -> None:
    """Four ranks; a condition on some, one that steps alone, a step off the end of the cell."""
    dap.breakpoints(CODE, {"line": 4, "condition": "RANK >= 2"}, 8)
    cell = dap.kernel.send(CODE)
    dap.stopped()
    dap.until_stopped({0, 1, 2, 3})
    dap.ok("next", threadId=thread(2), singleThread=True)
    dap.event("stopped", lambda body: body["reason"] == "step")
    dap.scope(dap.frames(thread(2))[0], "All ranks")
    dap.ok("continue", threadId=thread(2), singleThread=True)
    dap.until_stopped({0, 1, 2, 3})
    dap.ok("continue", threadId=thread(3), singleThread=True)
    dap.until_stopped({0, 1, 2, 3})
    dap.ok("next", threadId=1)
    dap.kernel.collect(cell)
    dap.kernel.ok("1 + 1")


def failure(dap: Dap) -> None:
    """One rank stops at its error while the other waits for it; then the user presses Stop."""
    code = (
        "import os, threading\ngo = threading.Event()\n"
        "if os.environ['RANK'] == '1':\n    1 / 0\nelse:\n    while not go.wait(0.1): pass\n"
    )
    dap.kernel.run("1 / 0")  # the first traceback takes seconds
    dap.ok("dumpCell", code=code)
    dap.ok("setExceptionBreakpoints", filters=["userUnhandled"])
    cell = dap.kernel.send(code)
    dap.stopped()
    dap.ok("exceptionInfo", threadId=1)
    dap.frames(thread(0))
    dap.scope(dap.frames(thread(1))[0], "All ranks")
    dap.ok("continue", threadId=1)
    dap.kernel.request("interrupt_request", {}, "control")
    dap.kernel.collect(cell)


def death(dap: Dap) -> None:
    """A rank is killed while both are stopped."""
    dap.breakpoints(CODE, 4)
    cell = dap.kernel.send(CODE)
    rank = (dap.stopped()["threadId"] >> 16) - 1
    dap.until_stopped({0, 1})
    pid = dap.ok("evaluate", expression="os.getpid()", frameId=dap.frames()[0]["id"])["result"]
    os.kill(int(pid), signal.SIGKILL)
    dap.event("output", lambda body: f"rank {rank} died" in body["output"])
    dap.stopped()
    dap.frames()
    dap.ok("continue", threadId=1)
    dap.kernel.collect(cell)


def again(dap: Dap) -> None:
    """Stop while all are stopped; then disconnected while they are, and attached again."""
    dap.breakpoints(CODE, 4)
    cell = dap.kernel.send(CODE)
    dap.stopped()
    dap.until_stopped({0, 1})
    dap.kernel.request("interrupt_request", {}, "control")
    dap.kernel.collect(cell)
    cell = dap.kernel.send(CODE)
    dap.stopped()
    dap.until_stopped({0, 1})
    dap.ok("disconnect")
    dap.kernel.collect(cell)
    dap.start()
    dap.breakpoints(CODE, 5)
    cell = dap.kernel.send(CODE)
    dap.stopped()
    dap.until_stopped({0, 1})
    dap.ok("continue", threadId=1)
    dap.kernel.collect(cell)


SCENES: dict[str, tuple[int, Callable[[Dap], None]]] = {
    "lockstep-2": (2, lockstep),
    "alone-4": (4, alone),
    "failure-2": (2, failure),
    "death-2": (2, death),
    "again-2": (2, again),
}


def record(name: str) -> None:
    size, scene = SCENES[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recording"
        with Kernel(extra_arguments=["--record", str(file)]) as kernel:
            kernel.ok(f"%processes {size}")
            dap = Patient(kernel)
            dap.start()
            scene(dap)
            dap.so_far()
        lines = file.read_text().splitlines(keepends=True)
    settings, _ = read(lines)
    text = "".join(json.dumps(line) + "\n" for line in of_recording(lines))
    (GOLDEN / f"{name}.jsonl").write_text(plain(text, settings.cells))


if __name__ == "__main__":
    for name in sys.argv[1:] or SCENES:
        record(name)
