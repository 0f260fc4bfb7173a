"""What a variant does not claim is refused by name, before anything is rendered."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.errors import BadRequest, Refusal
from colibri.family import Capabilities, Variant
from colibri.serve.refusals import allowed

from .conftest import user

TOOLS = (Tool("weather", {}), Tool("time", {}))
NOTHING = Capabilities()
TOOLED = Capabilities(tools="native", tool_choice="prompt", strict_tools=True)
THINKER = Capabilities(thinking="optional", efforts=("low", "high"))


RESULT = Turn("tool", (TextPart("{}"),))
CALLED = Turn("assistant", None, calls=(ToolCall("time", {}),))


def allow(capabilities: Capabilities, tools: Any = (), turns: Any = None, **options: Any) -> TurnOptions:
    conversation = Conversation(turns or (user("Hi"),), tools)
    return allowed(Variant("fake-1", "Fake 1", capabilities), conversation, TurnOptions(**options))


@pytest.mark.parametrize(
    ("capabilities", "tools", "options", "param"),
    [
        (NOTHING, TOOLS, {}, "tools"),
        (Capabilities(tools="fallback"), TOOLS, {}, "tools"),
        (NOTHING, (), {"tool_choice": ToolChoice("required")}, "tool_choice"),
        (Capabilities(tools="native"), TOOLS, {"tool_choice": ToolChoice("required")}, "tool_choice"),
        (Capabilities(tools="native"), TOOLS, {"tool_choice": ToolChoice("named", "time")}, "tool_choice"),
        (Capabilities(tools="native"), TOOLS, {"strict_tools": True}, "strict_tool_calls"),
        (NOTHING, (), {"thinking": True}, "enable_thinking"),
        (NOTHING, (), {"effort": "high", "thinking": True}, "reasoning_effort"),
        (Capabilities(thinking="always"), (), {"thinking": False}, "enable_thinking"),
        (THINKER, (), {"preserve_thinking": True}, "preserve_thinking"),
    ],
)
def test_refused(capabilities: Capabilities, tools: Any, options: dict[str, Any], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        allow(capabilities, tools, **options)
    assert caught.value.param == param
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("capabilities", "tools", "options"),
    [
        (NOTHING, (), {}),
        (NOTHING, TOOLS, {"tool_choice": ToolChoice("none")}),
        (NOTHING, (), {"thinking": False, "preserve_thinking": False}),
        (Capabilities(tools="fallback"), TOOLS, {"tool_fallback": True}),
        (TOOLED, TOOLS, {"tool_choice": ToolChoice("named", "time"), "strict_tools": True}),
        (THINKER, (), {"effort": "low", "thinking": True}),
        (Capabilities(thinking="always", preserve=True), (), {"thinking": True, "preserve_thinking": True}),
    ],
)
def test_allowed_as_it_is(capabilities: Capabilities, tools: Any, options: dict[str, Any]) -> None:
    assert allow(capabilities, tools, **options) == TurnOptions(**options)


def test_an_effort_without_words_for_it_means_to_think() -> None:
    capabilities = Capabilities(thinking="optional")
    assert allow(capabilities, effort="high") == TurnOptions(thinking=True)
    assert allow(capabilities, effort="high", thinking=False) == TurnOptions(thinking=False)


def test_an_effort_becomes_the_familys_nearest_word() -> None:
    assert allow(THINKER, effort="medium") == TurnOptions(effort="high", thinking=True)
    assert allow(THINKER, effort="xhigh", thinking=False) == TurnOptions(effort="high", thinking=False)


def test_a_model_that_always_thinks_thinks_as_little_as_it_can() -> None:
    capabilities = Capabilities(thinking="always", efforts=("low", "high"))
    assert allow(capabilities, thinking=False) == TurnOptions(effort="low")
    assert allow(capabilities, thinking=False, effort="high") == TurnOptions(effort="low")


def test_a_demand_that_no_declared_tool_meets() -> None:
    for choice in (ToolChoice("named", "search"), ToolChoice("required")):
        with pytest.raises(BadRequest) as caught:
            allow(TOOLED, TOOLS if choice.name else (), tool_choice=choice)
        assert caught.value.param == "tool_choice"


def test_media() -> None:
    turns = (user("Look:"), Turn("user", (MediaPart("image", b"..."),)))
    with pytest.raises(Refusal, match="does not take image input; it takes text") as caught:
        allow(NOTHING, turns=turns)
    assert (caught.value.code, caught.value.param) == ("unsupported_content_type", "messages.1.content.0")
    allow(Capabilities(inputs=("text", "image")), turns=turns)


@pytest.mark.parametrize(("turn", "param"), [(CALLED, "messages.1.tool_calls"), (RESULT, "messages.1")])
def test_past_calls_need_a_format_as_well(turn: Turn, param: str) -> None:
    turns = (user("Hi"), turn, user("And?"))
    for claims in (NOTHING, Capabilities(tools="fallback")):
        with pytest.raises(Refusal) as error:
            allow(claims, turns=turns)
        assert error.value.param == param
    allow(TOOLED, turns=turns)
    allow(Capabilities(tools="fallback"), turns=turns, tool_fallback=True)
