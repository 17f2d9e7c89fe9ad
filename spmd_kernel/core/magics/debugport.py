"""``%debugport``: a port for debuggers that are no notebook."""

from __future__ import annotations

from ..errors import UsageError
from .arguments import Arguments, expand, parse, words
from .base import (
    Call,
    CloseDebugPort,
    Context,
    Magic,
    OpenDebugPort,
    Option,
    PortReport,
    Say,
    Steps,
)
from .wording import count

_HELP = """\
%debugport [--port N]
%debugport off

Let a debugger beside the notebook attach to all ranks at once: VS Code, nvim-dap, or any client of
the Debug Adapter Protocol. Each rank is a thread; breakpoints work in cells and in .py files, with
conditions such as `RANK == 1`, at the same time as the debugger of JupyterLab.

  --port N   listen on this port; else on one that is free
  off        listen no more, and end what is attached

It is off until you ask for it, and listens on 127.0.0.1 alone. The token that it shows once is what
a client must say; one client is attached at a time. Attach while no cell runs. Asked for again, it
shows the files of the cells that ran last: a breakpoint there stops in the cell.

docs/debugport.md has the configurations of the editors in full.
"""

_ADDRESS = "127.0.0.1"
_FILES = 10


def _debugport(call: Call, context: Context) -> Steps:
    given = parse((yield from expand(words(call.args), context)), _MAGIC)
    if _wants_off(given):
        was: PortReport = yield CloseDebugPort()
        yield Say(_closed(was))
        return
    if context.settings.language != "python":
        raise UsageError(
            f"ranks that speak {context.settings.language} have no debugger that could be attached to",
            "Python's have: `spmd-kernel list` shows which kernels there are",
        )
    report: PortReport = yield OpenDebugPort(_port(given))
    if report.problem:
        raise UsageError(
            f"the debug port cannot be opened: {report.problem}",
            "`%debugport` without --port takes a port that is free",
        )
    yield Say(_opened(report, context) if report.token else _open_already(report))


def _wants_off(given: Arguments) -> bool:
    if given.positional not in ([], ["off"]):
        raise UsageError(
            f"%debugport does not know {given.positional[0]!r}",
            "write `%debugport`, `%debugport --port N` or `%debugport off`",
        )
    if given.positional and given.values:
        raise UsageError("`off` goes without --port", "write `%debugport off`")
    return bool(given.positional)


def _port(given: Arguments) -> int:
    text = given.last("--port")
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and 1024 <= int(text[:6]) <= 65535):
        raise UsageError(f"{text!r} is no port", "a number from 1024 to 65535")
    return int(text)


def _opened(report: PortReport, context: Context) -> str:
    return f"""\
debug port {_ADDRESS}:{report.port}, {count(len(context.world), "rank")} · one client at a time · \
`%debugport off` closes it

VS Code (Python Debugger), in "configurations" of .vscode/launch.json:

  {{
    "name": "all ranks", "type": "debugpy", "request": "attach",
    "connect": {{"host": "{_ADDRESS}", "port": {report.port}}},
    "token": "{report.token}"
  }}

nvim-dap:

  :lua local d = require("dap"); d.adapters.spmd = {{ type = "server", host = "{_ADDRESS}", \
port = {report.port} }}; d.run({{ type = "spmd", request = "attach", name = "all ranks", \
token = "{report.token}" }})
"""


def _open_already(report: PortReport) -> str:
    state = "a client is attached" if report.attached else "nobody is attached"
    lines = [
        f"debug port {_ADDRESS}:{report.port} is open · {state}",
        "its token was shown when it was opened; `%debugport off`, then `%debugport`: another one",
    ]
    if report.files:
        width = max(len(name) for name, _ in report.files)
        lines.append("cells as files, the last ones:")
        lines += [f"  {name:{width}}  {path}" for name, path in report.files[-_FILES:]]
    return "\n".join(lines) + "\n"


def _closed(was: PortReport) -> str:
    if was.port is None:
        return "the debug port is not open\n"
    ended = "; the client that was attached is disconnected" if was.attached else ""
    return f"debug port {_ADDRESS}:{was.port} is closed{ended}\n"


_MAGIC = Magic(
    "debugport",
    "line",
    "let VS Code, nvim-dap or another debugger attach to all ranks",
    _HELP,
    _debugport,
    options=(Option("--port", "N"),),
    words=("off",),
)
MAGICS = (_MAGIC,)
