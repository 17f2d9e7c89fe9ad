"""Ranks of kernels that are not ipykernel: Bash's, R's (no Python at all) and xeus-python (C++)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .client import Kernel
from .test_hostile import LOOPBACK, family, listening

REQUIRED = bool(os.environ.get("SPMD_REQUIRE_KERNELS"))  # in CI nothing is skipped
BASH = [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"]
XEUS = [sys.executable, "-m", "xpython_launcher", "-f", "{connection_file}"]
R = ["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"]
SPECS: dict[str, dict[str, Any]] = {
    "bash": {"argv": BASH, "display_name": "Bash", "language": "bash", "env": {"PS1": "$"}},
    "ir": {"argv": R, "display_name": "R", "language": "R"},
    "xpython": {"argv": XEUS, "display_name": "XPython", "language": "python"},
}


def is_there(name: str) -> bool:
    if name == "ir":
        command = ["Rscript", "-e", "stopifnot(requireNamespace('IRkernel', quietly = TRUE))"]
        return (
            bool(shutil.which("R")) and not subprocess.run(command, capture_output=True).returncode
        )
    return find_spec({"bash": "bash_kernel", "xpython": "xpython"}[name]) is not None


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Jupyter folder with the three kernelspecs, and the distributed one of each."""
    folder = tmp_path_factory.mktemp("jupyter")
    for name, spec in SPECS.items():
        place = folder / "share" / "jupyter" / "kernels" / name
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(spec))
        install(name, folder)
    return folder / "share" / "jupyter"


def install(name: str, prefix: Path) -> None:
    env = {**os.environ, "JUPYTER_PATH": str(prefix / "share" / "jupyter")}
    words = ["-m", "spmd_kernel.cli", "install", "--kernel", name, "--prefix", str(prefix)]
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def started(
    request: pytest.FixtureRequest, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kernel]:
    name = request.param
    if not is_there(name):
        if REQUIRED:
            pytest.fail(f"the kernel {name} is not installed")
        pytest.skip(f"the kernel {name} is not installed")
    monkeypatch.setenv("JUPYTER_PATH", str(installed))
    with Kernel(f"spmd-{name}") as kernel:
        yield kernel


def kernels(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("started", names, indirect=True)


def test_the_distributed_kernelspec_is_named_after_its_kernel(installed: Path) -> None:
    shown = {
        name: json.loads((installed / "kernels" / f"spmd-{name}" / "kernel.json").read_text())
        for name in SPECS
    }
    assert shown["bash"]["display_name"] == "Distributed (Bash)"
    assert shown["bash"]["language"] == "bash"
    assert shown["ir"]["display_name"] == "Distributed (R)"


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def interrupt(kernel: Kernel, code: str, began: str) -> Any:
    """Run ``code``, and interrupt it once it has printed ``began``."""
    asked = []

    def watch(result: Any) -> None:
        if began in result.stdout and not asked:
            asked.append(kernel.request("interrupt_request", {}, "control"))

    result = kernel.collect(kernel.send(code), watch)
    assert asked == [{"status": "ok"}]
    return result


def states(kernel: Kernel) -> list[str]:
    """Of the ranks, as ``%ranks`` says."""
    return re.findall(r"\b(idle|busy|dead|starting)\b", kernel.ok("%ranks").text)


def check_what_is_not_offered(kernel: Kernel) -> None:
    info = kernel.request("kernel_info_request", {})
    assert info["debugger"] is False
    assert not {"debugger", "kernel subshells"} & set(info["supported_features"])
    for kind in ("debug_request", "create_subshell_request"):
        reply = kernel.request(kind, {"command": "debugInfo"}, "control")
        assert reply.get("status") == "error" or reply.get("success") is False, reply
    assert kernel.ok("%ranks").status == "ok"


@kernels("bash")
def test_bash(started: Kernel) -> None:
    kernel = started
    assert kernel.request("kernel_info_request", {})["language_info"]["name"] == "bash"
    assert kernel.ok("echo $RANK of $WORLD_SIZE").stdout == "0 of 1\n"
    assert "2 ranks ready" in kernel.ok("%processes 2").text
    assert sorted(lines(kernel.ok("x=$((RANK * 2)); echo same; echo $x").text)[-2:]) == ["0 │ 0", "1 │ 2"]  # fmt: skip
    assert kernel.ok("%%rank 1\necho only $x").stdout == "only 2\n"
    assert kernel.ok("%rank 0 echo only $x").stdout == "only 0\n"
    assert states(kernel) == ["idle", "idle"]

    failed = kernel.run("[ $RANK = 0 ]")
    assert failed.status == "error"
    assert failed.errors == ["1 │ Error: 1"]
    assert "fg: %ls: no such job" in kernel.run("%ls").text  # Bash's own meaning of the sign
    matches = kernel.request("complete_request", {"code": "ech", "cursor_pos": 3})["matches"]
    assert "echo" in matches
    matches = kernel.request("complete_request", {"code": "%proc", "cursor_pos": 5})["matches"]
    assert "%processes" in matches

    stopped = interrupt(kernel, "echo begun; sleep 600; echo not reached", "begun")
    assert stopped.status == "error" and stopped.reply["ename"] == "KeyboardInterrupt"
    assert "not reached" not in stopped.text
    assert lines(kernel.ok("echo on; echo $x").text)[0] == "on"
    check_what_is_not_offered(kernel)
    assert set(listening(family(kernel))) <= LOOPBACK

    kernel.run("%%rank 1\nkill -9 $PPID")
    assert states(kernel) == ["idle", "dead"]
    assert "rank 1 is back" in kernel.ok("%restart dead").text
    assert sorted(lines(kernel.ok("echo x is $x").text)) == ["0 │ x is 0", "1 │ x is"]


@kernels("bash", "ir")
def test_counts_go_on_whatever_the_ranks_count(started: Kernel) -> None:
    """A cell of our magics alone is not counted by them, nor is anything by ranks that are new."""
    kernel, shown = started, []
    for code in (
        "1" if kernel.manager.kernel_name == "spmd-ir" else "echo",
        "%ranks",
        "%processes 2",
    ):
        shown.append(kernel.ok(code))
    shown.append(kernel.ok("# nothing"))
    counts = [result.of("execute_input")[0]["execution_count"] for result in shown]
    assert [result.reply["execution_count"] for result in shown] == counts == [1, 2, 3, 4]


@kernels("ir")
def test_r(started: Kernel) -> None:
    kernel = started
    assert kernel.request("kernel_info_request", {})["language_info"]["name"] == "R"
    assert kernel.ok("Sys.getenv('WORLD_SIZE')").of("display_data")[0]["data"]["text/plain"] == '[1] "1"'  # fmt: skip
    kernel.ok("%processes 2")
    kernel.ok("r <- as.integer(Sys.getenv('RANK'))")
    shown = kernel.ok("cat('same\\n'); cat('I', r, '\\n')").text
    assert sorted(lines(shown)[-2:]) == ["0 │ I 0", "1 │ I 1"]
    same, others = kernel.ok("5 %% 3"), kernel.ok("r")
    assert [c["data"]["text/plain"] for c in same.of("display_data")] == ["[1] 2"]
    texts = [c["data"]["text/plain"] for c in others.of("display_data")]
    assert texts == ["0 │", "[1] 0", "1 │", "[1] 1"]
    assert kernel.ok("%%rank 1\ncat(r)").stdout == "1"
    assert states(kernel) == ["idle", "idle"]

    pictures = kernel.ok("plot(1:3)").of("display_data")
    assert sum("image/png" in c["data"] for c in pictures) in (1, 2)  # one, if it is the same
    failed = kernel.run("stop('bad')")
    assert failed.status == "error" and "bad" in failed.reply["evalue"]
    assert (
        kernel.request("is_complete_request", {"code": "f <- function("})["status"] == "incomplete"
    )
    assert kernel.request("complete_request", {"code": "prin", "cursor_pos": 4})["matches"]
    found = kernel.request("inspect_request", {"code": "mean", "cursor_pos": 4, "detail_level": 0})
    assert found["found"]

    stopped = interrupt(kernel, "cat('begun\\n'); flush.console(); Sys.sleep(600); cat('not')", "begun")  # fmt: skip
    assert stopped.status == "error" and stopped.reply["ename"] == "KeyboardInterrupt"
    assert kernel.ok("cat('on')").stdout.startswith("on")
    check_what_is_not_offered(kernel)


@kernels("ir")
def test_r_asks(started: Kernel) -> None:
    kernel = started
    kernel.ok("%processes 2")
    msg_id = kernel.send("x <- readline('who? ')", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=60)["content"]["prompt"] == "who? "
    kernel.client.input("ann")
    assert kernel.collect(msg_id).status == "ok"
    assert kernel.ok("cat(x)").stdout.count("ann") == 1
    refused = kernel.run("x <- readline('who? ')\ncat('went on')")  # nobody is there to answer
    assert refused.reply["ename"] == "StdinNotImplementedError"
    assert "asked for input" in refused.text and "went on" in refused.text
    assert kernel.ok("cat(nchar(x))").stdout == "0"
    looping = kernel.run("repeat { if (nchar(readline('who? ')) > 0) break }")
    assert looping.reply["ename"] == "StdinNotImplementedError"
    assert kernel.ok("cat('on')").stdout == "on"


@kernels("xpython")
def test_xeus_python(started: Kernel) -> None:
    kernel = started
    assert kernel.request("kernel_info_request", {})["implementation"] == "xeus-python"
    kernel.ok("%processes 2")
    kernel.ok("import os; r = int(os.environ['RANK'])")
    assert lines(kernel.ok("print('same')").text)[-1].endswith("same")
    results = kernel.ok("r").of("execute_result")
    assert [c["data"]["text/plain"] for c in results] == ["0 │ 0", "1 │ 1"]
    assert {c["execution_count"] for c in results} == {4}
    assert kernel.ok("%%rank 1\nprint(r)").stdout == "1\n"
    failed = kernel.run("1 / r")
    assert failed.status == "error" and "0 │" in failed.errors[0]
    assert "ZeroDivisionError" in failed.errors[0]
    assert (
        "print" in kernel.request("complete_request", {"code": "prin", "cursor_pos": 4})["matches"]
    )
    assert kernel.request("is_complete_request", {"code": "for ("})["status"] != "complete"
    assert states(kernel) == ["idle", "idle"]
    check_what_is_not_offered(kernel)
    # It ends on SIGINT, by itself too: what is left is to say so, and to bring it back.
    stopped = interrupt(kernel, "import time; print('begun', flush=True); time.sleep(600)", "begun")
    assert stopped.status == "error" and "rank 0 died" in stopped.text
    assert "back" in kernel.ok("%restart dead").text
    assert states(kernel) == ["idle", "idle"]
