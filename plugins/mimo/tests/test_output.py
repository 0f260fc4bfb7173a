"""How answers arrive: what streams at once, what is repaired, and what is no call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colibri.chat.answer import Answer
from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.events import Event
from colibri.chat.output import OutputFormat, OutputParser
from colibri.family import Variant
from colibri_mimo import Mimo
from colibri_mimo.variants import MIMO_V2_5, MIMO_V2_6

MIMO = Mimo()
PROPERTIES = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "flag": {"type": "boolean"},
    "note": {"type": ["string", "null"]},
    "at": {"$ref": "#/$defs/At"},
    "maybe": {"anyOf": [{"type": "object"}, {"type": "null"}]},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "$defs": {"At": {"type": "array"}}}
TALK = Conversation((), (Tool("look", {}, SCHEMA),))
IDS = {"<tool_call>": 1, "</tool_call>": 2, "<think>": 3, "</think>": 4}
CITY = "<parameter=city>Rome</parameter>"


def format_of(variant: Variant = MIMO_V2_6, talk: Conversation = TALK, **options: Any) -> OutputFormat:
    return MIMO.output(variant, talk, TurnOptions(**options))


def events(output: str, *, repair: bool = True, tail: str = "", format: OutputFormat | None = None) -> list[Event]:
    format = format or format_of()
    parser = OutputParser(format, format.state_after(tail, TurnOptions()), repair=repair)
    return [*parser.feed(output), *parser.finish()]


def read(output: str, **options: Any) -> Answer:
    return Answer(events(output, **options))


def call(inside: str, name: str = "look") -> str:
    return f"<tool_call><function={name}>{inside}</function></tool_call>"


def arguments(output: str, **options: Any) -> list[Any]:
    return [json.loads(text) for _, text in read(output, **options).made()]


def test_a_call_streams_its_name_first_and_its_texts_as_they_come() -> None:
    parser = OutputParser(format_of(), specials=IDS)
    pieces = ["<think>", "hm", "</think>", "Ok", "<tool_call>", "<function=lo", "ok>", "<parameter=city>", 'R"o', "me</par"]
    pieces += ["ameter><parameter=days>", " 2", "</parameter>", "</function>", "</tool_call>"]
    seen = [[(event.kind, event.text) for event in parser.feed(piece, IDS.get(piece))] for piece in pieces]
    assert [[pair for pair in pairs if pair[0] != "swallowed"] for pairs in seen] == [
        [],
        [("reasoning", "hm")],
        [],
        [("content", "Ok")],
        [],
        [],
        [("tool_start", "look")],
        [("tool_args", '{"city": "')],
        [("tool_args", 'R\\"o')],
        [("tool_args", "me")],
        [("tool_args", '"')],
        [],
        [("tool_args", ', "days": 2')],
        [("tool_args", "}")],
        [("tool_end", "")],
    ]


@pytest.mark.parametrize(
    ("output", "content", "reasoning"),
    [
        ("Hello.", "Hello.", ""),
        ("\n Hello. ", "Hello. ", ""),
        ("\n<think>r\n</think>\n\nHello.", "Hello.", "r\n"),
        ("<think>r", "", "r"),
        ("<think></think>x", "x", ""),
        ("x<think>y</think>", "x<think>y</think>", ""),
        ("<think>a<think>b</think>c</think>", "c</think>", "a<think>b"),
        ("Use <tool> or <function=x> when x<y </tool_call>", "Use <tool> or <function=x> when x<y </tool_call>", ""),
    ],
)
def test_reasoning_is_a_block_at_the_beginning_and_all_else_is_text(output: str, content: str, reasoning: str) -> None:
    answer = read(output)
    assert (answer.shown, answer.reasoning, answer.calls) == (content, reasoning, {})


def test_behind_an_empty_block_in_the_prompt_a_tag_is_text() -> None:
    assert read("<think>x", tail="<|im_start|>assistant\n<think></think>").shown == "<think>x"


def test_a_call_in_reasoning_is_only_thought_of() -> None:
    answer = read(f"<think>I could {call(CITY)}</think>No.")
    assert (answer.shown, answer.reasoning, answer.calls) == ("No.", f"I could {call(CITY)}", {})


def test_texts_around_calls_are_kept_and_blanks_behind_the_last_are_not() -> None:
    assert read(f"Sure. {call(CITY)} then this.").shown == "Sure.  then this."
    assert read(f"Sure.{call(CITY)}\n{call('')}\n").shown == "Sure."


@pytest.mark.parametrize(
    ("inside", "value"),
    [
        ("<parameter=city>\n a &amp; <b>\n</parameter>", {"city": "\n a &amp; <b>\n"}),
        ("<parameter=city><tool_call></function></tool_call></parameter>", {"city": "<tool_call></function></tool_call>"}),
        ("<parameter=city>a <parameter=x> b</parameter>", {"city": "a <parameter=x> b"}),
        ("<parameter=city>a <parameter=</parameter>", {"city": "a <parameter="}),
        ("<parameter=city>a <parameter=city></parameter>", {"city": "a <parameter=city>"}),
        ("<parameter=days>a <parameter=x</parameter>", {"days": "a <parameter=x"}),
        ("<parameter=days>\n3\n</parameter>", {"days": 3}),
        ("<parameter=flag>True</parameter>", {"flag": True}),
        ("<parameter=note>None</parameter>", {"note": None}),
        ("<parameter=note>none</parameter>", {"note": "none"}),
        ("<parameter=at>[1, 2]</parameter>", {"at": [1, 2]}),
        ('<parameter=maybe>{"a": 1}</parameter>', {"maybe": {"a": 1}}),
        ("<parameter=maybe>null</parameter>", {"maybe": None}),
        ("<parameter=größe>7</parameter>", {"größe": "7"}),
        ("\n<parameter=days>1</parameter>\n<parameter=flag>false</parameter>\n", {"days": 1, "flag": False}),
        ("", {}),
    ],
)
@pytest.mark.parametrize("repair", [True, False])
def test_values_are_verbatim_and_typed_by_the_schema(inside: str, value: dict[str, Any], repair: bool) -> None:
    assert arguments(call(inside), repair=repair) == [value]


def test_parameters_of_a_tool_that_is_not_declared_are_texts() -> None:
    assert arguments(call("<parameter=days>1</parameter>", "other")) == [{"days": "1"}]


def test_line_breaks_between_tags_are_layout() -> None:
    output = f"\n<tool_call>\n<function=look>\n{CITY}\n</function>\n</tool_call>"
    assert arguments(output * 2, repair=False) == [{"city": "Rome"}] * 2


@pytest.mark.parametrize(
    ("output", "made"),
    [
        (f"<tool_call><function=look>{CITY}</function>", [{"city": "Rome"}]),
        (f"<tool_call><function=look>{CITY}</function>{call('')}", [{"city": "Rome"}, {}]),
        (f"<tool_call><function=look>{CITY}</tool_call>", [{"city": "Rome"}]),
        ("<tool_call><function=look></tool_call>", [{}]),
        (call("<parameter=city>Rome<parameter=days>3</parameter>"), [{"city": "Rome", "days": 3}]),
        (call(f"{CITY}<parameter=city>Bonn</parameter>"), [{"city": "Rome"}]),
        (call('\n{"city": "Rome"}\n'), [{"city": "Rome"}]),
    ],
)
def test_a_lenient_reader_repairs_what_a_strict_one_cuts(output: str, made: list[Any]) -> None:
    assert arguments(output) == made
    assert "tool_cut" in [event.kind for event in events(output, repair=False)]


@pytest.mark.parametrize(
    "output",
    [
        "<tool_call> and then the name.",
        "<tool_call><function=look",
        "<tool_call><function=></function></tool_call>",
        "<tool_call><function=a\nb></function></tool_call>",
        "<tool_call>look<function=look></function></tool_call>",
        f"<tool_call><function=look>{CITY}",
        "<tool_call><function=look><parameter=city>Ro",
        "<tool_call><function=look><parameter=city>Rome</para",
        f"<tool_call><function=look>{CITY}</function> now </tool_call>",
        call("Rome"),
        call('{"city": '),
        call("[1]"),
        call("<parameter=city</parameter>"),
        call(f"{CITY} and <parameter=days>1</parameter>"),
        call(f"{CITY} and"),
    ],
)
def test_what_is_no_whole_call_is_shown_as_it_is(output: str) -> None:
    answer = read(f"Ok{output}")
    assert (answer.shown, answer.made(), answer.cut) == (f"Ok{output}", [], True)


def test_tags_spelled_by_ordinary_tokens_are_text() -> None:
    parser = OutputParser(format_of(), specials=IDS)
    output = f"<think>x</think>{call(CITY)}"
    answer = Answer([event for char in output for event in parser.feed(char)] + parser.finish())
    assert (answer.shown, answer.reasoning, answer.calls) == (output, "", {})


def test_long_values_are_read_in_one_go() -> None:
    text = "a < b\n" * 20_000
    assert arguments(call(f"<parameter=city>{text}</parameter>")) == [{"city": text}]


@pytest.mark.parametrize(
    "format",
    [format_of(tool_choice=ToolChoice("none")), format_of(talk=Conversation(())), format_of(MIMO_V2_5)],
)
def test_without_active_tools_there_are_no_calls(format: OutputFormat) -> None:
    answer = read(f"<think>r</think>{call(CITY)}", format=format)
    assert (answer.shown, answer.reasoning) == (call(CITY), "r")


def test_turns_end_at_the_control_tokens() -> None:
    assert MIMO.stops(MIMO_V2_6, TurnOptions()).specials == ("<|im_end|>", "<|endoftext|>")
