"""What a person sees of a notebook that several ranks ran: in exports, logs, checks and a terminal."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pexpect
import pytest
from nbclient import NotebookClient

from spmd_kernel.core.outputs import parse_label

from .client import ANSI
from .test_headless import EXAMPLES, notebook

CELLS = (
    "%processes 4",
    """
import os, sys, time
rank = int(os.environ["RANK"])
print("the same everywhere")
print(f"I am rank {rank}")
print("\\x1b[31mred on all\\x1b[0m")
print(f"\\x1b[32mgreen {rank // 2}\\x1b[0m")
""",
    """
import numpy as np
print(np.arange(4).reshape(2, 2) + rank)
""",
    """
from IPython.display import HTML, display
display(HTML(f"<table><tr><td>cell of {rank}</td></tr></table>"))
""",
    """
import matplotlib
matplotlib.use("agg")
from matplotlib import pyplot as plt
from IPython.display import Image
import io
buffer = io.BytesIO()
plt.figure(figsize=(1, 1)); plt.plot([0, rank]); plt.savefig(buffer, format="png"); plt.close()
Image(buffer.getvalue())
""",
    "rank // 2",
    """
from tqdm import tqdm
for step in tqdm(range(5), bar_format="{desc}{n}/{total}", desc="steps "): time.sleep(0.2)
""",
    "assert rank != 2, 'rank 2 is not well'",
)
LABELS = [f"{rank} │ I am rank {rank}" for rank in range(4)]
TENSORS = [
    [f"{rank} │ [[{rank} {rank + 1}]", f"{rank} │  [{rank + 2} {rank + 3}]]"] for rank in range(4)
]
RESULTS = ["0-1 │ 0", "2-3 │ 1"]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nb = notebook(*CELLS)
    nb.cells[-1].metadata["tags"] = ["raises-exception"]
    NotebookClient(nb, kernel_name="spmd-python3", timeout=120).execute()
    nbformat.validate(nb)
    path: Path = tmp_path_factory.mktemp("executed") / "all.ipynb"
    nbformat.write(nb, path)
    return path


def run(*words: str | Path, cwd: Path) -> str:
    """A command of this environment; what it says on both streams."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def convert(path: Path, to: str) -> str:
    run("nbconvert", "--to", to, path.name, cwd=path.parent)
    suffix = {"html": ".html", "markdown": ".md", "latex": ".tex", "script": ".py"}[to]
    return path.with_suffix(suffix).read_text(encoding="utf-8")


class Page(HTMLParser):
    """The text of the outputs in a page, and its images."""

    def __init__(self, text: str):
        super().__init__()
        self.images: list[bytes] = []
        self.parts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        source = dict(attributes).get("src") or ""
        if tag == "img" and source.startswith("data:image/png;base64,"):
            self.images.append(base64.b64decode(source.partition(",")[2]))

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    @property
    def lines(self) -> list[str]:
        return "".join(self.parts).splitlines()


def together(wanted: list[str], lines: list[str]) -> bool:
    """They follow each other, with nothing in between."""
    stripped = [line.strip() for line in lines]
    start = stripped.index(wanted[0])
    return stripped[start : start + len(wanted)] == wanted


def ranks_of(text: str, lines: list[str]) -> list[int]:
    """The ranks that are shown to have said it. On a busy machine some of them say it later."""
    parsed = (parse_label(line.strip()) for line in lines)
    return sorted(rank for ranks, rest in parsed if rest == text for rank in ranks or range(4))


def check_text(lines: list[str]) -> None:
    """What every form of the notebook shows, each line once."""
    plain = [ANSI.sub("", line) for line in lines]
    check_streams(plain)
    shown = [line for line in plain if line.strip() and not line.strip().startswith("Out[")]
    assert together(RESULTS, shown)
    assert any("rank 2 is not well" in line for line in plain)
    assert any(line.strip().startswith("2 │ ---") for line in plain)


def check_streams(lines: list[str]) -> None:
    assert sorted(line for line in map(str.strip, lines) if line in LABELS) == LABELS
    assert all(together(tensor, lines) for tensor in TENSORS)
    for text in ("the same everywhere", "red on all", "steps 5/5"):
        assert ranks_of(text, lines) == [0, 1, 2, 3]
    assert ranks_of("green 0", lines) == [0, 1]
    assert ranks_of("green 1", lines) == [2, 3]


def test_html(executed: Path) -> None:
    page = Page(convert(executed, "html"))
    check_text(page.lines)
    assert len(set(page.images)) == 4
    lines = [line.strip() for line in page.lines if line.strip()]
    for rank in range(4):
        assert lines.count(f"cell of {rank}") == 1
        assert lines[lines.index(f"cell of {rank}") - 1] == f"{rank} │"


def test_markdown(executed: Path) -> None:
    text = convert(executed, "markdown")
    check_text(text.splitlines())
    images = re.findall(r"!\[png\]\(([^)]+)\)", text)
    assert len({(executed.parent / image).read_bytes() for image in images}) == 4
    assert all("\x1b" not in line.partition("│")[0] for line in text.splitlines() if "│" in line)


def test_latex(executed: Path) -> None:
    text = convert(executed, "latex")
    lines = re.sub(r"\\textcolor\{[a-z-]+\}\{([^{}]*)\}", r"\1", text).splitlines()
    check_streams(lines)
    assert text.count(r"\adjustimage") == 4


def test_papermill_logs_what_ranks_say(tmp_path: Path) -> None:
    source = tmp_path / "in.ipynb"
    nbformat.write(notebook(*CELLS[:3], *CELLS[6:7]), source)
    words = ("--log-output", "--no-progress-bar", source, tmp_path / "out.ipynb")
    text = run("papermill", *words, cwd=tmp_path)
    check_streams([ANSI.sub("", line) for line in text.splitlines()])


def test_papermill_stops_with_the_root_cause(tmp_path: Path) -> None:
    source = tmp_path / "in.ipynb"
    nbformat.write(notebook(CELLS[0], CELLS[1], CELLS[7], "print('not run')"), source)
    with pytest.raises(AssertionError) as caught:
        run("papermill", "--no-progress-bar", source, tmp_path / "out.ipynb", cwd=tmp_path)
    text = ANSI.sub("", str(caught.value))
    assert "AssertionError: rank 2 is not well" in text
    assert "2 │ ----" in text
    out = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert not out.cells[-1].outputs


def nbval(path: Path, *options: str) -> str:
    place = ("-p", "no:cacheprovider", "--rootdir", path.parent, "-c", os.devnull)
    words = ("pytest", *options, *place, path)
    return run(*words, cwd=path.parent)


def test_nbval_accepts_the_quickstart(tmp_path: Path) -> None:
    nb = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    NotebookClient(nb, kernel_name="spmd-python3", timeout=120).execute()
    nbformat.write(nb, tmp_path / "quickstart.ipynb")
    count = sum(cell.cell_type == "code" for cell in nb.cells)
    text = nbval(tmp_path / "quickstart.ipynb", "--nbval-lax")
    assert f"{count} passed" in text


def test_grouped_outputs_are_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbval compares every output with the one that was saved."""
    nb = notebook(
        "%processes 4",
        *CELLS[1:6],
        """
import random
for step in range(5):
    time.sleep(random.random() / 10)
    print("step", step)
    print("loss", rank + step)
    print("warning", step, file=sys.stderr)
""",
        "print(rank); raise ValueError(rank)",
    )
    nb.cells[-1].metadata["tags"] = ["raises-exception"]
    monkeypatch.setenv("SPMD_OUTPUT", "grouped")
    NotebookClient(nb, kernel_name="spmd-python3", timeout=120).execute()
    nbformat.write(nb, tmp_path / "grouped.ipynb")
    text = nbval(tmp_path / "grouped.ipynb", "--nbval")
    assert f"{len(nb.cells)} passed" in text


class Console:
    """``jupyter console`` in a pseudo-terminal, as someone types into it."""

    def __init__(self) -> None:
        words = ["-m", "jupyter_console", "--kernel", "spmd-python3", "--simple-prompt"]
        self.child = pexpect.spawn(
            sys.executable,
            words,
            env={**os.environ, "TERM": "dumb"},
            encoding="utf-8",
            timeout=90,
            dimensions=(50, 160),
        )
        self.count = 1
        self.child.expect_exact("In [1]: ")

    def type(self, text: str) -> list[str]:
        """The lines that appear until the next prompt, without the echo."""
        self.count += 1
        self.child.sendline(text)
        self.child.expect_exact(f"In [{self.count}]: ")
        return self.lines()[len(text.splitlines()) :]

    def lines(self) -> list[str]:
        return [line.rstrip() for line in ANSI.sub("", str(self.child.before)).splitlines()]

    def close(self) -> Any:
        self.child.sendline("exit()")
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus


def test_console() -> None:
    console = Console()
    assert any("2 ranks ready" in line for line in console.type("%processes 2"))
    console.type("import os, time; rank = int(os.environ['RANK'])")
    assert {parse_label(line)[1] for line in console.type("print('same')") if line} == {"same"}
    assert sorted(filter(None, console.type("print('I', rank)"))) == ["0 │ I 0", "1 │ I 1"]
    results = [line for line in console.type("rank") if line]
    assert results == ["Out[5]: 0 │ 0", "Out[5]: 1 │ 1"]
    assert "ZeroDivisionError: division by zero" in console.type("1 / rank")
    console.child.sendline("print(input('who? ') + '!')")
    console.child.expect_exact("who? ")
    assert "ann!" in console.type("ann")
    assert console.close() == 0


def test_a_bar_in_a_console() -> None:
    """No display that is never updated: the line every five seconds, then the finished one."""
    console = Console()
    console.type("%processes 2")
    console.type("import time, sys, os; rank = os.environ['RANK']")
    code = (
        "for i in range(14): print('\\rat', i, 'on', rank, end='', flush=True) or time.sleep(0.5)"
    )
    lines = [line for line in console.type(code) if line and "print(" not in line]
    assert len(lines) == 4
    middle = re.compile(r"([01]) │ at ([89]|1[01]) on \1")
    assert all(middle.fullmatch(line) for line in lines[:2])
    assert lines[2:] == ["0 │ at 13 on 0", "1 │ at 13 on 1"]
    assert console.close() == 0
