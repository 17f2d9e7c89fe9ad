"""N execute replies become one."""

from __future__ import annotations

from typing import Any

from spmd_kernel.core.content import Content
from spmd_kernel.core.replies import error_reply, merge_expressions, merge_replies

PAGE = {"source": "page", "data": {"text/plain": "help"}, "start": 0}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"status": "ok", "data": {"text/plain": value}, "metadata": {}, **more}


def values(*by_rank: Any, size: int = 0) -> Any:
    replies = {rank: Content(user_expressions={"v": value}) for rank, value in enumerate(by_rank)}
    return merge_expressions(replies, size or len(by_rank))["v"]


def test_the_reply_counts_for_itself() -> None:
    replies = {1: Content(execution_count=9, status="ok"), 0: Content(execution_count=8)}
    assert merge_replies(replies, 2, 3, []) == {
        "status": "ok", "execution_count": 3, "user_expressions": {}, "payload": []
    }  # fmt: skip


def payload(*by_rank: Any) -> Any:
    replies = {rank: Content(payload=items) for rank, items in enumerate(by_rank)}
    return merge_replies(replies, len(by_rank), 1, ["ours"])["payload"]


def test_payload_of_all_ranks_once_and_in_order() -> None:
    exits = {"source": "ask_exit", "keepkernel": False}
    assert payload([exits, PAGE], [PAGE, exits]) == ["ours", exits, PAGE]
    assert payload([exits, PAGE], [PAGE], "nonsense", [5]) == ["ours", PAGE, 5]


def test_pages_that_differ_are_one_page() -> None:
    other = {**PAGE, "data": {"text/plain": "other\nhelp\n", "text/html": "<b>"}}
    (_, page) = payload([PAGE], [other], [PAGE])
    text = "0,2 │ help\n\n1 │ other\n1 │ help"
    assert page == {"source": "page", "data": {"text/plain": text}, "start": 0}


def test_the_lowest_rank_says_what_the_next_cell_shall_be() -> None:
    inputs = [{"source": "set_next_input", "text": f"x = {rank}"} for rank in range(3)]
    assert payload([], [inputs[1]], [inputs[2]]) == ["ours", inputs[1]]


def test_equal_values_are_an_ordinary_value() -> None:
    rich = text("5", data={"text/html": "<b>5</b>"})
    assert values(rich, rich) == rich


def test_different_values_are_labelled_text() -> None:
    merged = values(text("a"), text("b"), text("a"))
    assert merged["data"] == {"text/plain": "0,2 │ a\n1 │ b"}
    assert merged["status"] == "ok"
    assert merged["metadata"] == {"spmd": {"ranks": [0, 1, 2]}}


def test_every_line_is_labelled_even_an_empty_one() -> None:
    merged = values(text("a\nb"), text(""))
    assert merged["data"]["text/plain"].splitlines() == ["0 │ a", "0 │ b", "1 │ "]


def test_errors_and_nonsense_among_the_values() -> None:
    error = {"status": "error", "ename": "NameError", "evalue": "no x", "traceback": []}
    merged = values(text("a"), error, 5, {"status": "ok", "data": 3})
    assert merged["data"]["text/plain"].splitlines() == [
        "0 │ a", "1 │ NameError: no x", "2 │ 5", "3 │ "
    ]  # fmt: skip


def test_an_expression_that_only_some_ranks_have() -> None:
    replies = {
        0: Content(user_expressions={"v": text("a")}),
        1: Content(user_expressions={"w": text("b")}),
        2: Content(user_expressions=None),
    }
    assert merge_expressions(replies, 3) == {"v": text("a"), "w": text("b")}


def test_error_replies_are_whole_whatever_came() -> None:
    empty = error_reply({}, 4)
    assert empty == {
        "status": "error",
        "ename": "Error",
        "evalue": "",
        "traceback": [],
        "execution_count": 4,
        "user_expressions": {},
        "payload": [],
    }
    full = error_reply({"ename": "E", "evalue": 5, "traceback": ("a",), "odd": 1}, 0)
    assert (full["ename"], full["evalue"], full["traceback"]) == ("E", "5", ["a"])
    assert "odd" not in full
    assert error_reply({"traceback": None}, 0)["traceback"] == []
