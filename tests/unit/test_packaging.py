"""The wheel and the sdist, really built: what `pip install` would lay down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from spmd_kernel import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """suffix -> file, built by hatchling itself: no network, no build environment."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return {path.suffix: path for path in folder.iterdir()}


def test_the_wheel_installs_our_kernelspec(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/kernel.json"))
        assert name.endswith(".data/data/share/jupyter/kernels/spmd-python3/kernel.json")
        raw = json.loads(wheel.read(name))
        logos = {Path(name).name for name in wheel.namelist() if "/logo-" in name}
    assert raw["argv"] == ["python", "-m", "spmd_kernel", "-f", "{connection_file}"]
    assert raw["display_name"] == "Distributed (Python 3)"
    assert raw["interrupt_mode"] == "message"
    assert logos == {"logo-32x32.png", "logo-64x64.png", "logo-svg.svg"}


def test_the_wheel_installs_the_extension_of_jupyterlab(built: dict[str, Path]) -> None:
    """Built files and what JupyterLab reads of them; there are none where node is not installed."""
    if not (ROOT / "labextension/dist/package.json").is_file():
        if os.environ.get("SPMD_REQUIRE_BROWSER") == "1":
            pytest.fail("it was not built; hint: make labextension")
        pytest.skip("it was not built, as node is not installed")
    with zipfile.ZipFile(built[".whl"]) as wheel:
        place = ".data/data/share/jupyter/labextensions/spmd-kernel/"
        names = {name.split(place)[1]: name for name in wheel.namelist() if place in name}
        package = json.loads(wheel.read(names["package.json"]))
        assert json.loads(wheel.read(names["install.json"]))["packageName"] == "spmd-kernel"
    assert package["jupyterlab"]["_build"]["load"] in names
    assert "schemas/spmd-kernel/processes.json" in names
    with tarfile.open(built[".gz"]) as sdist:
        packed = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert {
        "labextension/dist/package.json",
        "labextension/src/index.ts",
        "hatch_build.py",
    } <= packed
    assert not [name for name in packed if "node_modules" in name]


def test_one_version_for_both() -> None:
    package = json.loads((ROOT / "labextension/package.json").read_text())
    assert package["version"] == __version__


def test_the_wheel_has_all_modules_and_entry_points(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        names = set(wheel.namelist())
        (entry,) = (name for name in names if name.endswith("entry_points.txt"))
        entry_points = wheel.read(entry).decode()
    modules = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("spmd_kernel/**/*.py")}
    assert modules <= names
    assert "spmd_kernel/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "examples/", "docs/"))]
    assert "spmd-kernel = spmd_kernel.cli:main" in entry_points


def test_the_sdist_builds_the_same(built: dict[str, Path]) -> None:
    with tarfile.open(built[".gz"]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "kernelspec/kernel.json"}
    assert wanted <= names
    assert "examples/quickstart.ipynb" in names
    assert not [name for name in names if name.startswith((".venv", "build", ".git/"))]
