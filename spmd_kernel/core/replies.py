"""N execute replies become one.

The reply of a cell that failed is that of its root cause: the rank that failed first, named by the
label in its traceback, so that nbclient's and papermill's exception says which rank it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .content import Content, dumps
from .model import Rank
from .outputs.labels import label, label_lines


def merge_replies(
    replies: Mapping[Rank, Content], world_size: int, count: int, payload: list[Any]
) -> dict[str, Any]:
    """The ``ok`` reply of a cell whose ranks all did well."""
    return {
        "status": "ok",
        "execution_count": count,
        "user_expressions": merge_expressions(replies, world_size),
        "payload": payload + merge_payloads(replies, world_size),
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


def merge_payloads(replies: Mapping[Rank, Content], world_size: int) -> list[Any]:
    """What one kernel would want: one pager, one text of the next cell, and of all else each once."""
    items: dict[bytes, Any] = {}
    ranks: dict[bytes, list[Rank]] = {}
    for rank in sorted(replies):
        for item in payload_of(replies[rank]):
            items.setdefault(key := dumps(item), item)
            ranks.setdefault(key, []).append(rank)
    pages = [key for key, item in items.items() if _source(item) == "page"]
    inputs = [key for key, item in items.items() if _source(item) == "set_next_input"]
    if len(pages) > 1:
        texts = [_labelled(ranks[key], items[key], world_size) for key in pages]
        items[pages[0]] = {**items[pages[0]], "data": {"text/plain": "\n\n".join(texts)}}
    exits = [key for key, item in items.items() if _source(item) == "ask_exit"]
    some = [key for key in exits if len(set(ranks[key])) < world_size]  # the kernel lives on
    for key in (*pages[1:], *inputs[1:], *some):
        del items[key]
    return list(items.values())


def _source(item: Any) -> Any:
    return item.get("source") if isinstance(item, dict) else None


def _labelled(ranks: list[Rank], item: Any, world_size: int) -> str:
    text = _expression_text(item).removesuffix("\n")
    return label_lines(label(tuple(dict.fromkeys(ranks)), world_size), text)


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
