"""Values written as bare text become what the schema declares."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.arguments import ArgumentTypes, ObjectWriter, inside_string
from colibri.chat.conversation import Tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "n": {"type": "number"},
        "b": {"type": "boolean"},
        "o": {"type": "object"},
        "a": {"type": "array"},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "text_first": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "ref": {"$ref": "#/$defs/Point"},
        "slash": {"$ref": "#/$defs/a~1b"},
        "loop": {"$ref": "#/properties/loop"},
        "elsewhere": {"$ref": "https://example.com/x"},
        "one": {"oneOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
        "listed": {"enum": [1, 2, None]},
        "named": {"enum": ["1", "2"]},
        "fixed": {"const": True},
        "parts": {"properties": {"x": {}}},
        "items": {"items": {}},
        "nullable": {"type": "integer", "nullable": True},
        "free": {"description": "anything"},
        "odd": 5,
    },
    "$defs": {"Point": {"type": "object"}, "a/b": {"type": "integer"}},
}
TYPES = ArgumentTypes(SCHEMA)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("s", "00123", "00123"),
        ("s", " null ", " null "),
        ("s", '{"a": 1}', '{"a": 1}'),
        ("i", " 7\n", 7),
        ("i", "7.5", "7.5"),
        ("i", "seven", "seven"),
        ("i", "true", "true"),
        ("i", "null", "null"),
        ("n", "1e-07", 1e-07),
        ("n", "3", 3),
        ("n", "NaN", "NaN"),
        ("b", "false", False),
        ("b", "False", "False"),
        ("o", '{"k": [1, "}"]}', {"k": [1, "}"]}),
        ("o", "[1]", "[1]"),
        ("o", '{"k": 1', '{"k": 1'),
        ("o", '{"k": 1} x', '{"k": 1} x'),
        ("a", "[]", []),
        ("a", "[" * 5000, "[" * 5000),
        ("maybe", "null", None),
        ("maybe", "12", "12"),
        ("either", "12", 12),
        ("either", "twelve", "twelve"),
        ("text_first", "12", "12"),
        ("ref", '{"x": 1}', {"x": 1}),
        ("slash", "1", 1),
        ("loop", "1", "1"),
        ("elsewhere", "1", "1"),
        ("one", "null", None),
        ("one", "{}", {}),
        ("listed", "2", 2),
        ("listed", "null", None),
        ("named", "1", "1"),
        ("fixed", "true", True),
        ("parts", "{}", {}),
        ("items", "[1]", [1]),
        ("nullable", "null", None),
        ("free", "1", "1"),
        ("odd", "1", "1"),
        ("unknown", "[1]", "[1]"),
    ],
)
def test_a_value_is_read_as_its_schema_wants(name: str, text: str, value: object) -> None:
    read = json.loads(TYPES.value(name, text))
    assert read == value
    assert type(read) is type(value)


def test_numbers_keep_their_spelling() -> None:
    assert TYPES.value("n", "1e2") == "1e2"
    assert TYPES.value("n", "1.0") == "1.0"


def test_python_words_count_where_a_family_writes_them() -> None:
    assert TYPES.value("b", "True", words=True) == "true"
    assert TYPES.value("maybe", "None", words=True) == "null"
    assert TYPES.value("s", "True", words=True) == '"True"'


def test_only_strings_can_be_passed_on_as_they_come() -> None:
    assert [name for name in SCHEMA["properties"] if TYPES.is_text(name)] == [
        "s",
        "loop",
        "elsewhere",
        "named",
        "free",
        "odd",
    ]
    assert TYPES.is_text("unknown")


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": []}, {"$ref": 7}, {"$ref": "#/nowhere"}])
def test_a_schema_without_properties_declares_nothing(schema: dict[str, Any]) -> None:
    assert ArgumentTypes(schema).types("x") == ()


def test_a_schema_may_be_a_reference_as_a_whole() -> None:
    schema = {"$ref": "#/$defs/In", "$defs": {"In": {"properties": {"i": {"type": "integer"}}}}}
    assert ArgumentTypes(schema).value("i", "1") == "1"


def test_types_by_tool() -> None:
    types = ArgumentTypes.by_tool([Tool("f", {}, SCHEMA), Tool("g", {})])
    assert types["f"].types("i") == ("integer",)
    assert types["g"].types("i") == ()


@given(st.dictionaries(st.text(), st.text(), max_size=4), st.integers(1, 5))
def test_the_pieces_of_an_object_join_to_it(members: dict[str, str], size: int) -> None:
    writer = ObjectWriter()
    pieces = []
    for name, text in members.items():
        pieces += [writer.key(name), '"']
        pieces += [inside_string(text[i : i + size]) for i in range(0, len(text), size)]
        pieces.append('"')
    pieces.append(writer.end())
    assert json.loads("".join(pieces)) == members
