"""Requests that one question to a rank answers: complete, inspect, is_complete, history, and others.

Each is a script in `QUERIES`: it asks, merges, and returns the content of the reply.  When no rank
lives, the answer is an empty one, never silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .content import Content, read
from .conversation import Script
from .errors import UsageError
from .magics import completions, help_for
from .magics.base import Ask
from .model import Message, Rank, Settings
from .wants import CreateSubshell, DeleteSubshell, Inquire

OURS_SECONDS = 0.25  # how long completions of our own magics wait for a rank's
SUBSHELLS = "kernel subshells"  # JEP 91
DEBUGGER = "debugger"


class QueryContext(Protocol):
    """What the hub lets a query see."""

    @property
    def settings(self) -> Settings: ...
    @property
    def alive(self) -> tuple[Rank, ...]: ...
    @property
    def kernel_info(self) -> Mapping[str, Any]: ...
    @property
    def can_debug(self) -> bool:
        """Every rank can."""

    def comm_info(self, target: str | None) -> dict[str, Any]: ...
    @property
    def has_subshells(self) -> bool: ...
    @property
    def subshells(self) -> list[str]: ...


Query = Callable[[Message, QueryContext], Script]


def forward(empty: Callable[[Content], dict[str, Any]]) -> Query:
    """A query that one rank answers for all, with an empty answer for when none does."""

    def script(message: Message, context: QueryContext) -> Script:
        content = read(message.content)
        answer = yield Inquire(message.msg_type, content)
        return empty(content) if answer is None else answer

    return script


def kernel_info(message: Message, context: QueryContext) -> Script:
    yield from ()
    info = context.kernel_info or _fallback_info(context.settings)
    able = {SUBSHELLS: context.has_subshells, DEBUGGER: context.can_debug}
    features = [f for f in info.get("supported_features") or [] if able.get(f, True)]
    return {
        **info,
        "status": "ok",
        "supported_features": features,
        "debugger": DEBUGGER in features,
    }


def _fallback_info(settings: Settings) -> dict[str, Any]:
    """No rank ever came up: the client must still get in, to read why."""
    return {
        "protocol_version": "5.4",
        "implementation": "spmd-kernel",
        "implementation_version": "0",
        "language_info": {"name": settings.language, "file_extension": ""},
        "banner": "spmd-kernel: no rank could be started; run a cell to see why",
        "help_links": [],
    }


def complete(message: Message, context: QueryContext) -> Script:
    content = read(message.content)
    code, cursor = content.text("code"), content.integer("cursor_pos")
    line = code[:cursor].rpartition("\n")[2]
    ours = completions(line)
    if not ours:
        return (yield from forward(_no_matches)(message, context))
    # Ours do not wait for a rank whose first completion imports half of the world.
    answer = yield Inquire(message.msg_type, content, seconds=OURS_SECONDS)
    reply: Content = Content(_no_matches(content)) if answer is None else answer
    start = cursor - len(line.split()[-1] if line and not line[-1].isspace() else "")
    theirs = reply.items_of("matches") if reply.get("cursor_start") == start else []
    others = [m for m in theirs if isinstance(m, str) and m not in ours]
    return {
        **reply,
        "status": "ok",
        "matches": ours + others,
        "cursor_start": start,
        "cursor_end": cursor,
        "metadata": {},
    }


def _no_matches(content: Content) -> dict[str, Any]:
    cursor = content.integer("cursor_pos")
    return {
        "status": "ok",
        "matches": [],
        "cursor_start": cursor,
        "cursor_end": cursor,
        "metadata": {},
    }


def inspect(message: Message, context: QueryContext) -> Script:
    content = read(message.content)
    code, cursor = content.text("code"), content.integer("cursor_pos")
    line = code[code.rfind("\n", 0, cursor) + 1 :].partition("\n")[0]
    words = line.split()
    text = help_for(words[0].rstrip("?")) if words and words[0].startswith("%") else None
    if text is None:
        return (yield from forward(_not_found)(message, context))
    return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}


def _not_found(content: Content) -> dict[str, Any]:
    return {"status": "ok", "found": False, "data": {}, "metadata": {}}


def comm_info(message: Message, context: QueryContext) -> Script:
    yield from ()
    return context.comm_info(read(message.content).text("target_name", None))


def connect(message: Message, context: QueryContext) -> Script:
    yield from ()
    return {"status": "ok", **context.settings.front}


def usage(message: Message, context: QueryContext) -> Script:
    """CPU and memory of all ranks together (ipykernel's control request)."""
    answers = yield Ask(context.alive, "usage_request", {}, channel="control", seconds=5)
    found = [answer for answer in answers.values() if answer is not None]
    merged = dict(found[0]) if found else {}
    for key in ("kernel_cpu", "kernel_memory"):
        values = [a[key] for a in found if isinstance(a.get(key), int | float)]
        if values:
            merged[key] = sum(values)
    return merged


def create_subshell(message: Message, context: QueryContext) -> Script:
    return {"status": "ok", "subshell_id": (yield CreateSubshell())}


def delete_subshell(message: Message, context: QueryContext) -> Script:
    yield DeleteSubshell(read(message.content).text("subshell_id"))
    return {"status": "ok"}


def list_subshell(message: Message, context: QueryContext) -> Script:
    yield from ()
    return {"status": "ok", "subshell_id": context.subshells}


def unsupported(message: Message, context: QueryContext) -> Script:
    yield from ()
    raise UsageError(f"{message.msg_type} is not supported by this kernel")


QUERIES: Mapping[str, Query] = {
    "kernel_info_request": kernel_info,
    "complete_request": complete,
    "inspect_request": inspect,
    "is_complete_request": forward(lambda content: {"status": "unknown"}),
    "history_request": forward(lambda content: {"status": "ok", "history": []}),
    "comm_info_request": comm_info,
    "connect_request": connect,
    "usage_request": usage,
    "create_subshell_request": create_subshell,
    "delete_subshell_request": delete_subshell,
    "list_subshell_request": list_subshell,
}

# What a client may ask beside a cell that it runs: the state of things, before or after it.
QUESTIONS = frozenset(
    f"{kind}_request"
    for kind in (
        "kernel_info",
        "complete",
        "inspect",
        "is_complete",
        "history",
        "comm_info",
        "connect",
    )
)
