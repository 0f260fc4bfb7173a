"""Arguments of calls whose syntax writes values as bare text: reading them as the declared schema wants, and writing the
JSON object they make up piece by piece."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .conversation import Tool
from .jsontext import dumps, is_value

#: How deep references and alternatives of a schema are followed; deeper ones say nothing about a type.
_DEPTH = 16

_WORDS = {"True": "true", "False": "false", "None": "null"}
_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}


class ArgumentTypes:
    """What types the parameters of one tool may have, by its JSON schema."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._root = parameters
        self._known: dict[str, tuple[str, ...]] = {}

    @classmethod
    def by_tool(cls, tools: Sequence[Tool]) -> dict[str, ArgumentTypes]:
        """The types of every declared tool, by its name."""
        return {tool.name: cls(tool.parameters) for tool in tools}

    def types(self, name: str) -> tuple[str, ...]:
        """The JSON types a parameter may have, in the schema's order; () if it is not declared or has no type."""
        if name not in self._known:
            found = dict.fromkeys(_types(self._property(name), self._root, _DEPTH))
            self._known[name] = tuple(found)
        return self._known[name]

    def is_text(self, name: str) -> bool:
        """Whether the value is a string whatever is written, so that it can be passed on as it comes."""
        return set(self.types(name)) <= {"string"}

    def value(self, name: str, text: str, *, words: bool = False) -> str:
        """The JSON of a value written as `text`: read as the first of the parameter's types that it can be read as, a
        null only if it says so, else the text itself as a string. `words`: Python's True, False and None count, too."""
        types = self.types(name)
        bare = text.strip()
        bare = _WORDS.get(bare, bare) if words else bare
        kind = None if self.is_text(name) else _kind(bare)
        if kind == "null" and "null" in types:
            return bare
        for type in types:
            if type == "string":
                break
            if kind == type or (type == "number" and kind == "integer"):
                return bare
        return dumps(text)

    def _property(self, name: str) -> Any:
        schema: Any = self._root
        for _ in range(_DEPTH):
            properties = schema.get("properties") if isinstance(schema, Mapping) else None
            if isinstance(properties, Mapping) and name in properties:
                return properties[name]
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                break
            schema = _target(schema["$ref"], self._root)
        return None


class ObjectWriter:
    """Writes a JSON object in pieces that join to it, each as soon as it is known."""

    def __init__(self) -> None:
        self._begun = False

    def key(self, name: str) -> str:
        """What stands before a member's value."""
        lead, self._begun = ", " if self._begun else "{", True
        return f"{lead}{dumps(name)}: "

    def end(self) -> str:
        """What stands behind the last value."""
        return "}" if self._begun else "{}"


def inside_string(text: str) -> str:
    """A run of text as it stands between the quotes of a JSON string."""
    return dumps(text)[1:-1]


def _kind(text: str) -> str | None:
    """The type of one JSON value, None if `text` is none. Whole numbers are integers."""
    if not is_value(text):
        return None
    if text[0] in _KINDS:
        return _KINDS[text[0]]
    return "integer" if float(text).is_integer() else "number"


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth == 0:
        return
    if isinstance(reference := schema.get("$ref"), str):
        yield from _types(_target(reference, root), root, depth - 1)
    declared = schema.get("type")
    if isinstance(declared, str):
        yield declared
    elif isinstance(declared, list):
        yield from (type for type in declared if isinstance(type, str))
    else:
        yield from _implied(schema)
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(schemas := schema.get(word), list):
            for one in schemas:
                yield from _types(one, root, depth - 1)
    if schema.get("nullable") is True:
        yield "null"


def _implied(schema: Mapping[str, Any]) -> Iterator[str]:
    """The types of a schema that names none: those of the values it lists, or of what it says about parts."""
    listed = schema.get("enum")
    values = listed if isinstance(listed, list) else [schema["const"]] if "const" in schema else []
    for value in values:
        if (kind := _kind(json.dumps(value))) is not None:
            yield kind
    if "properties" in schema:
        yield "object"
    if "items" in schema:
        yield "array"


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    """What a reference inside the schema points to; None for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    at: Any = root
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(at, Mapping) or step not in at:
            return None
        at = at[step]
    return at
