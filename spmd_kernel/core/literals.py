"""Cells made only of literal assignments, as papermill writes its parameters."""

from __future__ import annotations

import ast
import warnings
from typing import TypeGuard

LONGEST = 100_000  # characters; parsing more than that would be felt

_PLAIN_TYPES = frozenset(
    [
        "int",
        "float",
        "complex",
        "bool",
        "str",
        "bytes",
        "list",
        "dict",
        "tuple",
        "set",
        "frozenset",
        "object",
    ]
)
_NOT_FINITE = frozenset({"nan", "inf", "-inf"})  # papermill writes float('nan')


def is_literal_assignments(code: str) -> bool:
    """Whether ``code`` is assignments of literals to names, one at least; never evaluates it.

    Such a cell means the same on any rank, whatever ran there before.
    """
    if len(code) > LONGEST:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the user's "\d"; the rank says it too
            body = ast.parse(code).body
        return bool(body) and all(map(_is_assignment, body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def assigned_names(code: str) -> tuple[str, ...]:
    """The names that a cell of literal assignments sets, in order."""
    names = (node.id for node in ast.walk(ast.parse(code)) if _is_stored(node))
    return tuple(dict.fromkeys(names))


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _is_assignment(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=targets, value=value):
            return all(map(_is_target, targets)) and _is_literal(value)
        case ast.AnnAssign(target=ast.Name(), annotation=annotation, value=ast.expr() as value):
            return _is_plain_type(annotation) and _is_literal(value)
    return False


def _is_target(node: ast.expr) -> bool:
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(isinstance(part, ast.Name) for part in parts)
    return isinstance(node, ast.Name)


def _is_literal(node: ast.expr | None) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return all(map(_is_literal, parts))
        case ast.Dict(keys=keys, values=values):
            return all(map(_is_literal, keys)) and all(map(_is_literal, values))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=complex())):
            return _is_number(left)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))], keywords=[]):
            return text in _NOT_FINITE
    return _is_number(node)


def _is_number(node: ast.expr | None) -> bool:
    match node:
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            return _is_number(operand)
        case ast.Constant(value=value):
            return type(value) in (int, float, complex)
    return False


def _is_plain_type(node: ast.expr) -> bool:
    """An annotation is evaluated too: only builtin types, which every rank has."""
    match node:
        case ast.Name(id=name):
            return name in _PLAIN_TYPES
        case ast.Constant(value=value):
            return value is None or value is Ellipsis or isinstance(value, str)
        case ast.Subscript(value=base, slice=index):
            return _is_plain_type(base) and _is_plain_type(index)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_plain_type(left) and _is_plain_type(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(_is_plain_type, parts))
    return False
