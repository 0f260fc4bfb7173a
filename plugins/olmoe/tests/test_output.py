"""Everything is text, unless tools were described in words."""

from __future__ import annotations

from colibri.chat.conversation import Conversation, Tool, TurnOptions
from colibri.chat.output import OutputParser
from colibri_olmoe import OLMOE, Olmoe

FAMILY = Olmoe()
TALK = Conversation((), (Tool("look", {}),))
ANSWER = 'Ok\n<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>'


def kinds(options: TurnOptions) -> list[str]:
    parser = OutputParser(FAMILY.output(OLMOE, TALK, options), specials={"|||IP_ADDRESS|||": 50279})
    return [event.kind for event in parser.feed(ANSWER) + parser.finish()]


def test_markup_is_text() -> None:
    assert kinds(TurnOptions()) == ["content"]


def test_with_the_fallback_blocks_are_calls() -> None:
    assert kinds(TurnOptions(tool_fallback=True)) == ["content", "tool_start", "swallowed", "tool_args", "tool_end"]
