"""The parts of the JupyterLab extension import what their place allows, and no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "labextension" / "src"
IMPORT = re.compile(r"""^(?:import|export)\b[^;]*?\bfrom\s+'([^']+)'""", re.MULTILINE)
BELOW = {
    "protocol": {"protocol"},
    "tokens": {"protocol"},
    "model": {"model", "protocol", "tokens"},
    "widgets": {"widgets", "model", "protocol", "tokens"},
    "plugins": {"plugins", "widgets", "model", "protocol", "tokens"},
    "index": {"plugins", "tokens"},
}
FILES = sorted(SOURCES.rglob("*.ts"))


def part(file: Path) -> str:
    return file.relative_to(SOURCES).parts[0].removesuffix(".ts")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCES)))
def test_imports_go_down(file: Path) -> None:
    found = IMPORT.findall(file.read_text("utf-8"))
    own = [(file.parent / name).resolve() for name in found if name.startswith(".")]
    assert {part(target.with_suffix(".ts")) for target in own} <= BELOW[part(file)]
    if part(file) == "protocol":
        assert all(name.startswith(".") for name in found)  # no Lab, no DOM


def test_there_are_files_and_imports() -> None:
    assert {part(file) for file in FILES} == set(BELOW)
    assert any(IMPORT.findall(file.read_text("utf-8")) for file in FILES)
