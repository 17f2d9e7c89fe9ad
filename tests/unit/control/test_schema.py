"""Our reading of JSON Schema agrees with that of everybody."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd_kernel.core.control import COMMANDS
from spmd_kernel.core.control.schema import SHOWN, fault, shown

SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {},
            {"type": "integer"},
            {"type": "number"},
            {"type": "string"},
            {"type": "boolean"},
            {"type": ["array", "null"]},
            {"type": "integer", "minimum": 1},
            {"enum": ["a", 1, None]},
        ]
    ),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from("ab"), inner),
                "required": st.lists(st.sampled_from("ab"), unique=True),
                "additionalProperties": st.booleans() | inner,
            }
        )
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2, -1, 0.5, "a", "b", ""]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(schema=SCHEMAS, value=VALUES)
def test_what_is_wrong_is_wrong_for_jsonschema(schema: Any, value: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    assert (fault(value, schema, "x") == "") == validator.is_valid(value)


@pytest.mark.parametrize("name", COMMANDS)
def test_schemas_are_schemas(name: str) -> None:
    command = COMMANDS[name]
    for schema in (command.schema, command.data):
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_wrong_value_is_named_by_its_place() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
    }
    assert fault({"a": [1, "x"]}, schema, "it") == 'it.a[1] is "x", not an integer'


def test_a_long_value_is_shortened() -> None:
    assert len(shown("x" * 1000)) == SHOWN
