"""Whether a stack waits for other ranks: a table of functions, and of what a line of code calls.

A wait inside C shows as the Python function that called it.  Where that is the user's own line
(``work.wait()``, ``store.get(…)``), the text of the line is all there is to go by.

To teach a library: add its functions to `TABLE`.  Only functions whose whole time is communication
belong there (not ``forward``, which computes, too).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .stacks import Frame, RunningCode, Stack

Kind = Literal["group", "store", "start"]
Evidence = Literal["sure", "if idle", "if stuck"]


@dataclass(frozen=True, slots=True)
class Wait:
    """``kind``: group waits for other ranks directly, store for a key in the store of the process
    group, start for the others' first use of JAX's devices.  ``evidence``: it does nothing but wait
    (sure); it may as well compute, unless the process is idle; or all that can be said is that it
    might wait, if Stop did not end it.
    """

    name: str
    library: Literal["torch", "jax", "mpi"]
    kind: Kind = "group"
    evidence: Evidence = "sure"


def _torch(*names: str, kind: Kind = "group") -> dict[str, Wait]:
    return {name: Wait(name, "torch", kind) for name in names}


def _jax(*names: str, kind: Kind = "group", evidence: Evidence = "sure") -> dict[str, Wait]:
    return {name: Wait(name, "jax", kind, evidence) for name in names}


def _called(name: str, functions: Iterable[str], evidence: Evidence = "sure") -> dict[str, Wait]:
    return {function: Wait(name, "torch", evidence=evidence) for function in functions}


TABLE: dict[str, dict[str, Wait]] = {
    "torch/distributed/distributed_c10d.py": {
        **_torch(
            "all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "barrier",
            "monitored_barrier", "all_gather", "all_gather_single", "all_gather_into_tensor",
            "_all_gather_base", "all_gather_coalesced", "all_gather_object", "gather",
            "gather_object", "scatter", "scatter_object_list", "broadcast_object_list",
            "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor",
            "_reduce_scatter_base", "all_to_all", "all_to_all_single", "send", "recv",
            "send_object_list", "recv_object_list", "batch_isend_irecv",
        ),
        **_torch(
            "init_process_group", "_new_process_group_helper", "_store_based_barrier",
            "new_group", "_new_group_with_tag", "split_group", kind="store",
        ),
    },
    "torch/distributed/rendezvous.py": _torch("_create_c10d_store", "rendezvous", kind="store"),
    "spmd_kernel/rank/rendezvous.py": {
        "__init__": Wait("TCPStore", "torch", "store"),
        "reach": Wait("connect", "torch", "store"),
    },
    "torch/distributed/_functional_collectives.py": _torch("wait_tensor"),
    "torch/distributed/utils.py": _called(
        "DistributedDataParallel(…)",
        ["_verify_param_shape_across_processes", "_sync_module_states", "_sync_params_and_buffers"],
    ),
    "torch/nn/parallel/distributed.py": {
        **_called("DistributedDataParallel(…)", ["_sync_module_states"]),
        **_called(
            "DistributedDataParallel.forward",
            ["_sync_buffers", "_sync_module_buffers", "_distributed_broadcast_coalesced"],
        ),
    },
    "torch/autograd/graph.py": _called("backward", ["_engine_run_backward"], "if idle"),
    "torch/cuda/__init__.py": _called("cuda.synchronize", ["synchronize"], "if idle"),
    "jax/experimental/multihost_utils.py": _jax(
        "sync_global_devices", "process_allgather", "broadcast_one_to_all", "assert_equal",
        "reached_preemption_sync_point",
    ),
    "jax/_src/distributed.py": {
        "initialize": Wait("jax.distributed.initialize", "jax"),
        "shutdown": Wait("jax.distributed.shutdown", "jax"),
    },
    "jaxlib/xla_client.py": _jax(
        "make_cpu_client", "make_gpu_client", "make_c_api_client", kind="start", evidence="if idle"
    ),
    "jax/_src/array.py": _jax("block_until_ready", "_value", "__array__", evidence="if idle"),
    "jax/_src/api.py": _jax("block_until_ready", evidence="if idle"),
    "jax/_src/interpreters/pxla.py": {"__call__": Wait("a jitted function", "jax", evidence="if idle")},
}  # fmt: skip

# What a line calls where nothing but the line itself is in the stack.
CALLS: tuple[tuple[re.Pattern[str], Wait], ...] = (
    (re.compile(r"\bwait_at_barrier\("), Wait("wait_at_barrier", "jax")),
    (re.compile(r"\bTCPStore\("), Wait("TCPStore", "torch", "store")),
    (re.compile(r"store\w*(?:\(\))?\.get\(", re.I), Wait("store.get", "torch", "store")),
    (re.compile(r"store\w*(?:\(\))?\.wait\(", re.I), Wait("store.wait", "torch", "store")),
    (re.compile(r"\.block_until_ready\("), Wait("block_until_ready", "jax", evidence="if idle")),
    (re.compile(r"\.wait\("), Wait("wait", "torch", evidence="if idle")),
    (re.compile(r"\.(?:item|cpu|tolist|numpy|synchronize)\("),
     Wait("a tensor's value", "torch", evidence="if stuck")),
    (re.compile(r"\b(?:asarray|print|float|int)\("),
     Wait("an array's value", "jax", evidence="if stuck")),
    (re.compile(r"\.get\("), Wait("get", "torch", "store", evidence="if stuck")),
    (re.compile(r"\.(?:Barrier|barrier|Allreduce|allreduce|Bcast|bcast|Recv|recv|Allgather)\("),
     Wait("an MPI call", "mpi", evidence="if idle")),
)  # fmt: skip
_ORDER: tuple[Evidence, ...] = ("sure", "if idle", "if stuck")


def waits(stack: Stack, code: RunningCode) -> Wait | None:
    """What the stack waits for; named after the outermost function, of the innermost's kind."""
    known = [wait for frame in stack if (wait := _known(frame)) is not None]
    if not known:
        return _called_by(stack, code)
    inner, outer = known[0], known[-1]
    best = min((wait.evidence for wait in known), key=_ORDER.index)
    return Wait(outer.name, outer.library, inner.kind, best)


def _known(frame: Frame) -> Wait | None:
    for module, functions in TABLE.items():
        if frame.function in functions and frame.file.endswith("/" + module):
            return functions[frame.function]
    return None


def _called_by(stack: Stack, code: RunningCode) -> Wait | None:
    line = code.source(stack[0]) if stack else ""
    return next((wait for pattern, wait in CALLS if line and pattern.search(line)), None)
