from __future__ import annotations

from typing import Any

import pytest

from colibri.chat.conversation import Tool
from colibri.chat.schemas import ToolSchemas
from colibri.errors import BadRequest, ModelOutputError

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/names"}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"names": {"type": "array", "items": {"type": "string"}}},
}


@pytest.mark.parametrize("arguments", ['{"a": 1}', '{"a": 1, "b": []}', '{"b": ["x"], "a": -5}'])
def test_arguments_that_fit_pass(arguments: str) -> None:
    ToolSchemas([Tool("f", {}, SCHEMA)]).check("f", arguments)


def test_an_argument_the_schema_does_not_list_is_unknown() -> None:
    listed = {"type": "object", "properties": {"a": {}}}
    with pytest.raises(ModelOutputError, match="argument 'b', which it does not have"):
        ToolSchemas([Tool("f", {}, listed)]).check("f", '{"a": 1, "b": 2}')
    for others in ({"additionalProperties": True}, {"patternProperties": {"b": {}}}, {"anyOf": [{"properties": {"b": {}}}]}):
        ToolSchemas([Tool("f", {}, {**listed, **others})]).check("f", '{"a": 1, "b": 2}')


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("g", '{"a": 1}', "'g', which is not a declared tool"),
        ("f", "{}", '"a" is a required property'),
        ("f", '{"a": "1"}', r"at \['a'\]"),
        ("f", '{"a": 1, "b": ["x", 2]}', r"at \['b'\]\[1\]"),
        ("f", '{"a": 1, "c": 2}', "Additional properties"),
        ("f", '{"a": 1, "a": 2}', "a key is given twice"),
        ("f", "[]", "not of type"),
        ("f", "{", "malformed"),
    ],
)
def test_what_does_not_fit_is_the_models_error(name: str, arguments: str, reason: str) -> None:
    with pytest.raises(ModelOutputError, match=reason) as caught:
        ToolSchemas([Tool("f", {}, SCHEMA)]).check(name, arguments)
    assert (caught.value.status, caught.value.code) == (502, "invalid_model_tool_call")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "thing"},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"$ref": "#/$defs/none"}}},
        {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        {"properties": {"a": {"$ref": "file:///etc/hostname"}}},
        {"$schema": "http://127.0.0.1:9/none"},
    ],
)
def test_a_schema_that_is_none_is_the_clients_error(schema: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="The schema of tool 'g' is invalid: ") as caught:
        ToolSchemas([Tool("f", {}), Tool("g", {}, schema)])
    assert caught.value.param == "tools.1"
    assert "\n" not in caught.value.message


def test_a_tool_without_a_schema_takes_any_object() -> None:
    schemas = ToolSchemas([Tool("f", {})])
    schemas.check("f", '{"x": [1]}')
    with pytest.raises(ModelOutputError):
        schemas.check("f", "5")
