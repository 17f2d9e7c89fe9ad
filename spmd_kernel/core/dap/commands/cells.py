"""``dumpCell`` and ``source``: the text of cells."""

from __future__ import annotations

from collections.abc import Mapping

from ...conversation import Script
from ...errors import RankLost, UsageError
from ...model import KeepSource, Rank
from ..base import Call, Command, Reply
from ..lifecycle import broadcast, failures
from ..routing import require_started, routed


def _dump_cell(call: Call) -> Script:
    require_started(call)
    debugger, code = call.debugger, call.arguments.text("code")
    replies: dict[Rank, Reply] = yield broadcast(
        debugger.debuggees.ranks, "dumpCell", {"code": code}
    )
    paths = {
        debugger.sources.canonical(rank, path)
        for rank, reply in replies.items()
        if reply.success and isinstance(path := reply.body.get("sourcePath"), str)
    }
    if not paths:
        raise RankLost(failures(replies, named=debugger.size > 1))
    path = min(paths, key=lambda found: (not debugger.sources.is_cell(found), found))
    debugger.sources.cells[path] = code
    if debugger.sources.is_cell(path):
        debugger.stage.emit(KeepSource(path, code))
    return {"sourcePath": path}


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
