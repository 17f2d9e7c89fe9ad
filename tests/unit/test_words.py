"""Last words: what a rank keeps in its file is what is read of it when it is dead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.model import Cause
from spmd_kernel.core.slot import State
from spmd_kernel.engines.base import LastWords
from spmd_kernel.engines.words import last_words
from spmd_kernel.rank.words import ROOM, Words

from ..world import start

texts = st.lists(st.text(), max_size=5)


@given(st.lists(st.tuples(texts, st.booleans()), max_size=5), texts)
def test_what_was_sent_last_and_what_was_not_is_read(
    tmp_path_factory: pytest.TempPathFactory, flushes: list[tuple[list[str], bool]], rest: list[str]
) -> None:
    prefix = str(tmp_path_factory.mktemp("words") / "r0")
    words, sent, msg_id = Words(f"{prefix}.stdout"), "", ""
    for number, (pieces, is_known) in enumerate(flushes):
        for piece in pieces:
            words.keep(piece)
        words.leave()
        words.left(b"m%d" % number if is_known else b"")
        if text := "".join(pieces):
            sent, msg_id = text, ""
        if is_known:
            msg_id = f"m{number}"
    for piece in rest:
        words.keep(piece)
    assert last_words(prefix) == (LastWords("stdout", sent, msg_id, "".join(rest)),)


def test_the_first_of_too_many_words_are_kept(tmp_path: Path) -> None:
    words = Words(f"{tmp_path}/r0.stderr")
    for _ in range(3):
        words.keep("é" * (ROOM // 2 - 1))
    words.keep("more")
    (kept,) = last_words(f"{tmp_path}/r0")
    assert kept.stream == "stderr"
    assert kept.unsent.rstrip("\N{REPLACEMENT CHARACTER}") == "é" * (ROOM // 2)
    words.leave()
    words.keep("next")
    (kept,) = last_words(f"{tmp_path}/r0")
    assert (len(kept.sent) >= ROOM // 2, kept.unsent) == (True, "next")


def test_a_forked_child_leaves_them_alone(tmp_path: Path) -> None:
    words = Words(f"{tmp_path}/r0.stdout")
    words.keep("parent")
    pid = os.fork()
    if pid == 0:
        words.keep("child")
        words.leave()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert last_words(f"{tmp_path}/r0")[0].unsent == "parent"


@given(st.binary(min_size=200, max_size=200))
def test_nonsense_is_text_all_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    prefix = tmp_path_factory.mktemp("words") / "r0"
    Words(f"{prefix}.stdout").keep("x")
    with open(f"{prefix}.stdout", "r+b") as file:
        file.write(data)
    (read,) = last_words(str(prefix))
    assert isinstance(read.sent + read.unsent + read.msg_id, str)
    Path(f"{prefix}.stdout").write_bytes(data)  # too short to be one
    assert last_words(str(prefix)) == ()


def test_they_come_before_the_report_of_the_death() -> None:
    world = start(2)
    cell = world.execute("work()")
    world.die(world.ranks[1], Cause(signal=11), unsent=(("stdout", "here\nand here"),))
    world.settle()
    kinds = [effect.msg_type for effect in cell.effects if effect.channel == "iopub"]
    assert cell.text == "1 │ here\n1 │ and here"
    assert kinds.index("stream") < kinds.index("error")


def test_between_cells_they_belong_to_the_last_one() -> None:
    world = start(2)
    cell = world.run("thread()")
    world.die(world.ranks[1], unsent=(("stderr", "from a thread\n"), ("stdout", "")))
    world.settle()
    assert cell.text.startswith("1 │ from a thread\n")


def test_those_of_a_rank_that_ends_as_it_should_are_no_cells() -> None:
    """It may have answered a page that was being loaded."""
    world = start(2)
    world.run("pass")
    cell = world.execute("%processes 3")
    while world.hub.group.slots[0].state is State.READY:
        world.step()
    for fake in list(world.ranks.values()):
        world.die(fake, Cause(code=0), unsent=(("stderr", "No such comm\n"),))
    world.settle()
    assert "3 ranks ready" in cell.text and "No such comm" not in cell.text


@pytest.mark.parametrize("size", [1, 2])
def test_a_mark_in_them_is_the_programs_own(size: int) -> None:
    world = start(size)
    cell = world.execute("work()")
    world.die(world.ranks[0], unsent=(("stdout", "a\x1fb\n"),))
    world.settle()
    assert "a\x1fb\n" in cell.text and "\x1f\x1f" not in cell.text
