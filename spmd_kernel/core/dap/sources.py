"""Paths of cells: one constant folder for clients, each rank's own for its debugger.

ipykernel names a cell's file by a hash of its code, in a folder with its process id in the name.  Only
the folder differs from rank to rank and from start to start, so a breakpoint survives all of them
when clients see one folder that never changes.

A cell with magics of ours is another text in ranks, and so another file: it is *shown* as the cell.
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
        self._real: dict[str, str] = {}  # by path, as clients see it: what ranks run of it
        self._shown: dict[str, str] = {}  # the reverse; the last one that was dumped

    def learn(self, rank: Rank, prefix: str) -> None:
        """What a rank said its own folder is."""
        if prefix:
            self._own[rank] = prefix

    def forget(self, rank: Rank) -> None:
        self._own.pop(rank, None)

    def show(self, real: str, path: str) -> None:
        """Clients know the file that ranks run as ``real`` as ``path``."""
        self._real[path] = real
        self._shown[real] = path

    def real(self, path: str) -> str:
        return self._real.get(path, path)

    def clear(self) -> None:
        """Of all cells."""
        for known in (self.cells, self._real, self._shown):
            known.clear()

    def canonical(self, rank: Rank, path: str) -> str:
        path = self.placed(rank, path)
        return self._shown.get(path, path)

    def placed(self, rank: Rank, path: str) -> str:
        """A rank's path in the folder of clients."""
        own = self._own.get(rank)
        return self.prefix + path[len(own) :] if own and path.startswith(own) else path

    def own(self, rank: Rank, path: str) -> str:
        """The rank's name of what a client calls ``path``."""
        own = self._own.get(rank)
        return own + self.real(path)[len(self.prefix) :] if own and self.is_cell(path) else path

    def is_cell(self, path: str) -> bool:
        return bool(self.prefix) and path.startswith(self.prefix)

    def in_text(self, rank: Rank, text: str) -> str:
        """A traceback with the names that clients know."""
        own = self._own.get(rank)
        return text.replace(own, self.prefix) if own else text
