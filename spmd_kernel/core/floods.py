"""The text of each cell is shown up to a limit (SPMD_STREAM_LIMIT); beyond it, it goes to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .errors import BadMessage
from .model import AppendText, DropText, Effect, Settings
from .outputs.limit import StreamLimit
from .outputs.publish import Publish
from .outputs.writing import text_of

CELLS = 8  # whose text is counted: threads and widgets go on to write when cells have ended


class Floods:
    def __init__(self, settings: Settings, emit: Callable[[Effect], None]):
        self._settings = settings
        self._emit = emit
        self._limits: dict[str, StreamLimit] = {}  # by cell, that of the latest text last
        self._paths: dict[str, str] = {}
        self._serial = 0

    def passed(self, msg_id: str, item: Publish) -> list[Publish]:
        """What is shown of an output of this cell, now."""
        limit = self._limits.pop(msg_id, None)
        if limit is None:
            if item.msg_type != "stream" or self._settings.stream_limit <= 0:
                return [item]
            limit = self._begin(msg_id)
        self._limits[msg_id] = limit  # as the newest
        try:
            limit.feed(item)
        except BadMessage:
            return [item]
        return self._taken(msg_id, limit)

    def end(self, msg_id: str) -> list[Publish]:
        """The cell is over: the last part of its text, if not all of it was shown."""
        limit = self._limits.get(msg_id)
        if limit is None:
            return []
        limit.end()
        shown = self._taken(msg_id, limit)
        if not limit.is_over:
            self._forget(msg_id)
        return shown

    def failed(self, path: str, reason: str) -> Iterator[tuple[str, str]]:
        """A file cannot be written: what is to be said of it, and in which cell."""
        for msg_id, limit in self._limits.items():
            if self._paths[msg_id] == path and (text := limit.broken(reason)):
                yield msg_id, text

    def _begin(self, msg_id: str) -> StreamLimit:
        while len(self._limits) >= CELLS:
            self._forget(next(iter(self._limits)))
        self._serial += 1
        name = f"output-{self._settings.session[:8]}-{self._serial}.txt"
        path = self._paths[msg_id] = f"{self._settings.spill_folder}/{name}"
        return StreamLimit(self._settings.stream_limit, path)

    def _taken(self, msg_id: str, limit: StreamLimit) -> list[Publish]:
        shown, filed = limit.take()
        if filed:
            text = b"".join(map(text_of, filed))
            self._emit(AppendText(self._paths[msg_id], text))
        return shown

    def _forget(self, msg_id: str) -> None:
        limit, path = self._limits.pop(msg_id), self._paths.pop(msg_id)
        if limit.has_file and not limit.is_over:
            self._emit(DropText(path))
