"""How answers arrive: what streams at once, what waits until it is known what it is, and what becomes of broken calls."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from colibri.api.openai.messages import decode_tools
from colibri.chat.answer import Answer
from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.events import Event
from colibri.chat.output import OutputFormat, OutputParser
from colibri_inkling import Inkling
from colibri_inkling.variants import INKLING

FAMILY = Inkling()
TALK = Conversation((), (Tool("look", {}), Tool("find", {})))
IDS = {
    "<|message_user|>": 200000,
    "<|message_model|>": 200001,
    "<|content_text|>": 200004,
    "<|content_model_end_sampling|>": 200006,
    "<|content_thinking|>": 200008,
    "<|end_message|>": 200010,
    "<|content_tool_error|>": 200022,
    "<|audio_end|>": 200043,
    "<|content_invoke_tool_json|>": 200049,
    "<|content_invoke_tool_text|>": 200057,
}
TOKENS = re.compile("(" + "|".join(map(re.escape, IDS)) + ")")
OUTPUTS = json.loads((Path(__file__).parent / "data" / "chat" / "outputs-inkling.json").read_text(encoding="utf-8"))


def output(talk: Conversation = TALK, **options: Any) -> OutputFormat:
    return FAMILY.output(INKLING, talk, TurnOptions(**options))


def parser(format: OutputFormat | None = None, *, repair: bool = True) -> OutputParser:
    return OutputParser(format or output(), specials=IDS, hidden=IDS.values(), repair=repair)


def kinds(parser: OutputParser, *pieces: str) -> list[list[tuple[str, str]]]:
    return [[(event.kind, event.text) for event in parser.feed(piece, IDS.get(piece))] for piece in pieces]


def read(text: str, reader: OutputParser, size: int = 1000) -> Answer:
    """What `text` says, its control tokens given as such and the rest in pieces of `size` characters."""
    events: list[Event] = []
    for piece in TOKENS.split(text):
        if piece in IDS:
            events += reader.feed(piece, IDS[piece])
        else:
            for at in range(0, len(piece), size):
                events += reader.feed(piece[at : at + size])
    return Answer(events + reader.finish())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_outputs_mean_the_same_by_the_ids_of_their_tokens(size: int) -> None:
    for case in OUTPUTS:
        answer = read(case["output"], parser(output(Conversation((), decode_tools(case["tools"] or None)))), size)
        expected = case["expected"]
        assert (answer.shown, answer.reasoning) == (expected["content"] or "", expected["reasoning"] or ""), case["name"]
        calls = [{"name": name, "arguments": json.loads(arguments)} for name, arguments in answer.made()]
        assert calls == expected["tool_calls"], case["name"]


def test_a_call_streams_its_name_first_and_its_arguments_as_they_come() -> None:
    pieces = [
        "lo",
        "ok",
        "<|content_invoke_tool_json|>",
        '{"name":"lo',
        'ok","args":',
        '{"x":"a',
        'b"}',
        "}",
        "<|end_message|>",
    ]
    assert kinds(parser(), *pieces) == [
        [],
        [],
        [],
        [],
        [("tool_start", "look")],
        [("swallowed", ""), ("tool_args", '{"x":"a')],
        [("tool_args", 'b"}')],
        [],
        [("tool_end", "")],
    ]


def test_thoughts_and_texts_stream_at_once() -> None:
    pieces = ["<|content_thinking|>", "I ", "see", "<|end_message|>", "<|message_model|>", "<|content_text|>", "A ", "b"]
    shown = [[event for event in events if event[0] != "swallowed"] for events in kinds(parser(), *pieces)]
    assert shown == [[], [("reasoning", "I ")], [("reasoning", "see")], [], [], [], [("content", "A ")], [("content", "b")]]


def test_text_that_nothing_announces_is_held_back_only_while_it_may_be_a_name() -> None:
    assert kinds(parser(), "Well", ",", " yes") == [[], [("content", "Well,")], [("content", " yes")]]
    assert kinds(parser(), "Well ", "yes") == [[], [("content", "Well yes")]]
    assert kinds(parser(), "a" * 200) == [[("content", "a" * 200)]]
    assert read("Well", parser()).shown == "Well"
    assert read("Well<|end_message|><|message_model|>then<|message_model|>now", parser()).shown == "Wellthennow"


@pytest.mark.parametrize(
    ("text", "content", "reasoning"),
    [
        ("look<|content_text|>a<|end_message|>", "a", ""),
        ("look<|content_thinking|>a<|end_message|>b", "b", "a"),
        ("<|content_thinking|>a<|content_text|>b", "b", "a"),
        ("<|content_thinking|>a<|message_model|><|content_text|>b", "b", "a"),
        ("<|content_thinking|>a<|content_model_end_sampling|><|content_text|>b", "b", "a"),
        ("<|content_text|>a<|content_thinking|>b<|content_text|>c", "ac", "b"),
        ("<|content_text|>a\n\n<|end_message|>\n<|message_model|><|content_text|>\nb", "a\n\n\nb", ""),
        ("<|content_text|>a<|audio_end|><|message_user|>b<|end_message|><|audio_end|>", "ab", ""),
        ("<|audio_end|><|end_message|>", "", ""),
        ("<|content_invoke_tool_text|>a<|end_message|><|content_tool_error|>b<|end_message|>", "ab", ""),
        ("", "", ""),
    ],
)
def test_what_is_not_written_by_the_book_is_still_understood(text: str, content: str, reasoning: str) -> None:
    answer = read(text, parser())
    assert (answer.shown, answer.reasoning, answer.made()) == (content, reasoning, [])


CALL = '<|content_invoke_tool_json|>{"name":"look","args":{"x":1}}'
MADE = [("look", '{"x":1}')]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"{CALL}<|end_message|>", ""),
        (f"look{CALL}<|end_message|>\n<|message_model|><|content_text|>b", "b"),
        (f"find{CALL}<|content_model_end_sampling|>", ""),
        (f"{CALL}<|message_model|>b", "b"),
        (f"<|content_text|>a{CALL}<|end_message|>b", "ab"),
        ('<|content_invoke_tool_json|> {"args": {"x":1},\n"name": "look", "id": [3]} <|end_message|>', ""),
    ],
)
@pytest.mark.parametrize("repair", [True, False])
def test_a_whole_call_is_made(text: str, content: str, repair: bool) -> None:
    answer = read(text, parser(repair=repair))
    assert (answer.made(), answer.shown) == (MADE, content)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (CALL, MADE),
        (f"{CALL}{CALL}<|end_message|>", MADE * 2),
        ('<|content_invoke_tool_json|>{"name":"look"}<|end_message|>', [("look", "{}")]),
        ('<|content_invoke_tool_json|>{"name":"look","args":null}<|end_message|>', [("look", "{}")]),
        ('<|content_invoke_tool_json|>{"name":"look","args":{"x":"a\nb"}}<|end_message|>', [("look", '{"x":"a\\nb"}')]),
    ],
)
def test_a_call_that_is_not_quite_right_is_repaired_unless_calls_are_strict(text: str, made: list[tuple[str, str]]) -> None:
    assert read(text, parser()).made() == made
    strict = read(text, parser(repair=False))
    assert strict.cut
    assert len(strict.made()) < len(made)


@pytest.mark.parametrize(
    "text",
    [
        '<|content_invoke_tool_json|>{"name":"look","args":{"x":',
        '<|content_invoke_tool_json|>{"name":"look","args":{"x":1}} and more<|end_message|>',
        '<|content_invoke_tool_json|>{"name":"look","args":[1]}<|end_message|>',
        '<|content_invoke_tool_json|>{"args":{"x":1}}<|end_message|>',
        "look<|content_invoke_tool_json|><|end_message|>",
        "<|content_invoke_tool_json|>search SF<|end_message|>",
    ],
)
@pytest.mark.parametrize("repair", [True, False])
def test_a_call_that_is_none_is_shown_as_it_was_written(text: str, repair: bool) -> None:
    answer = read(text, parser(repair=repair))
    assert (answer.cut, answer.shown, answer.made()) == (True, text, [])


def test_tokens_spelled_by_ordinary_ones_are_text() -> None:
    reader = parser()
    reader.feed("<|content_text|>", IDS["<|content_text|>"])
    events = [event for char in f"<|end_message|>{CALL}<|end_message|>" for event in reader.feed(char)]
    assert {event.kind for event in events + reader.finish()} == {"content"}


@pytest.mark.parametrize("format", [output(Conversation(())), output(tool_choice=ToolChoice("none"))])
def test_without_active_tools_a_call_is_text(format: OutputFormat) -> None:
    answer = read(f"<|content_thinking|>a<|end_message|><|message_model|>look{CALL}<|end_message|>", parser(format))
    assert (answer.reasoning, answer.shown, answer.calls) == ("a", '{"name":"look","args":{"x":1}}', {})


def test_turns_end_where_sampling_does() -> None:
    assert FAMILY.stops(INKLING, TurnOptions()).specials == ("<|content_model_end_sampling|>",)
