"""stdout and stderr: from chunks of text, cut anywhere, to lines (`Fold` decides on those).

A record is a line, or the lines of one ``write`` call if the rank marks them (`rank/setup.py`): one
U+001F after a newline says that the next line belongs to the same call; two stand for one that the
program itself wrote.  ``\\r\\n`` is a newline, also when it comes in two messages, and no mark counts
after it: a ``!command`` has such lines, which come in pieces of any size.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from .colours import Open, settle
from .item import Item, Ranks
from .keys import Keys
from .lane import Lane
from .live import LiveSlot
from .page import Page
from .slots import Slots
from .writing import Escaped

MARK = "\x1f"
BLOCK = 16  # lines of one message that are worth a block
WEIGHT = 60  # characters that a line takes besides its own: a million empty ones are not nothing
_SPECIAL = re.compile("[\0\r\x1b\x1f]")
_MARKED_RETURN = re.compile("\r\n\x1f((?:\x1f\x1f)*)(?!\x1f)")


class Line(Item):
    """A record without its final newline.  ``is_line``: the newline came."""

    __slots__ = ("is_line", "stream", "text")
    barrier = False

    def __init__(self, born: float, key: Hashable | None, text: str, stream: str, is_line: bool):
        self.born = born
        self.key = key
        self.size = len(text) + WEIGHT
        self.text = text
        self.stream = stream
        self.is_line = is_line

    def is_same(self, other: Item) -> bool:
        return (
            isinstance(other, Line)
            and self.text == other.text
            and self.stream == other.stream
            and self.is_line == other.is_line
        )

    def publish(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> None:
        text = self.text
        for item in items:
            assert isinstance(item, Line)
            if item.text != text:
                text = page.keys[ranks[0]].shown(text)
                break
        page.text(self.stream, ranks, text, self.is_line)

    def to_slot(self, slots: Slots, rank: int) -> bool:
        return slots.text(rank, self.text + "\n" if self.is_line else self.text)


class Block(Item):
    """Complete lines of one message, none of which any rule of `keys` changes.

    They are split, counted, labelled and joined by the interpreter, not one by one by us: that is
    what makes 100,000 lines cheap.  Its ``key`` is that of its first line.
    """

    __slots__ = ("keys", "lines", "needs_escapes", "start", "stream")
    barrier = False
    several = True

    def __init__(self, born: float, lines: list[str], prefix: str, stream: str, size: int):
        self.lines = lines
        self.keys = [prefix + line for line in lines] if prefix else lines
        self.start = 0  # lines before it were parted from the block
        self.stream = stream
        self.needs_escapes = True  # in JSON, beside newlines
        super().__init__(born, self.keys[0], size + (WEIGHT - 1) * len(lines))

    def part(self) -> tuple[Line, bool]:
        line = Line(self.born, self.key, self.lines[self.start], self.stream, True)
        self.start += 1
        self.size -= line.size
        is_empty = self.start == len(self.lines)
        if not is_empty:
            self.key = self.keys[self.start]
        return line, is_empty

    def common(self, others: Sequence[Item]) -> int:
        count = len(self.keys) - self.start
        for other in others:
            assert isinstance(other, Block)
            most = min(count, len(other.keys) - other.start)
            count = common_lines(self.keys, self.start, other.keys, other.start, most)
        return count

    def split(self, count: int) -> Block:
        lines = self.lines[self.start : self.start + count]
        part = Block(self.born, lines, "", self.stream, sum(map(len, lines)) + count)
        part.key = self.key
        part.needs_escapes = self.needs_escapes
        self.start += count
        self.size -= part.size
        self.key = self.keys[self.start]
        return part

    def keys_left(self) -> list[str]:
        return self.keys[self.start :] if self.start else self.keys

    def publish(self, page: Page, ranks: Ranks, items: Sequence[Item]) -> None:
        lines = self.lines[self.start :] if self.start else self.lines
        page.lines(self.stream, ranks, lines, self.needs_escapes)

    def to_slot(self, slots: Slots, rank: int) -> bool:
        return slots.text(rank, "\n".join(self.lines[self.start :]) + "\n")


class OpenLine(Line):
    """A line whose newline has not come.  Pieces are joined once, when it is complete."""

    __slots__ = ("pieces", "tail")

    def __init__(self, born: float, text: str, tail: Tail):
        super().__init__(born, None, text, tail.stream, False)
        self.pieces = [text]
        self.tail = tail

    def append(self, text: str, lane: Lane) -> None:
        self.pieces.append(text)
        self.size += len(text)
        lane.size += len(text)

    def break_off(self, lane: Lane, lanes: Sequence[Lane], at: float) -> None:
        """Show what all ranks have of it as theirs, else this rank's part as it is."""
        if self.tail.ends_in_return:
            self.tail.go_live(at)
            return
        together = _same_beginning(self.stream, lanes)
        if together:
            shortest = min(len(line.whole()) for line in together)
            for line in together:
                line.tail.break_off(shortest, at)
        else:
            self.tail.break_off(len(self.whole()), at)

    def whole(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0]


def _same_beginning(stream: str, lanes: Sequence[Lane]) -> list[OpenLine]:
    """The unfinished lines of all ranks, if the shortest of them begins each."""
    lines: list[OpenLine] = []
    for lane in lanes:
        if (lane.items or lane.is_running) and not lane.is_blocked:
            line = lane.items[0] if lane.items else None
            if not isinstance(line, OpenLine) or line.key is not None or line.stream != stream:
                return []
            if line.tail.ends_in_return:
                return []
            lines.append(line)
    shortest = min((line.whole() for line in lines), key=len, default="")
    return lines if all(line.whole().startswith(shortest) for line in lines) else []


class Tail:
    """One stream of one rank: what of it is not a complete line yet."""

    def __init__(self, stream: str, lane: Lane, keys: Keys, slot: LiveSlot, marks: bool):
        self.stream = stream
        self._marks = marks  # the rank tells which lines belong together
        self.ends_in_return = False  # a carriage return came, of which a newline may follow
        # Keys of stdout are the text itself, as no such text begins with a null: see `_key`.
        self._prefix = "" if stream == "stdout" else f"\0{stream}\0"
        self._lane = lane
        self._keys = keys
        self._slot = slot
        self._colour: Open = {}
        self._open: OpenLine | None = None
        self._state: str | None = None  # of the line that is being rewritten in the live slot

    # ---------------------------------------------------------------- text comes

    def feed(self, text: str | Escaped, at: float) -> None:
        if self._state is not None or self.ends_in_return or self._colour:
            self._special(text if isinstance(text, str) else text.text, at)
        elif isinstance(text, Escaped):
            if self._open is not None:
                self._special(text.lines[0] + "\n" * (len(text.lines) > 1), at)
                text = text.without_first_line()
            if text.json:
                self._escaped(text, at)
        elif _SPECIAL.search(text) is None:
            if self._open is not None:  # a message may end anywhere in a line
                line, newline, text = text.partition("\n")
                self._special(line + newline, at)
            if text:
                self._plain(text, at)
        else:
            self._special(text, at)

    def _escaped(self, text: Escaped, at: float) -> None:
        """Nothing in it is `_SPECIAL`: that would have been escaped."""
        *lines, rest = text.lines
        # Without a colon no rule looks at where a line begins.
        if len(lines) < BLOCK or not Keys.plain(text.text if ":" in text.json else text.json):
            self._plain(text.text, at)
            return
        block = Block(at, lines, self._prefix, self.stream, text.size - len(rest))
        block.needs_escapes = False
        self._lane.push(block)
        if rest:
            self._begin(rest, at)

    def _plain(self, text: str, at: float) -> None:
        lines = text.split("\n")
        rest = lines.pop()
        prefix, stream, push = self._prefix, self.stream, self._lane.push
        if len(lines) >= BLOCK and Keys.plain(text):
            push(Block(at, lines, prefix, stream, len(text) - len(rest)))
        elif Keys.plain(text):
            for line in lines:
                push(Line(at, prefix + line, line, stream, True))
        else:
            for line in lines:
                push(Line(at, prefix + self._keys.text(line), line, stream, True))
        if rest:
            self._begin(rest, at)

    def _special(self, text: str, at: float) -> None:
        records, rest = self._records(text)
        for record in records:
            self._finish_line(record, at)
        if rest:
            self._go_on(rest, at)

    def _records(self, text: str) -> tuple[list[str], str]:
        """Complete records without their last newline, and what follows them."""
        if self.ends_in_return:
            text = "\r" + text
        marked = self._marks and MARK in text
        if marked and "\r" in text:
            text = _MARKED_RETURN.sub(r"\n\1", text)
        text = text.replace("\r\n", "\n")
        self.ends_in_return = text.endswith("\r")
        if self.ends_in_return:
            text = text[:-1]
        records = glued(text.split("\n")) if marked else text.split("\n")
        rest = records.pop()
        return records, rest

    # ---------------------------------------------------------------- a line grows

    def _begin(self, text: str, at: float) -> None:
        self._open = OpenLine(at, text, self)
        self._lane.push(self._open)

    def _go_on(self, text: str, at: float) -> None:
        if self._state is not None:
            self._rewrite(self._state + text, at)
        elif self._open is None:
            self._begin(text, at)
        elif self._open is self._lane.items[-1]:
            self._open.append(text, self._lane)
        else:  # something else came in between: what was there first stays first
            self.break_off(self._open.size, at)
            self._begin(text, at)
        if "\r" in text:
            self.go_live(at)

    def _finish_line(self, text: str, at: float) -> None:
        if self._state is not None:
            self._end_live(self._state + text, at)
        elif self._open is None:
            self._lane.push(self._line(text, at, True))
        elif self._open is self._lane.items[-1] or not text:
            self._open.append(text, self._lane)
            self._complete(self._open, self._open.whole(), True)
        else:
            self.break_off(self._open.size, at)
            self._lane.push(self._line(text, at, True))

    def _line(self, text: str, at: float, is_line: bool) -> Line:
        text, key = self._settle(text, is_line)
        return Line(at, key, text, self.stream, is_line)

    def _complete(self, line: OpenLine, text: str, is_line: bool) -> None:
        line.text, key = self._settle(text, is_line)
        line.is_line = is_line
        self._lane.complete(line, key, len(line.text) + WEIGHT)
        self._open = None

    def _settle(self, text: str, is_line: bool) -> tuple[str, Hashable]:
        """The text as it is shown, and its key."""
        rewritten = "\r" in text
        if rewritten:
            text = "\n".join(collapse(line).rstrip(" ") for line in text.split("\n"))
        if self._colour or "\x1b" in text:
            text = settle(text, self._colour)
        key = self._keys.bar(text) if rewritten else self._keys.text(text)
        return text, self._key(key, is_line)

    def _key(self, key: str, is_line: bool) -> Hashable:
        if not is_line or key.startswith("\0"):
            return (self.stream, key, is_line)
        return self._prefix + key

    # ---------------------------------------------------------------- it is not waited for

    def break_off(self, length: int, at: float) -> None:
        """Complete the first ``length`` characters; the rest stays unfinished, at its place."""
        line = self._open
        assert line is not None
        text = line.whole()
        self._complete(line, text[:length], False)
        if text[length:]:
            assert line is self._lane.items[0]
            self._open = OpenLine(at, text[length:], self)
            self._lane.insert_second(self._open)

    def cut(self, at: float) -> None:
        """Something else follows: what came of the line stands before it."""
        if self._open is not None:
            self.break_off(self._open.size, at)

    def finish(self, at: float) -> None:
        """Nothing more comes: the rest goes out as it is, or stays in the live slot."""
        if self._state is not None and not self._slot.keeps(self._lane.rank, self.stream):
            state, self._state = self._state, None
            self._slot.drop(self._lane.rank, self.stream, at)
            if collapse(state).strip():
                self._lane.push(self._line("\r" + state, at, False))
        self._state = None
        self.ends_in_return = False
        self.cut(at)

    # ---------------------------------------------------------------- progress bars

    def go_live(self, at: float) -> None:
        """The line turned out to be one that is rewritten: it moves to the live slot."""
        if self._open is not None:
            line, self._open = self._open, None
            self._lane.remove(line)
            self._rewrite(line.whole(), at)

    def _rewrite(self, text: str, at: float) -> None:
        before, _, newest = text.rpartition("\r")
        self._state = f"{collapse(before)}\r{newest}"
        self._slot.set(self._lane.rank, self.stream, collapse(self._state).rstrip(" "), at)

    def _end_live(self, text: str, at: float) -> None:
        self._state = None
        self._slot.drop(self._lane.rank, self.stream, at)
        self._lane.push(self._line("\r" + text, at, True))


def common_lines(a: list[str], i: int, b: list[str], j: int, most: int) -> int:
    """How many are equal from ``a[i]`` and ``b[j]`` on; the cost is that of what is equal."""
    count, step = 0, BLOCK
    while count < most:
        end = min(count + step, most)
        if a[i + count : i + end] != b[j + count : j + end]:
            while a[i + count] == b[j + count]:
                count += 1
            return count
        count, step = end, 2 * step
    return count


def glued(lines: list[str]) -> list[str]:
    """Lines that a mark joins with the one before, as one; the program's own U+001F as it wrote it."""
    records: list[list[str]] = []
    for line in lines:
        run = len(line) - len(line.lstrip(MARK))
        if run % 2 and records:
            records[-1].append(line[1:])
        else:
            records.append([line[run % 2 :]])
    return ["\n".join(record).replace(MARK + MARK, MARK) for record in records]


def unmarked(text: str) -> str:
    """What the program wrote, of a text that a rank has marked."""
    return "\n".join(glued(text.split("\n"))) if MARK in text else text


def collapse(text: str) -> str:
    """What a terminal shows of a line with carriage returns: later text over what was there."""
    shown = ""
    for piece in text.split("\r"):
        if "\x1b" in piece or "\x1b" in shown:  # widths are unknown: the newest that shows text
            shown = piece if piece.strip() else shown
        elif piece:
            shown = piece + shown[len(piece) :]
    return shown


class RankText:
    """Both streams of one rank."""

    def __init__(self, lane: Lane, keys: Keys, slot: LiveSlot, marks: bool = True):
        self._lane = lane
        self._keys = keys
        self._slot = slot
        self._marks = marks
        self._tails: dict[str, Tail] = {}

    def feed(self, stream: str, text: str | Escaped, at: float) -> None:
        tail = self._tails.get(stream)
        if tail is None:
            tail = self._tails[stream] = Tail(
                stream, self._lane, self._keys, self._slot, self._marks
            )
        tail.feed(text, at)
        if self._lane.finished is not None:
            tail.finish(at)

    def cut(self, at: float) -> None:
        for tail in self._tails.values():
            tail.cut(at)

    def finish(self, at: float) -> None:
        for tail in self._tails.values():
            tail.finish(at)
