"""Each check of the doctor, in health and with its fault."""

from __future__ import annotations

import importlib.metadata
import json
import resource
import sys
from pathlib import Path

import pytest

from spmd_kernel import doctor
from spmd_kernel.engines import rundir
from spmd_kernel.kernelspecs import Kernelspec


def levels(findings: doctor.Findings) -> list[str]:
    found = list(findings)
    assert all(finding.hint for finding in found if finding.level == "fault")
    return [finding.level for finding in found]


def only(findings: doctor.Findings) -> doctor.Finding:
    (finding,) = findings
    return finding


def spec(name: str, *argv: str, **spmd: object) -> Kernelspec:
    metadata = {"spmd": spmd} if spmd else {}
    return Kernelspec(name, f"/kernels/{name}", argv, {}, name, "python", "signal", metadata, {})


LAUNCHER = ("-m", "ipykernel_launcher", "-f", "{connection_file}")


@pytest.mark.parametrize(
    ("version", "platform", "level"),
    [
        ((3, 11, 0), "linux", "ok"),
        ((3, 10, 9), "linux", "fault"),
        ((4, 0, 0), "linux", "ok"),
        ((3, 12, 1), "darwin", "note"),
    ],
)
def test_python(version: tuple[int, ...], platform: str, level: str) -> None:
    assert only(doctor.python(version, platform)).level == level


def test_packages_missing_and_old() -> None:
    def version_of(name: str) -> str:
        if name == "pyzmq":
            raise importlib.metadata.PackageNotFoundError(name)
        return {"jupyter_core": "5.2.0rc1", "ipykernel": "10.0"}[name]

    missing, old, fine = doctor.packages(version_of)
    assert (missing.level, missing.hint) == ("fault", "pip install 'pyzmq>=26'")
    assert (old.level, old.hint) == ("fault", "pip install 'jupyter_core>=5.3'")
    assert fine.level == "ok"


def test_what_is_required_is_what_the_package_declares() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for name, least in doctor.REQUIRED.items():
        assert f'"{name}>={".".join(map(str, least))}"' in text


def test_a_good_pair_of_kernelspecs() -> None:
    specs = {
        "spmd-python3": spec("spmd-python3", "python", "-m", "spmd_kernel", kernel="python3"),
        "python3": spec("python3", sys.executable, *LAUNCHER),
    }
    assert levels(doctor.kernelspecs(specs)) == ["ok", "ok"]


def test_the_extension_of_jupyterlab(tmp_path: Path) -> None:
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert only(doctor.labextension(folders)).level == "note"
    installed = tmp_path / "b" / "spmd-kernel"
    installed.mkdir(parents=True)
    (installed / "package.json").write_text("{}")
    assert only(doctor.labextension(folders)).level == "ok"


def test_no_kernelspec_of_ours() -> None:
    finding = only(doctor.kernelspecs({"python3": spec("python3", sys.executable, *LAUNCHER)}))
    assert finding.level == "fault"
    assert "spmd-kernel install" in finding.hint


def test_kernelspecs_with_faults() -> None:
    specs = {
        "spmd-a": spec("spmd-a", "/gone/bin/python", kernel="missing"),
        "spmd-b": spec("spmd-b", "python", kernel="spmd-a"),
        "spmd-c": spec("spmd-c", "python", kernel="moved"),
        "moved": spec("moved", "/gone/bin/python", *LAUNCHER),
    }
    found = list(doctor.kernelspecs(specs))
    faults = [finding.what for finding in found if finding.level == "fault"]
    assert len(faults) == 4
    assert "its interpreter /gone/bin/python does not exist" in faults[0]
    assert "spmd-a runs missing" in faults[1]
    assert "spmd-b runs spmd-a, which is one of ours" in faults[2]
    assert "moved: /gone/bin/python does not exist" in faults[3]


def test_an_interpreter_without_ipykernel(tmp_path: Path) -> None:
    bare = script(tmp_path, f'exec {sys.executable} -S -E -I "$@"')  # sees no site-packages
    specs = {
        "spmd-bare": spec("spmd-bare", "python", kernel="bare"),
        "bare": spec("bare", str(bare), *LAUNCHER),
    }
    _, fault = doctor.kernelspecs(specs)
    assert "No module named 'ipykernel'" in fault.what
    assert fault.hint == f"{bare} -m pip install ipykernel"


def script(folder: Path, line: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def test_an_interpreter_that_hangs_is_given_up(tmp_path: Path) -> None:
    hanging = script(tmp_path, "exec sleep 600")
    assert "no answer" in doctor.import_problem(str(hanging), seconds=0.2)


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("")
    assert "denied" in doctor.import_problem(str(tmp_path / "python"))


def test_a_kernel_of_another_kind_is_only_looked_up() -> None:
    specs = {
        "spmd-sh": spec("spmd-sh", "python", kernel="sh"),
        "sh": spec("sh", "sh", "{connection_file}"),
    }
    assert levels(doctor.kernelspecs(specs)) == ["ok", "ok"]


@pytest.fixture
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where run directories may be made, instead of this machine's folders; to be filled."""
    found: list[str] = []
    monkeypatch.setattr(rundir, "_bases", lambda _: found)
    return found


def test_run_directory(bases: list[str], tmp_path: Path) -> None:
    bases[:] = [str(tmp_path)]
    assert only(doctor.run_directory({})).level == "ok"
    assert list(tmp_path.iterdir()) == []


def test_no_run_directory(bases: list[str]) -> None:
    for bases[:] in ([], ["/no/such/folder"]):
        fault = only(doctor.run_directory({}))
        assert (fault.level, "TMPDIR" in fault.hint) == ("fault", True)
    assert "No such file" in fault.what


def test_a_run_directory_without_sockets(bases: list[str], tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)  # bind() refuses so long a path, as it does some file systems
    deep.mkdir()
    bases[:] = [str(deep)]
    fault = only(doctor.run_directory({}))
    assert (fault.level, "no socket" in fault.what) == ("fault", True)
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize(
    ("hard", "level"),
    [(resource.RLIM_INFINITY, "ok"), (4096, "ok"), (128, "note"), (70, "fault"), (20, "fault")],
)
def test_open_files(hard: int, level: str) -> None:
    assert only(doctor.open_files(64, hard)).level == level


@pytest.mark.parametrize(
    ("value", "level"), [(None, "ok"), ("1", "ok"), ("8", "note"), ("4,2", "note")]
)
def test_threads(value: str | None, level: str) -> None:
    environ = {} if value is None else {"OMP_NUM_THREADS": value}
    assert only(doctor.threads(environ, 2)).level == level


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("SPMD_PROCESSES", "4", "ok"),
        ("SPMD_PROCESSES", "0", "fault"),
        ("SPMD_PROCESSES", " auto ", "ok"),
        ("SPMD_PROCESSES", "", "ok"),
        ("SPMD_PROCESSES", "2x", "fault"),
        ("SPMD_MAX_PROCESSES", "-2", "fault"),
        ("SPMD_MAX_PROCESSES", "16", "ok"),
        ("SPMD_LOG", "debug", "ok"),
        ("SPMD_LOG", "loud", "fault"),
        ("SPMD_PROCESES", "4", "note"),
    ],
)
def test_variables(name: str, value: str, level: str) -> None:
    assert only(doctor.variables({name: value, "HOME": "/"})).level == level


@pytest.mark.parametrize(
    ("available", "level"), [(None, "note"), (8 << 30, "ok"), (50 << 20, "fault")]
)
def test_memory(available: int | None, level: str) -> None:
    assert only(doctor.memory(available)).level == level


def test_our_own_kernel_json_is_what_the_doctor_calls_ours() -> None:
    raw = json.loads((Path(__file__).parents[2] / "kernelspec/kernel.json").read_text())
    assert raw["metadata"]["spmd"] == {"kernel": "python3", "processes": 1}
