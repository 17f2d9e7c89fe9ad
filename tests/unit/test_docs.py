"""The documentation says what the code does: generated tables, the rank's environment, links."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spmd_kernel import doctor
from spmd_kernel.core.control import COMMANDS
from spmd_kernel.core.control.schema import fault
from spmd_kernel.core.model import Settings
from spmd_kernel.core.topology import SCRUBBED, SCRUBBED_PREFIXES, World, rank_environment

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "labextension/README.md"]


def test_generated_tables_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nhint: make docs"


def test_each_variable_of_a_rank_is_documented() -> None:
    text = (ROOT / "docs/environment.md").read_text()
    world = World(size=2, incarnation=0, master_port=1, jax_port=2, run_id="x")
    variables, _ = rank_environment(Settings(session="s"), world, 1, {}, gpus=True)
    names = {*variables, *SCRUBBED, *(f"{prefix}*" for prefix in SCRUBBED_PREFIXES)}
    assert {name for name in names if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("name", doctor.VARIABLES)
def test_each_variable_that_is_read_is_documented(name: str) -> None:
    for page in ("README.md", "docs/environment.md"):
        assert f"`{name}`" in (ROOT / page).read_text()


def test_the_documented_commands_are_those_that_exist() -> None:
    text = (ROOT / "docs/control.md").read_text()
    assert set(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == set(COMMANDS)
    examples = [json.loads(found) for found in re.findall(r'^{"command": "\w+".*}$', text, re.M)]
    assert {example["command"] for example in examples} == set(COMMANDS)
    for example in examples:
        assert fault(example["arguments"], COMMANDS[example["command"]].schema, "") == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (page.parent / link).exists()] == []
