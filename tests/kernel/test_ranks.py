"""Starting ranks, choosing ranks, looking at them: with real kernels."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from .client import Kernel, alive

PID = "import os; print('PID', os.environ['RANK'], os.getpid())"


def pids(kernel: Kernel) -> dict[int, int]:
    text = kernel.ok(PID).text
    return {int(r): int(p) for r, p in re.findall(r"PID (\d+) (\d+)", text)}


def test_one_rank_is_like_the_bare_kernel(kernel: Kernel) -> None:
    result = kernel.ok("print('a')\n1 + 1")
    assert result.stdout == "a\n"
    (value,) = result.of("execute_result")
    assert value["data"] == {"text/plain": "2"} and value["metadata"] == {}
    assert result.reply["execution_count"] == 1


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_rank_runs_every_cell(kernel: Kernel, size: int) -> None:
    report = kernel.ok(f"%processes {size} --fresh").text
    assert f"{size} rank" in report and "ready in" in report
    assert sorted(pids(kernel)) == list(range(size))
    kernel.ok("x = int(os.environ['RANK']) * 10")
    assert sorted(re.findall(r"v=(\d+)", kernel.ok("print(f'v={x}')").text)) == sorted(
        str(rank * 10) for rank in range(size)
    )


def test_the_rest_of_the_cell_runs_on_the_new_ranks(kernel: Kernel) -> None:
    result = kernel.ok("# a comment\n%processes 2\nimport os\nprint('I am', os.environ['RANK'])")
    assert "0 │ I am 0\n1 │ I am 1\n" in result.stdout
    failing = kernel.run("%processes 2\n\nraise ValueError('here')")
    assert "line 3" in failing.text or "---> 3" in failing.text or "3 raise" in failing.text


def test_same_number_loses_nothing_and_fresh_restarts(pair: Kernel) -> None:
    pair.ok("x = 5")
    before = pids(pair)
    assert "already 2 ranks" in pair.ok("%processes 2").text
    assert pids(pair) == before
    assert "5" in pair.ok("x").text
    assert "cleared" in pair.ok("%processes 2 --fresh").text
    assert not set(pids(pair).values()) & set(before.values())
    assert pair.run("x").status == "error"


def test_another_number_stops_the_old_ranks(pair: Kernel) -> None:
    before = pids(pair)
    assert "memory" in pair.ok("%processes 3").text
    assert sorted(pids(pair)) == [0, 1, 2]
    assert not any(map(alive, before.values()))


def test_counts_go_on_and_stay_aligned(pair: Kernel) -> None:
    pair.ok("a = 1")
    pair.ok("%%rank 1\nb = 2")
    pair.ok("%ranks")
    result = pair.ok("print(len(In), get_ipython().execution_count)")
    count = result.reply["execution_count"]
    assert count == 5
    assert result.stdout == f"{count + 1} {count + 1}\n"  # as in the bare kernel
    (value,) = pair.ok("'v'").of("execute_result")
    assert value["execution_count"] == 6


def test_a_cell_or_a_line_on_some_ranks(four: Kernel) -> None:
    four.ok("import os; r = int(os.environ['RANK'])")
    four.ok("%%rank 1,3\nmark = r")
    text = four.ok("print('has', 'mark' in dir())").text
    assert "0,2 │ has False" in text and "1,3 │ has True" in text
    alone = four.ok("%rank -1 r * 11")
    (value,) = alone.of("execute_result")
    assert value["data"]["text/plain"] == "33"
    assert value["execution_count"] == alone.reply["execution_count"]
    mixed = four.ok("%rank 0 r\n'rest'")
    counts = {value["execution_count"] for value in mixed.of("execute_result")}
    assert counts == {mixed.reply["execution_count"]}
    assert "│" not in four.ok("print(len(In))").text
    timed = four.ok("%%rank 2\n%%time\nprint('in time')").text
    assert "in time" in timed and "Wall time" in timed
    bad = four.run("%%rank 9\nx")
    assert bad.status == "error" and "hint:" in bad.text and "0-3" in bad.text


def test_ranks_table(pair: Kernel) -> None:
    known = pids(pair)
    table = pair.ok("%ranks").text
    for rank, pid in known.items():
        assert re.search(rf"^\s*{rank}\b.*\b{pid}\b.*idle", table, re.M), table
    assert re.search(r"\d+ MB", table)


def test_help_and_completion(pair: Kernel) -> None:
    for magic in ("%processes", "%rank", "%%rank", "%ranks"):
        (page,) = pair.ok(f"{magic}?").reply["payload"]
        assert magic.lstrip("%") in page["data"]["text/plain"]
    reply = pair.request("complete_request", {"code": "%proc", "cursor_pos": 5})
    assert "%processes" in reply["matches"]
    reply = pair.request("complete_request", {"code": "%processes --fr", "cursor_pos": 15})
    assert reply["matches"] == ["--fresh"] and reply["cursor_start"] == 11
    reply = pair.request("complete_request", {"code": "import os; os.getp", "cursor_pos": 18})
    assert any(match.endswith("getpid") for match in reply["matches"])


@pytest.mark.parametrize(
    "code", ["%processes 0", "%processes 4 --nope", "%processes x", "x=1\n%processes 2"]
)
def test_bad_input_is_explained_and_changes_nothing(pair: Kernel, code: str) -> None:
    before = pids(pair)
    result = pair.run(code)
    assert result.status == "error"
    assert "hint:" in result.text
    assert pids(pair) == before


def test_more_ranks_than_memory_allows(pair: Kernel) -> None:
    result = pair.run("%processes 4000")
    assert result.status == "error" and "memory" in result.text and "hint:" in result.text
    assert len(pids(pair)) == 2


def test_text_in_strings_is_not_touched(kernel: Kernel) -> None:
    result = kernel.ok('s = """\n%processes 4\n"""\nprint(s)')
    assert result.stdout == "\n%processes 4\n\n"


def test_parameters_survive(kernel: Kernel) -> None:
    kernel.ok("epochs = 3\nprocesses = 2")
    kernel.ok("%processes {processes}")
    assert len(pids(kernel)) == 2
    assert kernel.ok("print(epochs, processes)").stdout == "3 2\n"


def test_silent_setup_of_a_client_survives(kernel: Kernel) -> None:
    kernel.ok("def _vs_code_helper(): return 'helped'", silent=True, store_history=False)
    kernel.ok("%processes 2")
    assert kernel.ok("print(_vs_code_helper())").stdout == "helped\n"


def test_environment_wins_over_the_magic() -> None:
    with Kernel(env={**os.environ, "SPMD_PROCESSES": "2"}) as kernel:
        assert len(pids(kernel)) == 2
        assert "SPMD_PROCESSES=2" in kernel.ok("%processes 4").text
        assert len(pids(kernel)) == 2
    with Kernel(env={**os.environ, "SPMD_MAX_PROCESSES": "2"}) as kernel:
        assert "SPMD_MAX_PROCESSES=2" in kernel.ok("%processes 3").text
        assert len(pids(kernel)) == 2


def test_environment_of_ranks() -> None:
    outside = {**os.environ, "SLURM_PROCID": "7", "PMI_RANK": "7", "OMPI_COMM_WORLD_RANK": "7"}
    with Kernel(env=outside) as kernel:
        report = kernel.ok("%processes 2 --env MINE=1").text
        assert "OMP_NUM_THREADS=1" in report and "SLURM_PROCID" in report
        names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT MINE"
        names += " TORCHELASTIC_RUN_ID JAX_PROCESS_ID JAX_NUM_PROCESSES JAX_COORDINATOR_ADDRESS"
        names += " OMP_NUM_THREADS SLURM_PROCID PMI_RANK OMPI_COMM_WORLD_RANK"
        code = f"import os, json; print('E' + json.dumps([os.environ.get(n) for n in {names.split()}]))"
        rows = [json.loads(row) for row in re.findall(r"E(\[.*\])", kernel.ok(code).text)]
        first, second = (dict(zip(names.split(), row, strict=True)) for row in rows)
        assert (first["RANK"], second["RANK"]) == ("0", "1")
        for env in (first, second):
            assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == env["JAX_NUM_PROCESSES"] == "2"
            assert env["MINE"] == "1" and env["OMP_NUM_THREADS"] == "1"
            assert env["SLURM_PROCID"] is env["PMI_RANK"] is env["OMPI_COMM_WORLD_RANK"] is None
        assert first["MASTER_PORT"] == second["MASTER_PORT"]
        assert not first["JAX_COORDINATOR_ADDRESS"].endswith(":" + first["MASTER_PORT"])
        before = first["MASTER_PORT"]
        kernel.ok("%processes 2 --fresh")
        after = re.findall(r"E(\[.*\])", kernel.ok(code).text)[0]
        assert json.loads(after)[names.split().index("MASTER_PORT")] != before


def test_ranks_of_another_environment(tmp_path: Path) -> None:
    """`--kernel` names any kernelspec of the same language; another language is refused."""
    for name, language in (("other", "python"), ("foreign", "R")):
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": name, "language": language, "env": {"MARK": name}}
        (folder / "kernel.json").write_text(json.dumps(spec))
    with Kernel(env={**os.environ, "JUPYTER_PATH": str(tmp_path)}) as kernel:
        kernel.ok("%processes 2 --kernel other")
        assert kernel.ok("import os; print(os.environ['MARK'])").stdout == "other\n"
        assert "already 2 ranks" in kernel.ok("%processes 2").text
        refused = kernel.run("%processes 2 --kernel foreign")
        assert refused.status == "error" and "R" in refused.text and "hint:" in refused.text
        assert kernel.run("%processes 2 --kernel nobody").status == "error"
        assert kernel.ok("print(os.environ['MARK'])").stdout == "other\n"
        kernel.ok("%processes 2 --kernel python3")
        assert kernel.ok("import os; print(os.environ.get('MARK'))").stdout == "None\n"
