"""``setBreakpoints``, and the commands of which the last one counts: ranks that join get it, too."""

from __future__ import annotations

from collections.abc import Mapping

from ...conversation import Script
from ...errors import UsageError
from ..base import Call, Command
from ..lifecycle import kept, send_breakpoints
from ..routing import everywhere, require_started


def _begin(call: Call) -> None:
    """All ranks may be dead, or about to be replaced: new ones are told when they join."""
    if not call.session.started:
        require_started(call)


def _set_breakpoints(call: Call) -> Script:
    _begin(call)
    debugger, session = call.debugger, call.session
    source = call.arguments.get("source")
    path = source.get("path") if isinstance(source, Mapping) else None
    if not isinstance(path, str) or not path:
        raise UsageError("a source without a path")
    asked = call.arguments.items_of("breakpoints")
    if not all(isinstance(item, Mapping) and isinstance(item.get("line"), int) for item in asked):
        raise UsageError("a breakpoint without a line")
    points = debugger.store.set(session.name, path, asked, overlay=session.overlay)
    if debugger.live:
        yield from send_breakpoints(debugger, path, call.arguments)
    return {"breakpoints": [point.as_told(path) for point in points]}


def _kept(call: Call) -> Script:
    _begin(call)
    call.session.kept[call.command] = dict(call.arguments)
    if not call.debugger.is_on:
        return None
    return (yield from everywhere(call, kept(call.debugger, call.command)))


COMMANDS = (
    Command(
        "setBreakpoints",
        "breakpoints of a file, by rank where a condition says so",
        _set_breakpoints,
    ),
    Command("setExceptionBreakpoints", "which exceptions stop a rank", _kept),
    Command("setFunctionBreakpoints", "functions that stop a rank", _kept),
)
