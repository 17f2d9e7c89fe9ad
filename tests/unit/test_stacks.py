"""Dumps of faulthandler, as recorded, and what is read from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ipykernel.compiler import murmur2_x86

from spmd_kernel.core.collectives import waits
from spmd_kernel.core.stacks import (
    Frame,
    RunningCode,
    cell_name,
    folded,
    in_cell,
    is_complete,
    main_stack,
    murmur2,
)

GOLDEN = Path(__file__).parents[1] / "golden/stacks"
DUMPS = sorted(GOLDEN.glob("python-*.txt"))
CELL = "import torch.distributed.distributed_c10d as dist\ndef step():\n    dist.all_reduce(1)\nstep()\n"
CODE = RunningCode.of(CELL)
SITE = "/usr/lib/python3.11/site-packages/"


def frame(file: str, function: str, line: int = 1) -> Frame:
    return Frame(SITE + file, line, function)


def cell_frame(code: str, line: int = 1, function: str = "<module>", pid: int = 1) -> Frame:
    return Frame(f"/tmp/ipykernel_{pid}/{cell_name(code)}.py", line, function)


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_the_main_thread_is_read_down_to_the_cell(path: Path) -> None:
    dump = path.read_text()
    stack = main_stack(dump)
    assert [f.function for f in stack] == ["all_reduce", "step", "<module>"]
    assert [CODE.place(f) for f in stack] == [
        "torch/distributed/distributed_c10d.py:5",
        "cell line 3",
        "cell line 4",
    ]
    assert CODE.where(stack) == "cell line 3"
    assert RunningCode.of("another").where(stack) == "an earlier cell, line 3"
    wait = waits(stack, CODE)
    assert wait is not None and (wait.name, wait.library) == ("all_reduce", "torch")


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_a_dump_is_complete_with_its_last_line_only(path: Path) -> None:
    dump = path.read_text()
    ends = [end for end in range(len(dump) + 1) if is_complete(dump[:end])]
    assert ends == [len(dump)]


def test_a_last_line_that_was_learned_ends_a_dump() -> None:
    assert is_complete('x\n  File "/lib/spmd_kernel/rank/zygote.py", line 177 in <module>\n')
    assert is_complete('x\n  File "z.py", line 3 in serve\n', '  File "z.py", line 3 in serve')
    assert not is_complete('x\n  File "z.py", line 4 in serve\n', '  File "z.py", line 3 in serve')


@given(st.text())
def test_cells_are_named_as_ipykernel_names_them(code: str) -> None:
    data = code.encode("utf-8", "surrogatepass")
    assert murmur2(data, 7) == murmur2_x86(data.decode("utf-8", "surrogatepass"), 7)


@pytest.mark.parametrize("dump", ["", "no dump\n", 'Stack (most recent call first):\n  File "'])
def test_what_is_no_dump_gives_no_stack(dump: str) -> None:
    assert main_stack(dump) == ()
    assert CODE.where(()) == "an unknown place"


def test_blank_lines_on_top_do_not_count() -> None:
    code = RunningCode.of("\n  \nfirst\nsecond")
    assert code.source(cell_frame("\n  \nfirst\nsecond", 2)) == "second"
    assert code.source(cell_frame("\n  \nfirst\nsecond", 9)) == ""
    assert code.source(cell_frame("another", 1)) == ""


def test_an_idle_rank_runs_no_cell() -> None:
    stack = (frame("ipykernel/kernelbase.py", "dispatch_shell"), frame("x.py", "<module>"))
    assert not in_cell(stack)


def test_ranks_fold_although_their_cells_are_in_files_of_their_own() -> None:
    stacks = {rank: (cell_frame(CELL, 4, pid=rank),) for rank in (2, 0, 1)}
    stacks[3] = (cell_frame(CELL, 3, pid=3),)
    assert [ranks for ranks, _ in folded(stacks)] == [(0, 1, 2), (3,)]


LINES = "work = dist.all_reduce(x, async_op=True)\nwork.wait()\nprint(x)\nstore.get('k')\nx = 1\n"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([("torch/distributed/distributed_c10d.py", "barrier")], ("barrier", "group", "sure")),
        (
            [
                ("torch/distributed/distributed_c10d.py", "all_gather"),
                ("torch/distributed/c10d_logger.py", "wrapper"),
                ("torch/distributed/distributed_c10d.py", "all_gather_object"),
            ],
            ("all_gather_object", "group", "sure"),
        ),
        (
            [
                ("torch/distributed/rendezvous.py", "_create_c10d_store"),
                ("torch/distributed/distributed_c10d.py", "init_process_group"),
            ],
            ("init_process_group", "store", "sure"),
        ),
        (
            [
                ("torch/autograd/graph.py", "_engine_run_backward"),
                ("torch/_tensor.py", "backward"),
            ],
            ("backward", "group", "if idle"),
        ),
        (
            [
                ("torch/nn/parallel/distributed.py", "_sync_module_buffers"),
                ("torch/nn/parallel/distributed.py", "forward"),
            ],
            ("DistributedDataParallel.forward", "group", "sure"),
        ),
        (
            [
                ("torch/_ops.py", "redispatch"),
                ("torch/distributed/_functional_collectives.py", "wait_tensor"),
            ],
            ("wait_tensor", "group", "sure"),
        ),
        (
            [
                ("jaxlib/xla_client.py", "make_cpu_client"),
                ("jax/experimental/multihost_utils.py", "sync_global_devices"),
            ],
            ("sync_global_devices", "start", "sure"),
        ),
        (
            [("jax/_src/interpreters/pxla.py", "__call__")],
            ("a jitted function", "group", "if idle"),
        ),
        ([("torch/nn/parallel/distributed.py", "forward")], None),
        ([("mine/distributed_c10d.py", "barrier")], None),
    ],
)
def test_collectives(stack: list[tuple[str, str]], expected: tuple[str, str, str] | None) -> None:
    frames = (*(frame(*item) for item in stack), cell_frame(LINES, 5))
    wait = waits(frames, RunningCode.of(LINES))
    assert (wait and (wait.name, wait.kind, wait.evidence)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (2, ("wait", "group", "if idle")),
        (3, ("an array's value", "group", "if stuck")),
        (4, ("store.get", "store", "sure")),
        (5, None),
    ],
)
def test_a_wait_in_c_code_is_told_by_the_line_that_calls_it(
    line: int, expected: tuple[str, str, str] | None
) -> None:
    wait = waits((cell_frame(LINES, line),), RunningCode.of(LINES))
    assert (wait and (wait.name, wait.kind, wait.evidence)) == expected
