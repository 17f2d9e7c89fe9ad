"""What must hold of the debugger, with ranks of Python 3.13, where debugpy uses `sys.monitoring`.

Such a Python is looked for on the PATH, among pyenv's, and in SPMD_PYTHON313; its environment has
ipykernel alone and is kept in the user's cache, so that only the first run installs it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from .client import Kernel
from .dap import Dap
from .test_debugger import (  # noqa: F401 - run here once more, with the fixtures below
    test_a_page_that_is_reloaded_is_told_all,
    test_a_stopped_rank_is_killed,
    test_breakpoint_in_code,
    test_child_processes_are_left_alone,
    test_conditions_hits_and_log_points,
    test_continue_reaches_stopped_ranks_only,
    test_disconnect_lets_stopped_ranks_go_on,
    test_one_rank_steps_alone,
    test_pause,
    test_step_off_the_end_of_a_cell,
    test_stop_look_step_and_go_on,
    test_stop_while_stopped_and_breakpoints_still_work,
    test_the_failure_of_one_rank_while_the_other_waits,
    test_threads_of_the_kernel_itself_never_stop,
    test_threads_that_stopped_beside_a_cell_go_on_when_stop_ends_it,
    test_what_can_be_done_at_a_breakpoint_in_code,
    test_what_comes_as_it_disconnects_does_not_spoil_the_next_session,
    test_what_is_held_of_a_rank_that_ran_on_is_stale,
)

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]

REQUIRED = bool(os.environ.get("SPMD_REQUIRE_KERNELS"))  # in CI nothing is skipped
CHOSEN = os.environ.get("SPMD_PYTHON313")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spmd-kernel-tests"
PACKAGES = [f"{name}=={version(name)}" for name in ("ipykernel", "debugpy", "ipython")]


def python313() -> str | None:
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob("3.13*/bin/python"))
    for found in (CHOSEN, shutil.which("python3.13"), *map(str, pyenv)):
        if found and told(found).startswith("3.13"):
            return found
    return None


def told(python: str) -> str:
    """Its version; pyenv's shims say nothing when there is none behind them."""
    code = "import platform; print(platform.python_version())"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def environment(python: str) -> Path:
    """A virtual environment's python, made unless it is in the cache."""
    name = "-".join([told(python), *PACKAGES]).replace("==", "-")
    place = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([python, "-m", "venv", place], check=True)
            pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", *PACKAGES]
            done = subprocess.run(pip, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            (place / "complete").touch()
    return place / "bin" / "python"


@pytest.fixture(scope="module")
def jupyter_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With kernelspecs of it, and of ours with such ranks."""
    if (python := python313()) is None:
        if REQUIRED:
            pytest.fail("there is no Python 3.13")
        pytest.skip("there is no Python 3.13")
    folder = tmp_path_factory.mktemp("jupyter")
    argv = [str(environment(python)), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    theirs = {"argv": argv, "display_name": "Python 3.13", "language": "python"}
    place = folder / "kernels" / "python313"
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps({**theirs, "metadata": {"debugger": True}}))
    return folder


@pytest.fixture(scope="module")
def kernel(jupyter_path: Path) -> Iterator[Kernel]:
    ours = jupyter_path / "kernels" / "spmd-python313"
    ours.mkdir()
    argv = [sys.executable, "-m", "spmd_kernel", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "x", "language": "python"}
    (ours / "kernel.json").write_text(
        json.dumps({**spec, "metadata": {"debugger": True, "spmd": {"kernel": "python313"}}})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(jupyter_path))
        with Kernel("spmd-python313") as kernel:
            kernel.ok("%processes 2")
            yield kernel


@pytest.fixture
def two(kernel: Kernel) -> Iterator[Dap]:
    kernel.stray.clear()
    dap = Dap(kernel)
    dap.start()
    yield dap
    dap.ask("disconnect")
    dap.so_far()


@pytest.fixture
def few(two: Dap) -> Dap:
    return two


def test_ranks_are_of_that_python_and_it_monitors(two: Dap) -> None:
    code = "import sys; print(sys.version_info[:2], sys.monitoring.get_tool(sys.monitoring.DEBUGGER_ID))"
    assert two.kernel.ok(code).stdout == "(3, 13) pydevd\n"
