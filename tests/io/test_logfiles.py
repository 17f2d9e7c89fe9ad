"""Files of what each rank says."""

from __future__ import annotations

from pathlib import Path

import pytest

from spmd_kernel.io.logfiles import LogFiles, probe


def test_text_is_there_at_once_and_appended(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert probe(str(folder)) == ""
    path = folder / "rank-3.log"
    for expected in ("a\n", "a\nb é \udcff\n"):
        files = LogFiles(lambda *why: pytest.fail(str(why)))
        files.append(str(folder), 3, expected[2:] or expected)
        assert path.read_bytes() == expected.encode("utf-8", "surrogatepass")
        files.append(str(folder), 4, "other")
        files.close()
    assert (folder / "rank-4.log").read_text() == "otherother"


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert probe(str(tmp_path / "file")) == "File exists"
    assert probe(str(tmp_path / "file" / "x")) == "Not a directory"
    assert probe("/proc/nowhere") == "No such file or directory"
    assert probe("") == ""


def test_a_failure_is_told_once_for_each_folder(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    files = LogFiles(lambda folder, reason: told.append((folder, reason)))
    full = tmp_path / "full"
    full.mkdir()
    (full / "rank-0.log").symlink_to("/dev/full")
    for _ in range(3):
        files.append(str(full), 0, "text")
        files.append(str(tmp_path), 0, "text")
    assert told == [(str(full), "No space left on device")]
    assert (tmp_path / "rank-0.log").read_text() == "text" * 3
    files.forgive(str(full))
    files.append(str(full), 0, "text")
    assert len(told) == 2
    files.close()
