"""What our argv, environment and kernelspec decide."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spmd_kernel.core.errors import UsageError
from spmd_kernel.settings import WITHOUT_GPU, Start, from_environment, setup_code

Begin = Callable[..., Start]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Start from a kernelspec of ours with the given ``metadata.spmd``."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))

    def write(name: str, **raw: Any) -> None:
        (tmp_path / "kernels" / name).mkdir(parents=True, exist_ok=True)
        text = json.dumps({"argv": ["x"], **raw})
        (tmp_path / "kernels" / name / "kernel.json").write_text(text)

    def begin(
        spmd: Any = None, environ: Mapping[str, str] | None = None, *argv: str, **options: Any
    ) -> Start:
        write("target", language="julia")
        write("ours", metadata={} if spmd is None else {"spmd": spmd})
        file = tmp_path / "connection.json"
        file.write_text(json.dumps({"kernel_name": "ours", "shell_port": 5, "key": "secret"}))
        return from_environment(["-f", str(file), *argv], environ or {}, **options)

    return begin


def test_by_default_one_python3(begin: Begin) -> None:
    start = begin()
    settings = start.settings
    assert (settings.kernel, settings.language, settings.processes) == ("python3", "python", 1)
    assert (settings.pinned, settings.max_processes, settings.argv) == (None, None, ())
    assert settings.front == {"shell_port": 5}
    assert "secret" not in repr(settings)
    assert start.kernelspec.name == "python3"
    assert start.record is None
    assert begin().settings.session != settings.session


def test_the_kernelspec_names_the_target_and_the_size(begin: Begin) -> None:
    start = begin({"kernel": "target", "processes": 3})
    assert (start.settings.kernel, start.settings.processes) == ("target", 3)
    assert start.settings.setup == ""  # it speaks no Python


def test_the_environment_wins_and_the_limit_holds(begin: Begin) -> None:
    spmd = {"processes": 8}
    assert begin(spmd, {"SPMD_PROCESSES": "2"}).settings.processes == 2
    assert begin(spmd, {"SPMD_PROCESSES": "2"}).settings.pinned == 2
    assert begin(spmd, {"SPMD_PROCESSES": ""}).settings.processes == 8
    limited = begin(spmd, {"SPMD_MAX_PROCESSES": "4"}).settings
    assert (limited.processes, limited.pinned, limited.max_processes) == (4, None, 4)
    both = begin(spmd, {"SPMD_PROCESSES": "16", "SPMD_MAX_PROCESSES": "4"}).settings
    assert (both.processes, both.pinned) == (4, 4)


def test_auto_is_one_per_device(begin: Begin) -> None:
    environ = {"SPMD_PROCESSES": "auto", "CUDA_VISIBLE_DEVICES": ""}
    assert begin(None, environ).settings.processes == WITHOUT_GPU
    assert begin({"processes": "auto"}, {"CUDA_VISIBLE_DEVICES": ""}).settings.pinned is None


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "٣", " "])
@pytest.mark.parametrize("name", ["SPMD_PROCESSES", "SPMD_MAX_PROCESSES"])
def test_a_size_that_is_none_is_refused(name: str, value: str, begin: Begin) -> None:
    if value == " ":
        assert begin(None, {name: value}).settings.processes == 1
        return
    with pytest.raises(UsageError, match=name) as caught:
        begin(None, {name: value})
    assert value in str(caught.value)
    assert "auto" in caught.value.hint


@pytest.mark.parametrize(
    "spmd", [4, "python3", [], {"processes": 0}, {"processes": True}, {"processes": [2]}]
)
def test_metadata_that_makes_no_sense_is_refused(spmd: Any, begin: Begin) -> None:
    with pytest.raises(UsageError, match=r"metadata\.spmd"):
        begin(spmd)


def test_a_target_must_exist_and_not_be_one_of_ours(begin: Begin) -> None:
    with pytest.raises(UsageError, match="'nobody'"):
        begin({"kernel": "nobody"})
    with pytest.raises(UsageError, match="itself"):
        begin({"kernel": "ours"})


def test_arguments_that_are_not_ours_go_to_the_ranks(begin: Begin) -> None:
    start = begin(None, None, "--HistoryManager.enabled=False", "--record", "r.log", "x")
    assert start.settings.argv == ("--HistoryManager.enabled=False", "x")
    assert start.record == "r.log"


def test_the_connection_file_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="-f") as caught:
        from_environment(["--debug"], {})
    assert caught.value.hint
    with pytest.raises(UsageError, match="cannot be read"):
        from_environment(["-f", str(tmp_path / "none.json")], {})
    (tmp_path / "empty.json").write_text("[]")
    with pytest.raises(UsageError, match="no JSON object"):
        from_environment(["-f", str(tmp_path / "empty.json")], {})


@pytest.mark.parametrize("form", ["-f={}", "--f={}"])
def test_forms_of_the_connection_file(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text("{}")
    assert from_environment([form.format("c.json")], {}).connection_file == str(tmp_path / "c.json")


def test_windows_is_refused(begin: Begin) -> None:
    with pytest.raises(UsageError) as caught:
        begin(platform="win32")
    assert "WSL" in caught.value.hint
    assert begin(platform="darwin").settings.linux is False
    assert begin(platform="linux").settings.linux is True


def test_the_setup_code_runs_a_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "it's a \\ file.py"
    path.write_text("import sys\nleft = 1\nprint(__file__)\n", encoding="utf-8")
    code = f"before = set(globals())\n{setup_code(path)}\nprint(set(globals()) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(path), "{'before'}"]


@pytest.mark.parametrize(
    ("value", "output"), [("grouped", "grouped"), (" live ", "live"), ("", None)]
)
def test_how_outputs_are_shown(value: str, output: str | None, begin: Begin) -> None:
    assert begin(None, {"SPMD_OUTPUT": value}).settings.output == output


def test_an_unknown_way_to_show_outputs_is_refused(begin: Begin) -> None:
    with pytest.raises(UsageError, match="SPMD_OUTPUT is 'group'") as caught:
        begin(None, {"SPMD_OUTPUT": "group"})
    assert "live or grouped" in caught.value.hint
