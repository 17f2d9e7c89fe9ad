"""N execute replies become one.

The reply of a cell that failed is that of its root cause: the rank that failed first, named by the
label in its traceback, so that nbclient's and papermill's exception says which rank it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .content import Content, dumps
from .model import Rank
from .outputs.labels import label


def merge_replies(
    replies: Mapping[Rank, Content], world_size: int, count: int, payload: list[Any]
) -> dict[str, Any]:
    """The ``ok`` reply of a cell whose ranks all did well."""
    ordered = [replies[rank] for rank in sorted(replies)]
    return {
        "status": "ok",
        "execution_count": count,
        "user_expressions": merge_expressions(replies, world_size),
        "payload": payload + distinct([item for reply in ordered for item in payload_of(reply)]),
    }


def error_reply(error: Mapping[str, Any], count: int) -> dict[str, Any]:
    return {
        "status": "error",
        "ename": str(error.get("ename") or "Error"),
        "evalue": str(error.get("evalue", "")),
        "traceback": list(error.get("traceback") or []),
        "execution_count": count,
        "user_expressions": {},
        "payload": [],
    }


def payload_of(reply: Content) -> list[Any]:
    payload = reply.get("payload")
    return payload if isinstance(payload, list) else []


def distinct(items: list[Any]) -> list[Any]:
    """Each value once, in order: N ranks that open one pager open it once."""
    return list({dumps(item): item for item in items}.values())


def merge_expressions(replies: Mapping[Rank, Content], world_size: int) -> dict[str, Any]:
    """user_expressions: the same value from all ranks is an ordinary one, others are labelled text."""
    values: dict[str, dict[Rank, Any]] = {}
    for rank in sorted(replies):
        expressions = replies[rank].get("user_expressions")
        for name, value in (expressions if isinstance(expressions, dict) else {}).items():
            values.setdefault(name, {})[rank] = value
    return {name: _merge_values(by_rank, world_size) for name, by_rank in values.items()}


def _merge_values(by_rank: dict[Rank, Any], world_size: int) -> Any:
    groups: dict[bytes, list[Rank]] = {}
    for rank, value in by_rank.items():
        groups.setdefault(dumps(value), []).append(rank)
    if len(groups) == 1:
        return next(iter(by_rank.values()))
    lines = [
        label(tuple(ranks), world_size) + line
        for ranks in groups.values()
        for line in _expression_text(by_rank[ranks[0]]).splitlines() or [""]
    ]
    return {
        "status": "ok",
        "data": {"text/plain": "\n".join(lines)},
        "metadata": {"spmd": {"ranks": sorted(by_rank)}},
    }


def _expression_text(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    if value.get("status") == "error":
        return f"{value.get('ename', 'Error')}: {value.get('evalue', '')}"
    data = value.get("data")
    return str(data.get("text/plain", "")) if isinstance(data, dict) else ""
