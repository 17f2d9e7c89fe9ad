"""Kernelspecs as `jupyter_client.kernelspec`, the oracle, finds and reads them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from spmd_kernel.core.errors import UsageError
from spmd_kernel.kernelspecs import all_kernelspecs, find


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory with kernelspecs."""
    for name in ("JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    for where in ("ENV_JUPYTER_PATH", "SYSTEM_JUPYTER_PATH"):
        monkeypatch.setattr(f"jupyter_core.paths.{where}", [])
    return tmp_path / "kernels"


def write(directory: Path, name: str, **raw: Any) -> Path:
    path = directory / name
    path.mkdir(parents=True)
    (path / "kernel.json").write_text(json.dumps({"argv": ["x"], **raw}))
    return path


# jupyter_client skips a kernelspec with fields that it does not know, if that is an error.
@pytest.mark.filterwarnings("ignore:Passing unrecognized arguments")
def test_what_is_installed_is_what_jupyter_client_finds() -> None:
    oracle = KernelSpecManager().get_all_specs()
    found = all_kernelspecs()
    assert found.keys() == oracle.keys()
    for name, spec in found.items():
        expected = oracle[name]["spec"]
        assert list(spec.argv) == expected["argv"]
        assert spec.display_name == expected["display_name"]
        assert spec.language == expected["language"]
        assert spec.interrupt_mode == expected["interrupt_mode"]
        assert os.path.samefile(spec.resource_dir, oracle[name]["resource_dir"])


def test_python3_needs_no_kernel_json(kernels: Path) -> None:
    spec = find("python3")
    oracle = KernelSpecManager().get_kernel_spec("python3")
    assert list(spec.argv) == oracle.argv
    assert spec.resource_dir == oracle.resource_dir
    assert spec.is_python
    assert spec.is_ipykernel
    assert list(all_kernelspecs()) == ["python3"]


def test_fields_are_read(kernels: Path) -> None:
    path = write(
        kernels, "Julia-1.10",
        argv=["julia", "{connection_file}"], display_name="Julia", language="julia",
        interrupt_mode="message", env={"A": "1"}, metadata={"spmd": {}},
    )  # fmt: skip
    spec = find("julia-1.10")
    assert (spec.name, spec.resource_dir) == ("julia-1.10", str(path))
    assert (spec.display_name, spec.language, spec.interrupt_mode) == ("Julia", "julia", "message")
    assert (spec.env, spec.metadata) == ({"A": "1"}, {"spmd": {}})
    assert spec.raw["argv"] == ["julia", "{connection_file}"]
    assert not spec.is_python
    assert not spec.is_ipykernel
    assert find("JULIA-1.10") == spec


def test_the_first_directory_wins(kernels: Path) -> None:
    write(Path(sys.prefix) / "share" / "jupyter" / "kernels", "r", display_name="of the prefix")
    assert find("r").display_name == "of the prefix"
    write(kernels, "r", display_name="of JUPYTER_PATH")
    assert find("r").display_name == "of JUPYTER_PATH"


@pytest.mark.parametrize(
    "program", ["python", "python3", "python{}.{}".format(*sys.version_info), "python2", "julia"]
)
def test_the_command_is_jupyter_clients(program: str, kernels: Path) -> None:
    argv = [program, "{resource_dir}/k", "{prefix}", "{unknown}", "-f", "{connection_file}", "~/x"]
    path = write(kernels, "k", argv=argv)
    executable = sys.executable if program in ours() else program
    home = os.path.expanduser("~")
    assert find("k").command("/c.json", ["--extra={prefix}"]) == [
        executable, f"{path}/k", sys.prefix, "{unknown}", "-f", "/c.json", f"{home}/x",
        "--extra={prefix}",
    ]  # fmt: skip


def ours() -> set[str]:
    return {"python", "python3", "python{}.{}".format(*sys.version_info)}


def test_the_environment_is_templated(kernels: Path) -> None:
    env = {"A": "$BASE/a", "B": "${BASE}b", "C": "$NOBODY", "D": "$$"}
    write(kernels, "k", env=env, language="python")
    environ = {"BASE": "/base", "PYTHONEXECUTABLE": "/other"}
    assert find("k").environment(environ) == {
        "BASE": "/base", "A": "/base/a", "B": "/baseb", "C": "$NOBODY", "D": "$",
    }  # fmt: skip


def test_a_missing_one_is_an_error_that_names_the_others(kernels: Path) -> None:
    write(kernels, "r")
    with pytest.raises(UsageError, match="'julia'") as caught:
        find("julia")
    assert caught.value.hint == "installed are: python3, r"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"argv": []}', '{"argv": "python"}', '{"argv": ["x"], "env": 3}']
)
def test_a_broken_one_is_an_error_but_hides_no_other(text: str, kernels: Path) -> None:
    (write(kernels, "broken") / "kernel.json").write_text(text)
    write(kernels, "good")
    with pytest.raises(UsageError, match="'broken'") as caught:
        find("broken")
    assert str(kernels / "broken" / "kernel.json") in caught.value.hint
    assert set(all_kernelspecs()) == {"good", "python3"}


@pytest.mark.parametrize(
    ("raw", "distributed"),
    [
        ({"metadata": {"spmd": {}}}, True),
        ({"argv": ["python", "-m", "spmd_kernel", "-f", "{connection_file}"]}, True),
        ({"argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]}, False),
    ],
)
def test_ranks_are_never_this_kernel_again(kernels: Path, raw: Any, distributed: bool) -> None:
    """A copy of our kernelspec without its metadata would start itself without end."""
    write(kernels, "k", **raw)
    assert find("k").is_distributed is distributed
