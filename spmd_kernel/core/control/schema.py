"""The part of JSON Schema that our arguments and replies need, checked.

Keywords: type, enum, anyOf, minimum, properties, required, additionalProperties, items; description
and default are for people.  https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from ..content import dumps

Schema = Mapping[str, Any]

SHOWN = 60  # characters of a wrong value that an error shows

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def fault(value: Any, schema: Schema, name: str) -> str:
    """What is wrong with ``value``, which is called ``name``; empty if nothing is."""
    if "anyOf" in schema:
        faults = [fault(value, choice, name) for choice in schema["anyOf"]]
        return "" if "" in faults else f"{name} is {shown(value)}, not {_choices(schema)}"
    if "type" in schema and not any(_is(value, kind) for kind in _kinds(schema)):
        return f"{name} is {shown(value)}, not {_choices(schema)}"
    if "enum" in schema and not any(_same(value, known) for known in schema["enum"]):
        return f"{name} is {shown(value)}, not {_choices(schema)}"
    if "minimum" in schema and value is not None and value < schema["minimum"]:
        return f"{name} is {value}: less than {schema['minimum']}"
    if isinstance(value, list) and "items" in schema:
        return _first(fault(v, schema["items"], f"{name}[{i}]") for i, v in enumerate(value))
    return _object_fault(value, schema, name) if isinstance(value, dict) else ""


def _object_fault(value: dict[str, Any], schema: Schema, name: str) -> str:
    known: Mapping[str, Schema] = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    for key in schema.get("required", ()):
        if key not in value:
            return f"{name}.{key} is missing"
    for key, item in value.items():
        if key not in known and more is False:
            return f"{name} has no {shown(key)}{_near(key, known)}"
        inner = known.get(key, more if isinstance(more, Mapping) else {})
        if found := fault(item, inner, f"{name}.{key if key in known else shown(key)}"):
            return found
    return ""


def shown(value: Any) -> str:
    """As JSON, shortened."""
    text = dumps(value).decode("utf-8", "replace")
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _near(key: str, known: Mapping[str, Schema]) -> str:
    near = get_close_matches(key[:SHOWN], known, 1)
    return f": did you mean {near[0]}?" if near else f": it may have {_listed(known)}"


def _listed(known: Mapping[str, Schema]) -> str:
    return ", ".join(known) or "nothing"


def _first(faults: Any) -> str:
    return next((found for found in faults if found), "")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _same(value: Any, known: Any) -> bool:
    return type(value) is type(known) and value == known


def _kinds(schema: Schema) -> list[str]:
    kinds = schema["type"]
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _choices(schema: Schema) -> str:
    """What is allowed, in words."""
    if "anyOf" in schema:
        return " or ".join(_choices(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(shown(value) for value in schema["enum"])
    return " or ".join(_WORDS[kind] for kind in _kinds(schema))


_WORDS = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
