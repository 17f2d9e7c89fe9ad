"""The cells that ran last, as files: a client beside the notebook can open them and stop in them.

ipykernel gives the code of a cell a file name by its hash (`compiler.get_file_name`), so that the
path of a cell is known without asking a rank.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .sources import SEED, SUFFIX

MOST_CELLS = 64
MOST_CHARACTERS = 65_536  # of one cell: longer ones are not read in an editor, and slow to hash
MIX = 0x5BD1E995


@dataclass(frozen=True, slots=True)
class RecentCell:
    path: str  # as clients see it
    name: str  # `cell [3]`
    code: str


class RecentCells:
    def __init__(self, prefix: str):
        """``prefix``: see `sources.Sources`."""
        self._prefix = prefix
        self._names: dict[str, str] = {}  # by code, the last one at the end
        self._paths: dict[str, str | None] = {}  # by code: made when somebody asks

    def ran(self, code: str, count: int | None) -> None:
        if not code.strip() or len(code) > MOST_CHARACTERS:
            return
        known = self._names.pop(code, "cell")
        self._names[code] = f"cell [{count}]" if count is not None else known
        if len(self._names) > MOST_CELLS:
            oldest = next(iter(self._names))
            del self._names[oldest]
            self._paths.pop(oldest, None)

    def __iter__(self) -> Iterator[RecentCell]:
        """The oldest first."""
        for code in self._names:
            if (path := self.path(code)) is not None:
                yield RecentCell(path, self._names[code], code)

    def at(self, path: str) -> RecentCell | None:
        if not self._prefix or not path.startswith(self._prefix):
            return None
        return next((cell for cell in self if cell.path == path), None)

    def path(self, code: str) -> str | None:
        """``None``: it is not among them, or a text that has no bytes, which no rank runs either."""
        if code in self._names and code not in self._paths:
            self._paths[code] = self.named(code)
        return self._paths.get(code)

    def named(self, code: str) -> str | None:
        """The path of a cell, whether it ran or not."""
        try:
            return f"{self._prefix}{murmur2(code.encode(), SEED)}{SUFFIX}"
        except UnicodeEncodeError:
            return None


def murmur2(data: bytes, seed: int) -> int:
    """MurmurHash2 of 32 bits, as `ipykernel.compiler.murmur2_x86` has it."""
    value = seed ^ len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * MIX & 0xFFFFFFFF
        word = (word ^ word >> 24) * MIX & 0xFFFFFFFF
        value = (value * MIX & 0xFFFFFFFF) ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * MIX & 0xFFFFFFFF
    value = (value ^ value >> 13) * MIX & 0xFFFFFFFF
    return value ^ value >> 15
