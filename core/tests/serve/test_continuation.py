"""A trailing assistant message is continued, or refused with a reason."""

from __future__ import annotations

import pytest

from colibri.chat.conversation import Conversation, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.errors import BadRequest
from colibri.family import Capabilities
from colibri.serve.continuation import continues

from .conftest import assistant, user

AUTO = ToolChoice()
ABLE = Capabilities(continuation=True)


def asks(*turns: Turn, tools: tuple[Tool, ...] = (), choice: ToolChoice = AUTO, able: bool = True, on: bool = True) -> bool:
    capabilities = ABLE if able else Capabilities()
    return continues(Conversation(turns, tools), TurnOptions(tool_choice=choice), capabilities, enabled=on)


def test_when() -> None:
    question, begun = user("capitale della Francia?"), assistant("La capitale e'")
    assert asks(question, begun)
    assert not asks(question)
    assert not asks(question, begun, user("And?"))
    assert not asks()
    tools = (Tool("weather", {}),)
    assert asks(question, begun, tools=tools, choice=ToolChoice("none"))


@pytest.mark.parametrize(
    ("turns", "tools", "code", "param"),
    [
        ((user("Hi"), assistant("I")), (Tool("weather", {}),), "unsupported_parameter", "tools"),
        ((user("Hi"), Turn("assistant", (TextPart("I"),), calls=(ToolCall("weather", {}),))), (), "unsupported_value",
         "messages.1.tool_calls"),
        ((assistant("I"),), (), "invalid_value", "messages"),
        ((user("Hi"), assistant("")), (), "invalid_value", "messages.1.content"),
        ((user("Hi"), assistant(" \n")), (), "invalid_value", "messages.1.content"),
        ((user("Hi"), Turn("assistant", None)), (), "invalid_value", "messages.1.content"),
        ((user("Hi"), assistant("I am ")), (), "invalid_value", "messages.1.content"),
        ((user("Hi"), assistant("I am\n")), (), "invalid_value", "messages.1.content"),
    ],
)  # fmt: skip
def test_refused(turns: tuple[Turn, ...], tools: tuple[Tool, ...], code: str, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        asks(*turns, tools=tools)
    assert (caught.value.code, caught.value.param, caught.value.status) == (code, param, 400)
    # Without the switch, or on a model that has no open turns, it is an ordinary turn.
    assert not asks(*turns, tools=tools, on=False)
    assert not asks(*turns, tools=tools, able=False)
