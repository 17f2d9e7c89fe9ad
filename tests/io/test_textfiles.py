from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spmd_kernel.io import textfiles
from spmd_kernel.io.textfiles import TextFiles, sweep


def test_text_is_appended_to_files_that_only_their_owner_can_read(tmp_path: Path) -> None:
    files = TextFiles(lambda *_: pytest.fail("it can be written"))
    first, second = (str(tmp_path / "cache" / "outputs" / f"output-{n}.txt") for n in "12")
    files.append(first, "ä\n".encode())
    files.append(second, b"two\n")
    files.append(first, b"\xff more\n")
    files.close()
    assert Path(first).read_bytes() == "ä\n".encode() + b"\xff more\n"
    assert Path(second).read_text() == "two\n"
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(Path(first).parent).st_mode) == 0o700
    files.drop(first)
    files.drop(first)
    assert not Path(first).exists()


def test_a_failure_is_told_once(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    files = TextFiles(lambda *why: told.append(why))
    (tmp_path / "cache").write_text("a file")
    path = str(tmp_path / "cache" / "output-1.txt")
    files.append(path, b"a")
    files.append(path, b"b")
    ((failed, reason),) = told
    assert failed == path and reason


def test_a_full_disk_is_left_with_a_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    files = TextFiles(lambda *why: told.append(why))
    path = str(tmp_path / "output-1.txt")
    files.append(path, b"a")
    monkeypatch.setattr(textfiles, "RESERVE", 1 << 60)
    files.append(path, b"b" * textfiles.LOOK)
    assert [reason for _, reason in told] == ["less than 1 GB is free on that disk"]
    files.close()
    assert Path(path).read_text() == "a"


def test_old_files_go_when_a_new_one_is_made(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in ("output-1.txt", "output-2.txt", "notes.txt"))
    for path in (old, young, other):
        path.write_text("x")
    day = 86400
    for path in (old, other):
        os.utime(path, (0, old.stat().st_mtime - 8 * day))
    sweep(tmp_path)
    assert not old.exists() and young.exists() and other.exists()
