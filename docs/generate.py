"""Write the tables of the documentation from the code's own registries.

    python docs/generate.py            rewrites them (`make docs`)
    python docs/generate.py --check    exit code 1 and the file's name if one is out of date

A table stands between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``; the rest is by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from spmd_kernel.core.magics import MAGICS

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs/magics.md")
BLOCK = re.compile(r"(<!-- begin: ([a-z-]+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)


def magic_table() -> str:
    """A row for each magic."""
    rows = [f"| `{token}` | {magic.summary} |" for token, magic in sorted(MAGICS.items())]
    return "\n".join(["| magic | what it is for |", "|---|---|", *rows]) + "\n"


def magic_help() -> str:
    """A section for each magic: what `%name?` shows."""
    return "\n".join(
        f"## {token}\n\n```text\n{magic.help.rstrip()}\n```\n"
        for token, magic in sorted(MAGICS.items())
    )


def filled(text: str, tables: Mapping[str, str]) -> str:
    """``text`` with each marked block replaced; an unknown name is a `KeyError`."""
    return BLOCK.sub(lambda found: found[1] + tables[found[2]] + found[3], text)


def main(check: bool) -> int:
    tables = {"magic-table": magic_table(), "magic-help": magic_help()}
    stale = []
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = filled(old, tables)
        if new != old:
            stale.append(page.name)
            if not check:
                page.write_text(new, encoding="utf-8")
    if stale:
        print("out of date:" if check else "rewritten:", ", ".join(stale))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
