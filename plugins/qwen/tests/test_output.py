"""How answers arrive: what streams at once, and what waits until it is known what it is."""

from __future__ import annotations

import pytest

from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.output import OutputFormat, OutputParser
from colibri.family import Variant
from colibri_qwen import Qwen
from colibri_qwen.variants import QWEN2, QWEN2_5, QWEN2_5_CODER

QWEN = Qwen()
TALK = Conversation((), (Tool("look", {}), Tool("find", {})))
IDS = {"<tool_call>": 1, "</tool_call>": 2}


def output(variant: Variant, options: TurnOptions | None = None, talk: Conversation = TALK) -> OutputFormat:
    return QWEN.output(variant, talk, options or TurnOptions())


def kinds(parser: OutputParser, *pieces: str) -> list[list[tuple[str, str]]]:
    return [[(event.kind, event.text) for event in parser.feed(piece, IDS.get(piece))] for piece in pieces]


def test_a_call_streams_its_name_first_and_its_arguments_as_they_come() -> None:
    parser = OutputParser(output(QWEN2_5), specials=IDS)
    pieces = ["Sure", "\n", "<tool_call>", '\n{"name": "lo', 'ok", "arguments": ', '{"x": "a', 'b"}', "}\n", "</tool_call>"]
    assert kinds(parser, *pieces) == [
        [("content", "Sure")],
        [],
        [],
        [],
        [("tool_start", "look")],
        [("swallowed", ""), ("tool_args", '{"x": "a')],
        [("tool_args", 'b"}')],
        [],
        [("tool_end", "")],
    ]


@pytest.mark.parametrize("variant", [QWEN2_5, QWEN2_5_CODER])
def test_prose_streams_at_once(variant: Variant) -> None:
    parser = OutputParser(output(variant), specials=IDS)
    assert kinds(parser, "Hel", "lo {", "\n\n", "there") == [
        [("content", "Hel")],
        [("content", "lo {")],
        [("content", "\n")],
        [("content", "\nthere")],
    ]


def test_json_is_held_back_only_while_it_may_be_a_call() -> None:
    parser = OutputParser(output(QWEN2_5_CODER), specials=IDS)
    assert kinds(parser, '{"name": ', '"Bob', '"', ", ") == [[], [], [("content", '{"name": "Bob"')], [("content", ", ")]]
    parser = OutputParser(output(QWEN2_5), specials=IDS)
    assert kinds(parser, '{"name": ') == [[("content", '{"name": ')]]


def test_tags_spelled_by_ordinary_tokens_are_text() -> None:
    parser = OutputParser(output(QWEN2_5), specials=IDS)
    events = [event for char in '<tool_call>{"name": "look", "arguments": {}}</tool_call>' for event in parser.feed(char)]
    assert {event.kind for event in events + parser.finish()} == {"content"}


@pytest.mark.parametrize(
    "format",
    [
        output(QWEN2),
        output(QWEN2_5, TurnOptions(tool_choice=ToolChoice("none"))),
        output(QWEN2_5_CODER, talk=Conversation(())),
    ],
)
def test_without_active_tools_everything_is_text(format: OutputFormat) -> None:
    assert format == OutputFormat()


def test_turns_end_at_the_control_tokens() -> None:
    assert QWEN.stops(QWEN2_5, TurnOptions()).specials == ("<|im_end|>", "<|endoftext|>")
