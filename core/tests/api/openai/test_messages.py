"""Messages and tools of the OpenAI surface, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.api.body import MAX_DEPTH
from colibri.api.openai.messages import decode_messages, decode_tool_choice, decode_tools
from colibri.chat.conversation import TextPart, ToolCall, ToolChoice, Turn
from colibri.errors import BadRequest

USER = {"role": "user", "content": "Hi"}


def call(arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def test_turns() -> None:
    turns = decode_messages(
        [
            {"role": "system", "content": ""},
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"role": "user", "content": "Hi", "name": "ann", "unknown": 1},
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call('{"x": [1, 2.5]}')]},
            {"role": "tool", "content": [], "tool_call_id": "call_1"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "tool_calls": None, "reasoning": "why"},
            {"role": "assistant"},
        ]
    )
    assert turns == (
        Turn("system", (TextPart(""),)),
        Turn("developer", (TextPart("a"), TextPart("b"))),
        Turn("user", (TextPart("Hi"),), name="ann"),
        Turn("assistant", None, reasoning="hm", calls=(ToolCall("f", {"x": [1, 2.5]}, "call_1"),)),
        Turn("tool", (), call_id="call_1"),
        Turn("assistant", (TextPart("no"),), reasoning="why"),
        Turn("assistant"),
    )


def test_older_function_calls() -> None:
    turns = decode_messages(
        [
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
            {"role": "function", "name": "f", "content": "1"},
        ]
    )
    assert turns[0].calls == (ToolCall("f", {"a": 1}),)
    assert turns[1] == Turn("tool", (TextPart("1"),), name="f")


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("[1, 2]", "[1, 2]"),
        ('"text"', '"text"'),
        ("5", "5"),
        ([1, 2], "[1,2]"),
        (7, "7"),
        ('{"a": tru', '{"a": tru'),
        ('{"a": "\\ud83d"}', '{"a": "\\ud83d"}'),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_replayed_arguments_are_history_whatever_they_hold(arguments: Any, kept: Any) -> None:
    (turn,) = decode_messages([{"role": "assistant", "content": None, "tool_calls": [call(arguments)]}])
    assert turn.calls[0].arguments == kept


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 900, 990, 1100, 100_000])
def test_replayed_arguments_nested_deeper_than_can_be_written_stay_text(depth: int) -> None:
    arguments = '{"x":' * depth + "1" + "}" * depth
    (turn,) = decode_messages([{"role": "assistant", "content": None, "tool_calls": [call(arguments)]}])
    assert isinstance(turn.calls[0].arguments, str) == (depth > MAX_DEPTH)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        (5, "messages"),
        ("Hi", "messages"),
        ({}, "messages"),
        ([], "messages"),
        (["Hi"], "messages.0"),
        ([USER, None], "messages.1"),
        ([{"content": "Hi"}], "messages.0.role"),
        ([{"role": "robot", "content": "Hi"}], "messages.0.role"),
        ([{"role": ["user"], "content": "Hi"}], "messages.0.role"),
        ([{"role": "user"}], "messages.0.content"),
        ([{"role": "user", "content": None}], "messages.0.content"),
        ([{"role": "user", "content": 5}], "messages.0.content"),
        ([{"role": "user", "content": {"type": "text"}}], "messages.0.content"),
        ([{"role": "user", "content": ["Hi"]}], "messages.0.content.0"),
        ([{"role": "user", "content": [{"text": "Hi"}]}], "messages.0.content.0.type"),
        *(
            (
                [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": text}]}],
                "messages.0.content.1.text",
            )
            for text in (5, None, [], {})
        ),
        *(
            ([USER, {"role": "assistant", "content": "", "tool_calls": calls}], "messages.1.tool_calls")
            for calls in (5, 1.5, True, "call", {})
        ),
        ([USER, {"role": "assistant", "tool_calls": ["f"]}], "messages.1.tool_calls.0"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "a"}]}], "messages.1.tool_calls.0.function"),
        ([USER, {"role": "assistant", "tool_calls": [{"function": "f"}]}], "messages.1.tool_calls.0.function"),
        ([USER, {"role": "assistant", "tool_calls": [{"function": {}}]}], "messages.1.tool_calls.0.function.name"),
        ([USER, {"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}], "messages.1.tool_calls.0.function.name"),
        ([USER, {"role": "assistant", "tool_calls": [call(id=5)]}], "messages.1.tool_calls.0.id"),
        ([USER, {"role": "assistant", "tool_calls": [call(type="custom")]}], "messages.1.tool_calls.0.type"),
        ([{**USER, "tool_calls": [call()]}], "messages.0.tool_calls"),
        ([USER, {"role": "assistant", "function_call": "f"}], "messages.1.function_call"),
        ([{"role": "tool", "content": "1", "tool_call_id": 5}], "messages.0.tool_call_id"),
        ([{**USER, "name": {}}], "messages.0.name"),
        ([{"role": "assistant", "content": "a", "reasoning_content": {}}], "messages.0.reasoning_content"),
    ],
)
def test_bad_messages_name_the_field(messages: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_messages(messages)
    assert caught.value.param == param
    assert f"`{param}" in caught.value.message


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file"},
        {"type": "anything"},
    ],
)
def test_parts_of_unknown_types_are_refused_by_name(part: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_messages([{"role": "user", "content": [part]}])
    assert (caught.value.code, caught.value.param) == ("unsupported_content_type", "messages.0.content.0")
    assert part["type"] in caught.value.message


def test_tools_keep_the_clients_object_in_its_order() -> None:
    schema = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
    declared = {
        "function": {"parameters": schema, "strict": True, "name": "f", "description": "d"},
        "type": "function",
        "x": 1,
    }
    (tool,) = decode_tools([declared])
    assert (tool.name, tool.description, tool.parameters) == ("f", "d", schema)
    assert list(tool.declaration) == ["function", "type", "x"]
    assert list(tool.declaration["function"]) == ["parameters", "strict", "name", "description"]
    (bare,) = decode_tools([{"type": "function", "name": "f", "parameters": None}])
    assert bare.declaration == {"type": "function", "function": {"name": "f", "parameters": None}}
    assert bare.parameters == {}
    assert decode_tools(None) == ()


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        (5, "tools"),
        (True, "tools"),
        ({}, "tools"),
        ([], "tools"),
        (["f"], "tools.0"),
        ([{"type": "function"}], "tools.0.name"),
        ([{"type": "custom", "custom": {"name": "f"}}], "tools.0.type"),
        ([{"type": 5}], "tools.0.type"),
        *(
            ([{"type": "function", "function": function}], "tools.0.function")
            for function in ("search", ["search"], 5, True, None)
        ),
        ([{"type": "function", "function": {}}], "tools.0.function.name"),
        ([{"type": "function", "function": {"name": 5}}], "tools.0.function.name"),
        ([{"function": {"name": "a"}}, {"function": {"name": ""}}], "tools.1.function.name"),
        ([{"function": {"name": "a", "description": 5}}], "tools.0.function.description"),
        ([{"function": {"name": "a", "parameters": "x"}}], "tools.0.function.parameters"),
        ([{"function": {"name": "a", "parameters": {"properties": "x"}}}], "tools.0.function.parameters.properties"),
        ([{"function": {"name": "a", "parameters": {"required": "a"}}}], "tools.0.function.parameters.required"),
    ],
)
def test_bad_tools_name_the_field(tools: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_tools(tools)
    assert caught.value.param == param


def test_tool_choice() -> None:
    tools = decode_tools([{"function": {"name": "search"}}])
    for choice, decoded in (
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "search"}}, ToolChoice("named", "search")),
        ({"type": "function", "name": "search"}, ToolChoice("named", "search")),
        ({"name": "search"}, ToolChoice("named", "search")),
    ):
        assert decode_tool_choice(choice, tools) == decoded
    assert decode_tool_choice("auto", ()) == ToolChoice()
    assert decode_tool_choice("none", ()) == ToolChoice("none")
    bad: list[Any] = [
        "any",
        5,
        True,
        [],
        {},
        {"type": "function"},
        {"type": "allowed_tools", "allowed_tools": {}},
        {"type": "function", "function": {"name": "other"}},
        *({"type": "function", "function": function} for function in ("search", ["search"], 5, True, None)),
    ]
    for choice in bad:
        with pytest.raises(BadRequest) as caught:
            decode_tool_choice(choice, tools)
        assert caught.value.param == "tool_choice"
    for choice in ("required", {"name": "search"}):
        with pytest.raises(BadRequest):
            decode_tool_choice(choice, ())
