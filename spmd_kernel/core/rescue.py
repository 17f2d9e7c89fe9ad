"""Scripts that free a rank from a wait in C code with the help of a rank: its own, or its peers'.

The main thread of a stuck rank serves no request; a subshell does (JEP 91), if the C code has let go
of the interpreter's lock.  Kernels without subshells answer with an error, and nothing has happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .content import Content, execute_content, is_true
from .conversation import Script
from .magics.base import Ask
from .model import Rank

SECONDS = 2.0  # for each answer

_SHUT = """\
def shut(sockets):
    import os, socket
    for fd, inode in sockets:
        try:
            if os.fstat(fd).st_ino == inode:
                with socket.socket(fileno=os.dup(fd)) as found:
                    found.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
shut({sockets})
"""

# Only NCCL can be aborted from another thread; gloo's abort waits for what it is to end.
_ABORT = """\
def abort():
    import sys
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return False
    if not any("nccl" in str(config) for config in c10d._world.pg_backend_config.values()):
        return False
    c10d._abort_process_group()
    return True
"""

# `cpu:gloo/0,2048/1` is where the second of devices 0 and 2048 can be reached: once all have said it,
# they connect.  Who takes part in any collective over the same devices, in the same order, says it.
_JOIN = """\
def join(waiting):
    import sys
    distributed = sys.modules.get("jax._src.distributed")
    client = distributed.global_state.client if distributed else None
    if client is None:
        return False
    known = {str(device.id): device for device in sys.modules["jax"].devices()}
    joined = not waiting
    for name, came in sorted(meetings(client).items() if waiting else ()):
        devices = [known[number] for number in name.split(",")]
        here = {devices[index].process_index for index in came}
        missing = {device.process_index for device in devices} - here
        if here & set(waiting) and sys.modules["jax"].process_index() in missing:
            joined = True
            meet(sys.modules["jax"], devices)
    return joined

def meetings(client):
    found = {}
    for key, _ in client.key_value_dir_get_bytes("cpu:gloo/"):
        name, _, index = key[len("cpu:gloo/"):].rpartition("/")
        found.setdefault(name, set()).add(int(index))
    return found

def meet(jax, devices):
    import numpy
    mesh = jax.sharding.Mesh(numpy.array(devices), ("ranks",))
    spec = jax.sharding.PartitionSpec("ranks")
    mine = [i for i, device in enumerate(devices) if device.process_index == jax.process_index()]
    zero = numpy.zeros(1, numpy.float32)
    zeros = jax.make_array_from_callback(
        (len(devices),), jax.sharding.NamedSharding(mesh, spec), lambda _: zero
    )
    def keep(x):
        return jax.lax.ppermute(x, "ranks", [(i, i) for i in mine])
    jax.jit(jax.shard_map(keep, mesh=mesh, in_specs=spec, out_specs=spec))(zeros)
"""

_MEND = """\
def mend():
    import sys
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None and not c10d.is_initialized():
        c10d._world.group_count = 0
    distributed = sys.modules.get("jax._src.distributed")
    bridge = sys.modules.get("jax._src.xla_bridge")
    if distributed is None or bridge is None or bridge._backends:
        return
    state = distributed.global_state
    if state.client is not None and state.process_id == 0:
        for platform in ("cpu", "cuda"):
            state.client.key_value_delete(f"{platform}:global_topology/{platform}")
try:
    mend()
except Exception:
    pass
"""


def shut_inside(sockets: Mapping[Rank, Sequence[tuple[int, int]]]) -> Script:
    """Ranks shut down these sockets (descriptor, inode) of their own."""
    for rank, found in sockets.items():
        code = in_own_namespace(_SHUT.format(sockets=[tuple(item) for item in found]))
        yield from in_subshell(rank, code)


def abort_nccl(ranks: Sequence[Rank]) -> Script:
    """Abort the NCCL communicators of ranks; returns those that had some."""
    aborted = []
    for rank in ranks:
        answer = yield from in_subshell(rank, "", {"aborted": _called(_ABORT, "abort()")})
        if is_true(answer, "aborted"):
            aborted.append(rank)
    return tuple(aborted)


def join_jax(rank: Rank, waiting: Sequence[Rank], *, beside: bool) -> Script:
    """Have a rank take part in what all processes of JAX must do together.

    That is the first use of its devices and, if ranks are ``waiting`` for it, the first collective
    over some of them.  ``beside``: in a subshell, for a rank that waits for something itself.
    Returns whether it took part; ``None`` if it is still at it.
    """
    expressions = {"joined": _called(_JOIN, f"join({tuple(waiting)})")}
    if beside:
        answer = yield from in_subshell(rank, "", expressions)
    else:
        content = _evaluating(expressions)
        answer = (yield Ask((rank,), "execute_request", content, "shell", SECONDS))[rank]
    return is_true(answer, "joined") if answer is not None else None


def _called(code: str, call: str) -> str:
    """An expression: the value of ``call`` where ``code`` has been executed."""
    return f"(lambda space: (exec({code!r}, space), eval({call!r}, space))[1])({{}})"


def _evaluating(expressions: Mapping[str, str]) -> dict[str, Any]:
    content = execute_content("", silent=False, user_expressions=expressions)
    content["store_history"] = False  # but a silent request evaluates none
    return content


def in_own_namespace(code: str) -> str:
    return f"exec({code!r}, {{}})"


MEND = in_own_namespace(_MEND)
"""For ranks whose wait was broken off: what would keep them from meeting again.

torch counts its groups, and a failed ``init_process_group`` counts on some ranks only; JAX's process
0 cannot publish its topology twice.
"""


def in_subshell(rank: Rank, code: str, expressions: Mapping[str, str] | None = None) -> Script:
    """Run code, or evaluate, in a thread beside the rank's main one.

    Its reply: empty if the rank has no such threads, None if it came not in time.
    """
    made = yield Ask((rank,), "create_subshell_request", {}, "control", SECONDS)
    subshell = _subshell_of(made[rank])
    if not subshell:
        return Content()
    content = _evaluating(expressions) if expressions else execute_content(code, silent=True)
    answer = (yield Ask((rank,), "execute_request", content, "shell", SECONDS, subshell))[rank]
    if answer is not None:  # else its thread is busy, and the rank would wait for it
        yield Ask((rank,), "delete_subshell_request", {"subshell_id": subshell}, "control", SECONDS)
    return answer


def _subshell_of(answer: Content | None) -> str:
    found: Any = answer.get("subshell_id") if answer else None
    return found if isinstance(found, str) else ""
