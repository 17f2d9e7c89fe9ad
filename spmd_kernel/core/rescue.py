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

_JOIN = """\
def join(meet):
    import sys
    distributed = sys.modules.get("jax._src.distributed")
    if distributed is None or distributed.global_state.client is None:
        return
    sys.modules["jax"].devices()
    if meet:
        from jax.experimental import multihost_utils
        multihost_utils.broadcast_one_to_all(0)
try:
    join({meet})
except Exception:
    pass
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
        namespace = f"(lambda space: (exec({_ABORT!r}, space), space['abort']())[1])({{}})"
        answer = yield from in_subshell(rank, "", {"aborted": namespace})
        if is_true(answer, "aborted"):
            aborted.append(rank)
    return tuple(aborted)


def join_jax(ranks: Sequence[Rank], *, meet: bool) -> Script:
    """Idle ranks take part in the first use of JAX's devices, which all processes must reach.

    ``meet``: in the first collective over all devices, too, before which all processes connect.
    Returns those that are still at it: the stuck ranks computed something else then.
    """
    content = execute_content(in_own_namespace(_JOIN.format(meet=meet)), silent=True)
    answers = yield Ask(tuple(ranks), "execute_request", content, "shell", SECONDS)
    return tuple(rank for rank in ranks if answers[rank] is None)


def in_own_namespace(code: str) -> str:
    return f"exec({code!r}, {{}})"


MEND = in_own_namespace(_MEND)
"""For ranks whose wait was broken off: what would keep them from meeting again.

torch counts its groups, and a failed ``init_process_group`` counts on some ranks only; JAX's process
0 cannot publish its topology twice.
"""


def in_subshell(rank: Rank, code: str, expressions: Mapping[str, str] | None = None) -> Script:
    """Run code in a thread beside the rank's main one; its reply, or None."""
    made = yield Ask((rank,), "create_subshell_request", {}, "control", SECONDS)
    subshell = _subshell_of(made[rank])
    if not subshell:
        return None
    content = execute_content(code, silent=True, user_expressions=expressions)
    if expressions:
        content["silent"] = False  # a silent request evaluates none
        content["store_history"] = False
    answers = yield Ask((rank,), "execute_request", content, "shell", SECONDS, subshell)
    yield Ask((rank,), "delete_subshell_request", {"subshell_id": subshell}, "control", SECONDS)
    return answers[rank]


def _subshell_of(answer: Content | None) -> str:
    found: Any = answer.get("subshell_id") if answer else None
    return found if isinstance(found, str) else ""
