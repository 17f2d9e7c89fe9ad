"""Process groups that are made again in the same ranks meet each other, not what the last ones left.

Rank 0 serves torch's ``TCPStore`` in its own process, and a server ends with the last thing that
holds it.  Without help, ranks that destroy their group and make the next one at once may connect to
a server that is just ending.  And as long as anything holds the old group (a model in
`DistributedDataParallel` is enough) the old server goes on, with its old keys: the ranks then look
for each other at addresses that are gone, and wait for ever.

So the store of this kernel's world stays, and each time that the ranks meet in it they use keys of
their own.  A rank waits here, where Python can be interrupted, until all have come.

Executed by path in a rank; must not need our package, nor import torch before the user does.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

PAUSE = 0.001, 0.25  # seconds between looks at who has come: the first, and the longest
DEFAULT_SECONDS = 300.0
HINT = "hint: all ranks have to call init_process_group"
NAME = "spmd-kernel/round"


class Round:
    """One meeting of all ranks.  Who gives up before all have come leaves it again.

    So a round that a rank is still in at its next call was complete: it takes a later one.
    """

    def __init__(self, store: Any, rank: int, size: int):
        self._store, self._rank, self._size = store, rank, size
        self.number = 0
        while rank in self._here():
            self.number += 1
        self._change(lambda here: here | {rank})

    @property
    def prefix(self) -> str:
        return f"{NAME}/{self._size}/{self.number}"

    def wait(self, seconds: float) -> list[int]:
        """Until all are here.  Returns those that did not come."""
        end, pause = time.monotonic() + seconds, PAUSE[0]
        try:
            while missing := self._missing():
                if time.monotonic() + pause >= end:
                    self._leave()
                    return missing
                time.sleep(pause)
                pause = min(pause * 1.5, PAUSE[1])
        except BaseException:
            with contextlib.suppress(Exception):  # the store may be what failed
                self._leave()
            raise
        return []

    def _missing(self) -> list[int]:
        return sorted(set(range(self._size)) - self._here())

    def _leave(self) -> None:
        self._change(lambda here: here if len(here) == self._size else here - {self._rank})

    def _here(self) -> set[int]:
        return _ranks(self._compare_set("", ""))

    def _change(self, change: Callable[[set[int]], set[int]]) -> None:
        seen = ""
        while True:
            wanted = " ".join(map(str, sorted(change(_ranks(seen)))))
            found = self._compare_set(seen, wanted)
            if found == wanted:
                return
            seen = found

    def _compare_set(self, expected: str, wanted: str) -> str:
        return bytes(self._store.compare_set(self.prefix, expected, wanted)).decode()


def _ranks(text: str) -> set[int]:
    return {int(word) for word in text.split()}


def keep_store(c10d: Any) -> None:
    """Change how torch opens the store of this kernel's world; of the module that makes groups."""
    rendezvous = sys.modules["torch.distributed.rendezvous"]
    create = rendezvous._create_c10d_store
    kept: list[Any] = []  # rank 0's server, while MASTER_PORT stays the same

    @functools.wraps(create)
    def _create_c10d_store(
        hostname: str, port: int, rank: int, world_size: int, timeout: Any, *rest: Any, **more: Any
    ) -> Any:
        __tracebackhide__ = True
        store = create(hostname, port, rank, world_size, timeout, *rest, **more)
        if not is_ours(hostname, port, rank, world_size):
            return store
        try:
            prefix = join(store, rank, world_size, timeout)
        except BaseException:
            if not c10d.is_initialized():  # a group is counted, and named so, before it is made
                c10d._world.group_count = 0
            raise
        if rank == 0 and not any(one.port == port for one in kept):
            kept[:] = [store]
        return store if prefix is None else c10d.PrefixStore(prefix, store)

    rendezvous._create_c10d_store = _create_c10d_store  # type: ignore[attr-defined]


def join(store: Any, rank: int, size: int, timeout: Any) -> str | None:
    """Meet all ranks.  Returns what to put before the keys, if they have met there before."""
    __tracebackhide__ = True
    seconds = DEFAULT_SECONDS if timeout is None else timeout.total_seconds()
    this = Round(store, rank, size)
    try:
        missing = this.wait(seconds)
    except KeyboardInterrupt as interrupt:
        interrupt.args = (f"not all ranks had come yet; {HINT}",)
        raise
    if missing:
        import torch.distributed

        error: Any = getattr(torch.distributed, "DistStoreError", RuntimeError)
        who = ", ".join(map(str, missing))
        raise error(f"Timed out after {seconds:g} s waiting for ranks {who}; {HINT}")
    return this.prefix if this.number else None


def is_ours(host: str, port: int, rank: int, size: int) -> bool:
    """Whether it is the store that the environment of this rank names, for all ranks."""
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # by rank 0
    return served and [os.environ.get(name) for name in names] == [
        host, str(port), str(rank), str(size)
    ]  # fmt: skip
