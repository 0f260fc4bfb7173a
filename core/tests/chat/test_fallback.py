from __future__ import annotations

import pytest

from colibri.chat.conversation import Conversation, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.fallback import in_words
from colibri.chat.roles import with_known_roles
from colibri.chat.tools import DEMAND, active_tools
from colibri.family import Capabilities

TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name, "description": "é"}}) for name in ("f", "g"))


def turn(role: str, text: str, *calls: ToolCall) -> Turn:
    return Turn(role, (TextPart(text),), calls=calls)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (ToolChoice(), ["f", "g"]),
        (ToolChoice("none"), []),
        (ToolChoice("required"), ["f", "g"]),
        (ToolChoice("named", "g"), ["g"]),
    ],
)
def test_the_choice_decides_which_tools_are_declared(choice: ToolChoice, names: list[str]) -> None:
    options = TurnOptions(tool_choice=choice)
    assert [tool.name for tool in active_tools(Conversation((), TOOLS), options)] == names
    text = "".join(turn.text for turn in in_words(Conversation((turn_user,), TOOLS), options).turns)
    assert [name for name in ("f", "g") if f'{{"name": "{name}", "description": "é"}}' in text] == names
    assert (DEMAND in text) == (choice.mode in ("required", "named"))


turn_user = turn("user", "U")


def test_tools_calls_and_results_become_text() -> None:
    calls = (ToolCall("f", {"x": 1.0}), ToolCall("g", "not an object"))
    talk = Conversation(
        (turn("system", "S"), turn_user, turn("assistant", "A", *calls), turn("tool", "1"), turn("tool", "2"), turn_user),
        TOOLS,
    )
    system, user, assistant, results, last = in_words(talk, TurnOptions()).turns
    assert system.text.startswith("S\n\nYou can call")
    assert (user, last) == (turn_user, turn_user)
    assert assistant.text == (
        'A\n<tool_call>\n{"name": "f", "arguments": {"x": 1.0}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": "not an object"}\n</tool_call>'
    )
    assert results == turn("user", "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>")
    assert not assistant.calls


def test_a_conversation_without_tools_stays_as_it_is() -> None:
    talk = Conversation((turn("system", "S"), turn_user, turn("assistant", "A")))
    assert in_words(talk, TurnOptions()) == talk
    assert in_words(Conversation(talk.turns, TOOLS), TurnOptions(tool_choice=ToolChoice("none"))) == talk


def test_results_at_the_end_are_kept() -> None:
    assert [t.role for t in in_words(Conversation((turn_user, turn("tool", "r"))), TurnOptions()).turns] == ["user", "user"]


def test_developers_speak_as_the_system_unless_the_family_knows_them() -> None:
    talk = Conversation((turn("developer", "D"), turn_user))
    assert with_known_roles(talk, Capabilities()).turns == (turn("system", "D"), turn_user)
    assert with_known_roles(talk, Capabilities(developer=True)) == talk
