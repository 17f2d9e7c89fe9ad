"""Paths of cells: one constant folder for clients, each rank's own for its debugger.

ipykernel names a cell's file by a hash of its code, in a folder with its process id in the name.  Only
the folder differs from rank to rank and from start to start, so a breakpoint survives all of them
when clients see one folder that never changes.
"""

from __future__ import annotations

from ..model import Rank

SUFFIX = ".py"
HASH = "Murmur2"
SEED = 0xC70F6907  # ipykernel.compiler.get_tmp_hash_seed


class Sources:
    def __init__(self, prefix: str):
        """``prefix``: the folder of clients, with a separator at its end."""
        self.prefix = prefix
        self._own: dict[Rank, str] = {}
        self.cells: dict[str, str] = {}  # code by path, as clients see it

    def learn(self, rank: Rank, prefix: str) -> None:
        """What a rank said its own folder is."""
        if prefix:
            self._own[rank] = prefix

    def forget(self, rank: Rank) -> None:
        self._own.pop(rank, None)

    def canonical(self, rank: Rank, path: str) -> str:
        own = self._own.get(rank)
        return self.prefix + path[len(own) :] if own and path.startswith(own) else path

    def own(self, rank: Rank, path: str) -> str:
        """The rank's name of what a client calls ``path``."""
        own = self._own.get(rank)
        return own + path[len(self.prefix) :] if own and self.is_cell(path) else path

    def is_cell(self, path: str) -> bool:
        return bool(self.prefix) and path.startswith(self.prefix)

    def in_text(self, rank: Rank, text: str) -> str:
        """A traceback with the names that clients know."""
        own = self._own.get(rank)
        return text.replace(own, self.prefix) if own else text
