"""The story of examples/debugging.ipynb, with an editor that does what its reader is told to do."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from .client import Kernel
from .dap import thread
from .editor import Address, Editor, editor

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "debugging.ipynb"
WRONG = "mean of all ranks 10.542, in one process 11.500\n"
RIGHT = "mean of all ranks 11.500, in one process 11.500\n"


def line_of(code: str, text: str) -> int:
    (found,) = [n for n, line in enumerate(code.splitlines(), 1) if line.strip().startswith(text)]
    return found


def values(one: Editor, frame: dict[str, object], name: str) -> dict[str, str]:
    """Of a variable in the scope of all ranks, by ranks."""
    row = one.scope(frame, "All ranks")[f"{name} ≠"]
    assert row["variablesReference"] > 0, row  # it differs: one row for each value
    return {key: child["value"] for key, child in one.rows(row["variablesReference"]).items()}


def test_the_story() -> None:
    cells = {cell.id: cell.source for cell in nbformat.read(EXAMPLE, as_version=4).cells}
    code = cells["mean"]
    with Kernel() as kernel:
        kernel.ok(cells["start"])
        kernel.ok(cells["setup"])
        assert kernel.ok(code).stdout == WRONG  # the same everywhere, and of no use
        address = Address(kernel.ok(cells["port"]).stdout)
        files = kernel.ok(cells["files"]).stdout
        with editor(address) as one:
            (path,) = [s["path"] for s in loaded(one) if Path(s["path"]).read_text() == code]
            assert path in files

            # stop all ranks and compare them
            one.break_at(path, line_of(code, "sums ="))
            cell = kernel.send(code)
            assert set(one.stops(4)) == {0, 1, 2, 3}
            frame = one.frames(thread(0))[0]
            assert one.scope(frame, "All ranks")["(where)"]["value"] == "global_mean:11"
            parts = values(one, frame, "part")
            assert len(parts) == 4
            assert [key for key, value in parts.items() if "0., " in value and "22." in value] == [
                next(key for key in parts if key.startswith(("3", "rank 3")))
            ]
            one.ask("continue", threadId=thread(0))
            assert kernel.collect(cell).stdout == WRONG

            # stop one rank only
            line = line_of(code, "return torch.cat")
            one.break_at(path, {"line": line, "condition": "RANK == WORLD_SIZE - 1"})
            cell = kernel.send(code)
            stop = one.event("stopped")
            assert stop["threadId"] == thread(3) and not stop["allThreadsStopped"]
            frame = one.frames(thread(3))[0]
            assert one.scope(frame, "Locals")["missing"]["value"] == "2"
            states = {t["id"]: t["name"] for t in one.ask("threads")["threads"]}
            assert [states[thread(rank)].endswith("(running)") for rank in range(4)] == [
                True,
                True,
                True,
                False,
            ]
            one.ask("continue", threadId=thread(3))
            assert kernel.collect(cell).stdout == WRONG

            # the condition without a rank finds it, too
            one.break_at(path, {"line": line, "condition": "missing > 0"})
            cell = kernel.send(code)
            assert one.event("stopped")["threadId"] == thread(3)
            one.ask("continue", threadId=thread(3))
            assert kernel.collect(cell).stdout == WRONG
            assert kernel.ok(cells["repair"]).stdout == RIGHT
            kernel.ok(cells["off"])
            one.wait_closed()


def loaded(one: Editor) -> list[dict[str, str]]:
    return list(one.ask("loadedSources")["sources"])
