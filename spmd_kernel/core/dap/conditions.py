"""``RANK`` and ``WORLD_SIZE`` in the condition of a breakpoint: what is left of it for one rank.

Both become numbers, and what follows from numbers alone is worked out here: a rank for which the
condition can never hold does not get the breakpoint, and so does not slow down for it.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..model import Rank

NEVER = object()  # the condition is false whatever the rank does
NAMES = ("RANK", "WORLD_SIZE")
_MENTIONED = re.compile(rf"\b({'|'.join(NAMES)})\b")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST = 1 << 64  # larger numbers are not worked out

_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
    ast.In: lambda item, items: item in items, ast.NotIn: lambda item, items: item not in items,
}  # fmt: skip
_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_,
}  # fmt: skip


def mentions(text: str | None) -> bool:
    return text is not None and _MENTIONED.search(text) is not None


def for_rank(condition: str, rank: Rank, size: int) -> str | object:
    """The condition for one rank, ``NEVER``, or "" if it always holds.

    What is no expression is left as it is: the rank's debugger says what is wrong with it.
    """
    if not mentions(condition):
        return condition
    try:
        tree = ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return condition
    if _binds(tree):
        return condition
    left = _reduced(_Numbers(rank, size).visit(tree))
    if isinstance(left, ast.Constant):
        return "" if left.value else NEVER
    return ast.unparse(left)


def message_for_rank(message: str, rank: Rank, size: int) -> str:
    """A logpoint's message: the names count between braces."""
    numbers = {"RANK": str(rank), "WORLD_SIZE": str(size)}

    def filled(found: re.Match[str]) -> str:
        return "{" + _MENTIONED.sub(lambda name: numbers[name[1]], found[1]) + "}"

    return _BRACES.sub(filled, message)


def _binds(tree: ast.AST) -> bool:
    """The condition gives the names a meaning of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in NAMES and not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.arg) and node.arg in NAMES:
            return True
    return False


class _Numbers(ast.NodeTransformer):
    def __init__(self, rank: Rank, size: int):
        self._numbers = {"RANK": rank, "WORLD_SIZE": size}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        number = self._numbers.get(node.id)
        return node if number is None else ast.Constant(number)


def _reduced(node: ast.expr) -> ast.expr:
    """The same, as far as it does not depend on numbers alone."""
    match node:
        case ast.BoolOp():
            return _either(node)
        case ast.UnaryOp(op=ast.Not()):
            inner = _reduced(node.operand)
            known = isinstance(inner, ast.Constant)
            return ast.Constant(not inner.value) if known else ast.UnaryOp(node.op, inner)  # type: ignore[attr-defined]
        case _:
            found, value = _value(node)
            return ast.Constant(value) if found else node


def _either(node: ast.BoolOp) -> ast.expr:
    """``and`` and ``or``: up to the first operand that decides; those that decide nothing go."""
    decides = isinstance(node.op, ast.Or)
    left: list[ast.expr] = []
    for operand in map(_reduced, node.values):
        if not isinstance(operand, ast.Constant):
            left.append(operand)
        elif bool(operand.value) is decides:
            left.append(operand)
            break
    if not left:
        return ast.Constant(not decides)
    if isinstance(left[-1], ast.Constant) and not decides:
        return ast.Constant(False)  # `x and False`: whatever x is, it does not stop
    return left[0] if len(left) == 1 else ast.BoolOp(node.op, left)


def _value(node: ast.expr) -> tuple[bool, Any]:
    """Whether it is known now, and what it is."""
    try:
        return True, _known(node)
    except (_Unknown, ArithmeticError, TypeError):
        return False, None


class _Unknown(Exception):
    pass


def _known(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Tuple() | ast.List() | ast.Set():
            return [_known(item) for item in node.elts]
        case ast.UnaryOp(op=ast.USub()):
            return -_known(node.operand)
        case ast.BinOp() if type(node.op) in _BINARY:
            return _number(_BINARY[type(node.op)](*map(_number, map(_known, _sides(node)))))
        case ast.Compare():
            return _compared(node)
        case ast.Call(func=ast.Name(id="range"), keywords=[]):
            return range(*map(_number, map(_known, node.args)))
    raise _Unknown


def _sides(node: ast.BinOp) -> tuple[ast.expr, ast.expr]:
    return node.left, node.right


def _number(value: Any) -> int:
    if not isinstance(value, int) or abs(value) > _MOST:
        raise _Unknown
    return value


def _compared(node: ast.Compare) -> bool:
    values = [_known(node.left), *map(_known, node.comparators)]
    pairs = zip(values, values[1:], node.ops, strict=False)
    return all(_COMPARE[type(op)](left, right) for left, right, op in pairs)
