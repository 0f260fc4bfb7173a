"""From OpenAI's messages and tools to a Conversation. Plain functions on decoded JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from ...chat.conversation import Part, Role, TextPart, Tool, ToolCall, ToolChoice, Turn
from ...errors import BadRequest, Refusal
from ..body import nests_too_deep
from .fields import wrong
from .media import decode_audio, decode_image

#: Role words of the protocol, with the role each means. `function` is the older word for a tool's result.
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

_TEXT_PARTS = ("text", "input_text", "output_text")


def decode_messages(messages: Any, param: str = "messages") -> tuple[Turn, ...]:
    """The turns of `messages`. Raises BadRequest naming the exact field, Refusal for parts that are no text."""
    if not isinstance(messages, list):
        raise wrong(param, "an array of messages", messages)
    if not messages:
        raise BadRequest(f"`{param}` must hold at least one message.", param=param)
    return tuple(_turn(message, f"{param}.{i}") for i, message in enumerate(messages))


def decode_tools(tools: Any, param: str = "tools") -> tuple[Tool, ...]:
    """The declared functions; () if there are none. A bare function stands for its tool, as older clients write it."""
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise wrong(param, "an array of tools", tools)
    if not tools:
        raise BadRequest(f"`{param}` must hold at least one tool; leave it out if there are none.", param=param)
    return tuple(_tool(tool, f"{param}.{i}") for i, tool in enumerate(tools))


def decode_tool_choice(choice: Any, tools: tuple[Tool, ...], param: str = "tool_choice") -> ToolChoice:
    """How tools are to be chosen. A choice that needs tools, or names one that is not declared, is a BadRequest."""
    if choice is None or choice == "auto":
        return ToolChoice()
    if choice == "none":
        return ToolChoice("none")
    if choice == "required":
        if not tools:
            raise BadRequest(f'`{param}` is "required" but the request declares no tools.', param=param)
        return ToolChoice("required")
    if not isinstance(choice, dict):
        raise BadRequest(f'`{param}` must be "auto", "none", "required" or an object that names a function.', param=param)
    if choice.get("type", "function") != "function":
        raise Refusal(
            f"`{param}` can only name a function; its type is not supported.", param=param, code="unsupported_value"
        )
    target = choice.get("function", choice)
    if not isinstance(target, dict):
        raise wrong(param, "an object with a `function` object", target)
    name = target.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest(f"`{param}` must name a function.", param=param)
    if all(tool.name != name for tool in tools):
        raise BadRequest(f"`{param}` names the function `{name[:100]}`, which the request does not declare.", param=param)
    return ToolChoice("named", name)


def _turn(message: Any, param: str) -> Turn:
    if not isinstance(message, dict):
        raise wrong(param, "an object", message)
    word = message.get("role")
    role = ROLES.get(word) if isinstance(word, str) else None
    if role is None:
        raise BadRequest(f"`{param}.role` must be one of {', '.join(ROLES)}.", param=f"{param}.role")
    content = _content(message.get("content"), f"{param}.content")
    if content is None and role != "assistant":
        raise wrong(f"{param}.content", "a string or an array of parts", None)
    # Two names are in use for the same text; the first is the more common one.
    reasoning = _text(message, "reasoning_content", param)
    if reasoning is None and isinstance(message.get("reasoning"), str):
        reasoning = message["reasoning"]
    calls = _calls(message, param)
    if calls and role != "assistant":
        raise BadRequest(f"`{param}.tool_calls` may only stand in an assistant message.", param=f"{param}.tool_calls")
    return Turn(
        role=role,
        content=content,
        reasoning=reasoning if role == "assistant" else None,
        calls=calls,
        call_id=_text(message, "tool_call_id", param),
        name=_text(message, "name", param),
    )


def _content(content: Any, param: str) -> tuple[Part, ...] | None:
    if content is None:
        return None
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list):
        raise wrong(param, "a string or an array of parts", content)
    return tuple(_part(part, f"{param}.{i}") for i, part in enumerate(content))


def _part(part: Any, param: str) -> Part:
    if not isinstance(part, dict):
        raise wrong(param, "an object", part)
    form = part.get("type")
    if not isinstance(form, str):
        raise wrong(f"{param}.type", "a string", form)
    if form in _TEXT_PARTS or form == "refusal":
        field = "refusal" if form == "refusal" else "text"
        text = part.get(field)
        if not isinstance(text, str):
            raise wrong(f"{param}.{field}", "a string", text)
        return TextPart(text)
    if form in ("image_url", "input_image"):
        return decode_image(part, param)
    if form == "input_audio":
        return decode_audio(part, param)
    raise Refusal(
        f"`{param}.type` is `{form[:60]}`, but only text, images and audio can stand here.",
        param=param,
        code="unsupported_content_type",
    )


def _text(message: dict[str, Any], name: str, param: str) -> str | None:
    value = message.get(name)
    if value is None or isinstance(value, str):
        return value
    raise wrong(f"{param}.{name}", "a string", value)


def _calls(message: dict[str, Any], param: str) -> tuple[ToolCall, ...]:
    calls = message.get("tool_calls")
    if calls is None:
        # How calls were written before there could be several.
        older = message.get("function_call")
        return () if older is None else (_function_call(older, None, f"{param}.function_call"),)
    if not isinstance(calls, list):
        raise wrong(f"{param}.tool_calls", "an array", calls)
    return tuple(_call(call, f"{param}.tool_calls.{i}") for i, call in enumerate(calls))


def _call(call: Any, param: str) -> ToolCall:
    if not isinstance(call, dict):
        raise wrong(param, "an object", call)
    if call.get("type", "function") not in ("function", None):
        raise Refusal(f"`{param}.type` must be `function`.", param=f"{param}.type", code="unsupported_value")
    return _function_call(call.get("function"), _text(call, "id", param), f"{param}.function")


def _function_call(function: Any, call_id: str | None, param: str) -> ToolCall:
    if not isinstance(function, dict):
        raise wrong(param, "an object", function)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest(f"`{param}.name` must be a string that is not empty.", param=f"{param}.name")
    return ToolCall(name, _arguments(function.get("arguments")), call_id)


def _arguments(arguments: Any) -> dict[str, Any] | str:
    """A past call's arguments. What the model once wrote is history: nothing in it is an error now."""
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, dict):
        return arguments
    if not isinstance(arguments, str):
        return msgspec.json.encode(arguments).decode()
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, RecursionError):
        return arguments
    # Text of any depth may stand in a string, but what is decoded has to be written out again by functions that recurse.
    return value if isinstance(value, dict) and not nests_too_deep(value) else arguments


def _tool(tool: Any, param: str) -> Tool:
    if not isinstance(tool, dict):
        raise wrong(param, "an object", tool)
    form = tool.get("type", "function")
    if form != "function":
        raise Refusal(
            f"`{param}.type` must be `function`; other tools can't run here.",
            param=f"{param}.type",
            code="unsupported_value",
        )
    bare = "function" not in tool
    function = tool if bare else tool["function"]
    where = param if bare else f"{param}.function"
    if not isinstance(function, dict):
        raise wrong(where, "an object", function)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest(f"`{where}.name` must be a string that is not empty.", param=f"{where}.name")
    if bare:
        tool = {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}
    return Tool(name, tool, _parameters(function, where), _text(function, "description", where))


def _parameters(function: dict[str, Any], where: str) -> dict[str, Any]:
    parameters = function.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise wrong(f"{where}.parameters", "an object", parameters)
    properties, required = parameters.get("properties"), parameters.get("required")
    if properties is not None and not isinstance(properties, dict):
        raise wrong(f"{where}.parameters.properties", "an object", properties)
    if required is not None and not isinstance(required, list):
        raise wrong(f"{where}.parameters.required", "an array", required)
    return parameters
