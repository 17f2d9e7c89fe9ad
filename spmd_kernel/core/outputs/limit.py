"""How much text of one cell is shown: the beginning and, at the end, the last of it.

All of it is in a file then.  Text goes there from `Shares.spool` on, so that the file is complete
whenever the limit comes, and what is smaller never touches the disk.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..content import dumps, read
from .publish import Publish

NEWLINE_AT_END = b'\\n"}'
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the limit, in bytes: where the file begins, and how much of the end is shown."""

    limit: int

    @property
    def spool(self) -> int:
        return min(self.limit // 4, 16 * MEGABYTE)

    @property
    def tail(self) -> int:
        return min(self.limit // 8, MEGABYTE)


class StreamLimit:
    """``published`` is shown, ``filed`` belongs into the file; both are taken with `take`.

    Sizes are those of contents, labels and all.
    """

    def __init__(self, limit: int, path: str):
        self._shares = Shares(limit)
        self._path = path
        self._size = 0
        self._ends_line = True
        self._is_over = False  # more than the limit came
        self._next_note = 2 * limit
        self._unfiled: deque[bytes] = deque()
        self._is_filed = False  # the file has begun
        self._tail: deque[Publish] = deque()
        self._tail_size = 0
        self._tail_is_cut = False  # it begins inside a line
        self._failed = False  # an error was shown, and the text before it
        self._problem = ""  # why there is no file
        self._published: list[Publish] = []
        self._filed: list[bytes] = []

    @property
    def has_file(self) -> bool:
        """Text was filed."""
        return self._is_filed

    @property
    def is_over(self) -> bool:
        return self._is_over

    def take(self) -> tuple[list[Publish], list[bytes]]:
        """What is to be shown, and contents of stream messages that are to be filed."""
        taken = self._published, self._filed
        self._published, self._filed = [], []
        return taken

    def feed(self, item: Publish) -> None:
        """An output of the cell; raises `BadMessage` on a stream message that is none."""
        if item.msg_type == "error" and self._is_over and not self._failed:
            self._failed = True
            self._show_tail()
        if item.msg_type != "stream":
            self._published.append(item)
            return
        self._size += len(item.content)
        if not self._is_over and self._size > self._shares.limit:
            item = self._exceed(item)
        else:
            self._file(item.content)
        if not self._is_over:
            self._published.append(item)
            self._ends_line = item.content.endswith(NEWLINE_AT_END)
        elif item.content:
            self._keep(item)

    def broken(self, reason: str) -> str:
        """The file cannot be written: what is to be said of that."""
        self._problem = reason
        self._unfiled.clear()
        return f"the text of this cell is no longer kept: {reason}" if self._is_over else ""

    def end(self) -> None:
        """The cell is over."""
        if self._is_over:
            self._show_tail()

    # ---------------------------------------------------------------- beyond the limit

    def _exceed(self, item: Publish) -> Publish:
        """Show as much of it as there is room for, and say where the rest is; the rest."""
        self._file(item.content, begin=True)
        self._is_over = True
        content = read(item.content)
        name, text = content.text("name", "stdout"), content.text("text")
        room = max(0, self._shares.limit - self._size + len(item.content))
        cut = text.rfind("\n", 0, room) + 1 or room
        if shown := text[:cut]:
            self._published.append(_stream(name, shown))
            self._ends_line = shown.endswith("\n")
        self._tail_is_cut = not self._ends_line
        self._say(f"more than {_megabytes(self._shares.limit)} of text: {self._where()}")
        return _stream(name, text[cut:])

    def _where(self) -> str:
        if self._problem:
            return f"from here on only its end is kept, as {self._path}: {self._problem}"
        return f"from here on it goes to {self._path}"

    def _keep(self, item: Publish) -> None:
        self._tail.append(item)
        self._tail_size += len(item.content)
        while self._tail_size - len(self._tail[0].content) >= self._shares.tail:
            content = self._tail.popleft().content
            self._tail_size -= len(content)
            self._tail_is_cut = not content.endswith(NEWLINE_AT_END)
        if self._size > self._next_note:
            self._next_note *= 2
            self._say(f"{_megabytes(self._size)} so far")

    def _show_tail(self) -> None:
        texts = [_text(item) for item in self._tail]
        self._tail.clear()
        self._tail_size = 0
        surplus = sum(len(text) for _, text in texts) - self._shares.tail
        if surplus > 0 or self._tail_is_cut:
            texts = _from_a_line_on(texts, max(0, surplus))
        self._tail_is_cut = bool(texts) and not texts[-1][1].endswith("\n")
        shown = sum(len(text) for _, text in texts)
        place = f", all in {self._path}" if not self._problem else ""
        if shown:
            what = f"the last {_megabytes(shown)} of {_megabytes(self._size)}{place}:"
        else:
            what = f"the text ends after {_megabytes(self._size)}{place}"
        self._say(what)
        self._published += [_stream(name, text) for name, text in texts if text]
        if texts:
            self._ends_line = texts[-1][1].endswith("\n")

    def _say(self, text: str) -> None:
        line = "" if self._ends_line else "\n"
        self._ends_line = True
        self._published.append(_stream("stderr", f"{line}… {text}\n"))

    # ---------------------------------------------------------------- the file

    def _file(self, content: bytes, begin: bool = False) -> None:
        if self._problem:
            return
        self._unfiled.append(content)
        self._is_filed = self._is_filed or begin or self._size > self._shares.spool
        portion = self._shares.limit if begin else 2 * MEGABYTE  # not all at once: others wait
        while self._is_filed and self._unfiled and portion > 0:
            self._filed.append(self._unfiled.popleft())
            portion -= len(self._filed[-1])


def _from_a_line_on(texts: list[tuple[str, str]], start: int) -> list[tuple[str, str]]:
    """What begins with the first line after ``start``: labels are at the beginnings of lines."""
    for index, (name, text) in enumerate(texts):
        if found := text.find("\n", start) + 1:
            return [(name, text[found:]), *texts[index + 1 :]]
        start = 0
    return []


def _text(item: Publish) -> tuple[str, str]:
    content = read(item.content)
    return content.text("name", "stdout"), content.text("text")


def _stream(name: str, text: str) -> Publish:
    return Publish("stream", dumps({"name": name, "text": text}))


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.3g} MB" if size < 1000 * MEGABYTE else f"{size / 1e9:.3g} GB"
