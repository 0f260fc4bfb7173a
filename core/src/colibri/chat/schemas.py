"""Strict tool calls: the model may call declared tools only, with arguments that fit their schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jsonschema_rs

from ..errors import BadRequest, ModelOutputError
from .conversation import Tool

_CODE = "invalid_model_tool_call"


class ToolSchemas:
    """The schemas of a request's tools, compiled. Raises BadRequest for a tool whose schema is none."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._validators: Mapping[str, Any] = {tool.name: _compile(index, tool) for index, tool in enumerate(tools)}
        self._declared = {tool.name: _declared(tool.parameters) for tool in tools}

    def check(self, name: str, arguments: str) -> None:
        """Raises ModelOutputError (code invalid_model_tool_call) unless `arguments`, in JSON, fit the tool `name`."""
        if name not in self._validators:
            raise ModelOutputError(f"The model called {name!r}, which is not a declared tool.", code=_CODE)
        try:
            value = json.loads(arguments, object_pairs_hook=_distinct)
        except (ValueError, RecursionError) as error:
            raise ModelOutputError(f"The model's arguments for {name!r} are malformed: {error}.", code=_CODE) from None
        known = self._declared[name]
        others = (key for key in value if key not in known) if known is not None and isinstance(value, dict) else iter(())
        if (unknown := next(others, None)) is not None:
            raise ModelOutputError(f"The model gave {name!r} the argument {unknown!r}, which it does not have.", code=_CODE)
        fault = next(self._validators[name].iter_errors(value), None)
        if fault is not None:
            where = "".join(f"[{step!r}]" for step in fault.instance_path)
            place = f" at {where}" if where else ""
            raise ModelOutputError(f"The model's arguments for {name!r} are invalid{place}: {fault.message}", code=_CODE)

    def refuse_cut(self) -> None:
        """The output holds a call that is incomplete or malformed: raises ModelOutputError."""
        raise ModelOutputError("The model wrote an incomplete or malformed tool call.", code=_CODE)


def _declared(parameters: Mapping[str, Any]) -> frozenset[str] | None:
    """The arguments a tool has; None if its schema may allow others than it lists."""
    listed = parameters.get("properties")
    others = ("additionalProperties", "patternProperties", "$ref", "anyOf", "oneOf", "allOf", "if", "unevaluatedProperties")
    return frozenset(listed) if isinstance(listed, Mapping) and not any(word in parameters for word in others) else None


def _compile(index: int, tool: Tool) -> Any:
    try:
        return _validator(json.dumps({"type": "object", **tool.parameters}))
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise BadRequest(f"The schema of tool {tool.name!r} is invalid: {reason}", param=f"tools.{index}") from None


@lru_cache(maxsize=512)
def _validator(schema: str) -> Any:
    """Clients declare the same tools again with every turn: a schema is compiled once."""
    return jsonschema_rs.validator_for(json.loads(schema), retriever=_offline)


def _offline(uri: str) -> Any:
    """A schema never makes the server fetch anything."""
    raise ValueError("schemas elsewhere are not fetched")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is given twice")
    return value
