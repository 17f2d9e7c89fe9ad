"""``dumpCell`` and ``source``: the text of cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...conversation import Script
from ...errors import RankLost, UsageError
from ...magics import what_runs
from ...model import KeepSource, Rank
from ..base import Call, Command, Reply
from ..lifecycle import broadcast, failures
from ..routing import require_started, routed

if TYPE_CHECKING:
    from ..debugger import Debugger


def _dump_cell(call: Call) -> Script:
    """A cell with magics of ours has a name that nobody but clients uses: ranks say which."""
    require_started(call)
    debugger, code = call.debugger, call.arguments.text("code")
    ran = what_runs(code, debugger.stage.settings.language)
    path = real = yield from _dump(debugger, code)
    if ran != code:
        real = yield from _dump(debugger, ran)
    debugger.sources.show(real, path)
    debugger.sources.cells[path] = code
    if debugger.sources.is_cell(path):
        debugger.stage.emit(KeepSource(path, code))
    return {"sourcePath": path}


def _dump(debugger: Debugger, code: str) -> Script:
    """Returns the path, in the folder of clients."""
    replies: dict[Rank, Reply] = yield broadcast(
        debugger.debuggees.ranks, "dumpCell", {"code": code}
    )
    sources = debugger.sources
    paths = {
        sources.placed(rank, path)
        for rank, reply in replies.items()
        if reply.success and isinstance(path := reply.body.get("sourcePath"), str)
    }
    if not paths:
        raise RankLost(failures(replies, named=debugger.size > 1))
    return min(paths, key=lambda found: (not sources.is_cell(found), found))


def _source(call: Call) -> Script:
    require_started(call)
    source = call.arguments.get("source")
    path = source.get("path") if isinstance(source, Mapping) else None
    if isinstance(path, str) and path in call.debugger.sources.cells:
        return {"content": call.debugger.sources.cells[path]}
    if not isinstance(source, Mapping) and not call.arguments.get("sourceReference"):
        raise UsageError("a source without a path")
    _, body = yield from routed(call)
    return body


COMMANDS = (
    Command("dumpCell", "the file of a cell, the same name on all ranks", _dump_cell),
    Command("source", "the text of a file", _source),
)
