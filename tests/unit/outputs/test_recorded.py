"""Output of four real ranks as it arrived (seconds, rank, kind, text), and how it has to look."""

import json
from pathlib import Path

import pytest

from .document import Cell, error

RECORDED = sorted((Path(__file__).parents[2] / "golden" / "outputs").glob("*.json"))


def shown(size, events):
    cell = Cell(size)
    for at, rank, kind, text in events:
        cell.wait(at - cell.at)
        if kind == "finish":
            cell.finish(rank)
        else:
            cell.feed(rank, error(text) if kind == "error" else text, kind)
    cell.close()
    return [[kind, _look(content)] for kind, content in cell.shown()]


def _look(content):
    if "traceback" in content:
        return "\n".join(content["traceback"])
    return content["text"] if "text" in content else content["data"]["text/plain"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded(path):
    record = json.loads(path.read_text())
    assert shown(record["size"], record["events"]) == record["shown"]
