"""Write the tables of the documentation from the code's own registries.

    python docs/generate.py            rewrites them (`make docs`)
    python docs/generate.py --check    exit code 1 and the file's name if one is out of date

A table stands between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``; the rest is by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from spmd_kernel.core.control import COMMANDS
from spmd_kernel.core.control.base import Command
from spmd_kernel.core.dap.commands import COMMANDS as DEBUG_COMMANDS
from spmd_kernel.core.magics import MAGICS

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(
    ROOT / n for n in ("README.md", "docs/magics.md", "docs/control.md", "docs/debugger.md")
)
WIDTH = 110
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


def control_commands() -> str:
    """A section for each control command, with the schemas of what it takes and answers."""
    rows = [f"| [`{name}`](#{name}) | {COMMANDS[name].summary} |" for name in sorted(COMMANDS)]
    table = "\n".join(["| command | what it does |", "|---|---|", *rows]) + "\n"
    return "\n".join([table, *(_control_command(COMMANDS[name]) for name in sorted(COMMANDS))])


def debug_commands() -> str:
    """A row for each command of the debugger that is more than passed on."""
    rows = [f"| `{name}` | {DEBUG_COMMANDS[name].summary} |" for name in sorted(DEBUG_COMMANDS)]
    return "\n".join(["| command | what it does |", "|---|---|", *rows]) + "\n"


def _control_command(command: Command) -> str:
    example = json.dumps(
        {"command": command.name, "arguments": dict(command.example)}, ensure_ascii=False
    )
    return (
        f"### {command.name}\n\n{command.summary[0].upper()}{command.summary[1:]}.\n\n```json\n{example}\n```\n\n"
        f"Arguments:\n\n```json\n{_pretty(command.schema)}\n```\n\n"
        f"Data:\n\n```json\n{_pretty(command.data)}\n```\n"
    )


def _pretty(value: object, indent: str = "") -> str:
    """JSON, on one line what fits there."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, list):
        items = [_pretty(item, inner) for item in value]
        return "[\n" + ",\n".join(inner + item for item in items) + f"\n{indent}]"
    members = [f"{json.dumps(key)}: {_pretty(item, inner)}" for key, item in value.items()]
    return "{\n" + ",\n".join(inner + member for member in members) + f"\n{indent}}}"


def filled(text: str, tables: Mapping[str, str]) -> str:
    """``text`` with each marked block replaced; an unknown name is a `KeyError`."""
    return BLOCK.sub(lambda found: found[1] + tables[found[2]] + found[3], text)


def main(check: bool) -> int:
    tables = {
        "magic-table": magic_table(),
        "magic-help": magic_help(),
        "control-commands": control_commands(),
        "debug-commands": debug_commands(),
    }
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
