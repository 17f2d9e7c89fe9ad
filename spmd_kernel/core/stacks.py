"""What a dump of faulthandler says: the stack of a rank's main thread, and where in the cell it is.

A dump is of one thread, its innermost frame first::

    Stack (most recent call first):
      File "/tmp/ipykernel_4711/3290021454.py", line 2 in <module>
      …

It is the main one, where a signal can be sent to a thread (tgkill(2)).  Elsewhere another may take
it, which is known by where it begins: in `threading`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .model import Rank

HEADER = "Stack (most recent call first):\n"
_FRAME = re.compile(r'^ +File "(.*)", line (\d+) in (.*)$')
_CELL = re.compile(r"(?:^|/)ipykernel_\d+/(\d+)\.py$|^<ipython-input-\d+-([0-9a-f]+)>$")
_SEED = 0xC70F6907  # ipykernel.compiler.get_tmp_hash_seed
_PACKAGES = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/")


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str

    @property
    def cell(self) -> str:
        """What the name of a cell's file says of its code; empty for any other file."""
        found = _CELL.search(self.file)
        return (found[1] or found[2]) if found else ""

    @property
    def is_module_of_cell(self) -> bool:
        return bool(self.cell) and self.function.startswith(("<module>", "<cell line"))

    @property
    def short_file(self) -> str:
        """Below site-packages or the standard library; else the whole path."""
        return _PACKAGES.sub("", self.file)


Stack = tuple[Frame, ...]  # innermost first


def read(dump: str) -> Stack:
    """Lines that are no frames are passed over."""
    _, header, text = dump.rpartition(HEADER)
    found = [_FRAME.match(line) for line in text.splitlines()] if header else []
    return tuple(Frame(frame[1], int(frame[2]), frame[3]) for frame in found if frame)


def main_stack(dump: str) -> Stack:
    """The main thread's stack, cut below the cell's ``<module>``; empty if there is none.

    A thread that runs no cell (it is idle, or in an event loop that a cell awaits) keeps all frames.
    """
    stack = read(dump)
    return () if stack and stack[-1].function == "_bootstrap" else cut(stack)


def cut(stack: Stack) -> Stack:
    modules = [index for index, frame in enumerate(stack) if frame.is_module_of_cell]
    return stack[: modules[-1] + 1] if modules else stack


def in_cell(stack: Stack) -> bool:
    return any(frame.cell for frame in stack)


def is_complete(dump: str, last_line: str) -> bool:
    """Its outermost frame has come, which reads ``last_line`` in all dumps of a process.

    Unless there are too many: then three dots end it.
    """
    _, header, frames = dump.rpartition(HEADER)
    return bool(header and last_line) and f"\n{frames}".endswith((f"\n{last_line}\n", "\n  ...\n"))


def cell_name(code: str) -> str:
    """How ipykernel names the file of this code (`ipykernel.compiler.get_file_name`)."""
    return str(murmur2(code.encode("utf-8", "surrogatepass"), _SEED))


def murmur2(data: bytes, seed: int) -> int:
    """MurmurHash2, 32 bits (Austin Appleby; public domain)."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = seed ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@dataclass(frozen=True, slots=True)
class RunningCode:
    """The code that ranks run, to tell its frames from those of earlier cells."""

    name: str = ""
    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, code: str) -> RunningCode:
        lines = code.split("\n")
        while len(lines) > 1 and not lines[0].strip():
            del lines[
                0
            ]  # as IPython does: tracebacks count from the first line that says something
        return cls(cell_name(code), tuple(lines))

    def holds(self, frame: Frame) -> bool:
        return bool(self.name) and frame.cell == self.name

    def source(self, frame: Frame) -> str:
        """The text of the line that a frame is at, if it is of this code."""
        if self.holds(frame) and 0 < frame.line <= len(self.lines):
            return self.lines[frame.line - 1]
        return ""

    def place(self, frame: Frame) -> str:
        """``cell line 4``, ``an earlier cell, line 4``, ``train.py:33``."""
        if self.holds(frame):
            return f"cell line {frame.line}"
        if frame.cell:
            return f"an earlier cell, line {frame.line}"
        return f"{frame.short_file}:{frame.line}"

    def where(self, stack: Stack) -> str:
        """The line that the reader knows: of the cell, else of the innermost frame."""
        if not stack:
            return "an unknown place"
        own = next((frame for frame in stack if self.holds(frame)), None)
        return self.place(own or next((f for f in stack if f.cell), stack[0]))


def folded(stacks: Mapping[Rank, Stack]) -> list[tuple[tuple[Rank, ...], Stack]]:
    """Ranks with equal stacks together, in order of their first rank."""
    alike: dict[Stack, list[Rank]] = {}
    for rank in sorted(stacks):
        alike.setdefault(anonymous(stacks[rank]), []).append(rank)
    return [(tuple(ranks), stacks[ranks[0]]) for ranks in alike.values()]


def anonymous(stack: Stack) -> Stack:
    """Without what differs from rank to rank: the process id in the names of cells' files."""
    return tuple(
        Frame(f"<cell {frame.cell}>", frame.line, frame.function) if frame.cell else frame
        for frame in stack
    )
