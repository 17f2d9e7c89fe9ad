"""Sessions that real ranks had, replayed: the merger asks them, and tells clients, what it did then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ...dap_traces import replay

GOLDEN = sorted((Path(__file__).parents[2] / "golden" / "dap").glob("*.jsonl"))


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_a_session_of_real_ranks(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    size = int(file.stem.rpartition("-")[2])
    for number, (line, now) in enumerate(zip(lines, replay(lines, size), strict=True), 1):
        assert now["out"] == line["out"], f"line {number} at {line['in']}"


def test_there_are_some() -> None:
    assert {file.stem.rpartition("-")[2] for file in GOLDEN} == {"2", "4"}
