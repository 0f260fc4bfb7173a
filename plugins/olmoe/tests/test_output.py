"""Everything is text, unless tools were described in words."""

from __future__ import annotations

from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.output import OutputParser
from colibri_olmoe import OLMOE, Olmoe

FAMILY = Olmoe()
TALK = Conversation((), (Tool("look", {}),))
ANSWER = 'Ok\n<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>'


def kinds(options: TurnOptions, answer: str = ANSWER) -> list[str]:
    parser = OutputParser(FAMILY.output(OLMOE, TALK, options), specials={"|||IP_ADDRESS|||": 50279})
    return [event.kind for event in parser.feed(answer) + parser.finish()]


def test_markup_is_text() -> None:
    assert kinds(TurnOptions()) == ["content"]


def test_with_the_fallback_blocks_are_calls() -> None:
    assert kinds(TurnOptions(tool_fallback=True)) == ["content", "tool_start", "swallowed", "tool_args", "tool_end"]


def test_with_the_fallback_a_whole_answer_that_is_one_call_needs_no_tags() -> None:
    answer = '```json\n{"name": "look", "arguments": {"x": 1}}\n```'
    assert kinds(TurnOptions(tool_fallback=True), answer) == ["tool_start", "tool_args", "tool_end"]
    assert kinds(TurnOptions(tool_fallback=True), f"Like so: {answer}") == ["content"]
    assert kinds(TurnOptions(), answer) == ["content"]


def test_tools_that_may_not_be_called_are_not_looked_for() -> None:
    assert kinds(TurnOptions(tool_fallback=True, tool_choice=ToolChoice("none"))) == ["content"]
