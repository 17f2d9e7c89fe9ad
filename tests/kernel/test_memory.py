"""What big output costs the kernel process, while it passes and afterwards."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .client import DEADLINE, Bytes

SETUP = """
import base64, os
from IPython.display import display
from comm import create_comm
RANK = int(os.environ["RANK"])
png = base64.b64encode(os.urandom(750_000)).decode()
comm = create_comm(target_name="t")
"""
MB = 1_000_000


def kilobytes(file: Path, name: str) -> int:
    (line,) = (line for line in file.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])


def copies(kernel: Bytes, code: str, size: int) -> tuple[float, list[tuple[str, bytes]]]:
    """How many times ``size`` the process grew at the most while it ran ``code``, and what was said."""
    process = Path(f"/proc/{kernel.pid}")
    (process / "clear_refs").write_text("5")  # the peak starts at the present size
    before = kilobytes(process / "status", "VmRSS")
    said, _ = kernel.contents(code)
    return (kilobytes(process / "status", "VmHWM") - before) * 1024 / size, said


def test_a_large_display_passes_with_one_copy_and_a_large_buffer_with_none() -> None:
    """Beside the frame that came.  Receiving takes two for a moment: libzmq's and ours."""
    with Bytes() as kernel:
        kernel.ok("%processes 2")
        kernel.ok(SETUP)
        for mime in ("image/png", "text/html", "application/x-of-my-own"):
            code = f"if RANK == 1: display({{{mime!r}: 'x' * {200 * MB}}}, raw=True)"
            peak, said = copies(kernel, code, 200 * MB)
            assert said[-1][0] == "display_data" and len(said[-1][1]) > 200 * MB
            assert peak <= 2.2, mime
        code = f"if RANK == 1: comm.send({{}}, buffers=[bytes({50 * MB})])"
        peak, ((kind, _),) = copies(kernel, code, 50 * MB)
        assert kind == "comm_msg"
        assert peak <= 1.2


def test_memory_is_given_back_after_big_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart from what is kept on purpose, for clients that come back."""
    monkeypatch.setenv("SPMD_KEPT_OUTPUTS", "0")
    with Bytes() as kernel:
        kernel.client.iopub_channel.socket.rcvhwm = 0
        kernel.ok("%processes 4")
        kernel.ok(SETUP)
        at_rest = pss(kernel)
        for _ in range(2):
            for count, condition in ((200_000, "RANK == 0"), (20_000, "True")):
                lines = f"for i in range({count}): print(RANK, i, 'x' * 69)"
                kernel.contents(f"if {condition}:\n {lines}")
            kernel.contents("for i in range(5): display({'image/png': png}, raw=True)")
        deadline = time.monotonic() + DEADLINE
        while (size := pss(kernel)) > min(at_rest + 8_000, 34_000):
            assert time.monotonic() < deadline, f"{size} kB, {at_rest} kB before"
            time.sleep(
                0.1
            )  # nothing tells us, and nothing else may happen: that would free some, too


def pss(kernel: Bytes) -> int:
    return kilobytes(Path(f"/proc/{kernel.pid}/smaps_rollup"), "Pss")
