"""How answers arrive: what streams at once, what is repaired, what a strict reader takes, and what is text after all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colibri.chat.answer import Answer
from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.events import Event
from colibri.chat.output import OutputFormat, OutputParser
from colibri.family import Variant
from colibri_deepseek import DeepSeek
from colibri_deepseek.output import PLAIN
from colibri_deepseek.variants import V3_2, V3_2_EXP, V4

DEEPSEEK = DeepSeek()
TYPES = {"city": "string", "days": "integer", "tags": "array"}
SCHEMA = {"type": "object", "properties": {name: {"type": type} for name, type in TYPES.items()}}
TALK = Conversation((), (Tool("look", {}, SCHEMA), Tool("now", {})))
IDS = {"｜DSML｜": 1, "</think>": 2, "<think>": 3}

INVOKE = '<｜DSML｜invoke name="look">\n'
CITY = '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
DAYS = '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
END = "</｜DSML｜invoke>\n"
OPEN, CLOSE = "\n\n<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>"
WHOLE = [("look", {"city": "Paris", "days": 3})]


def output(variant: Variant = V4, options: TurnOptions | None = None, talk: Conversation = TALK) -> OutputFormat:
    return DEEPSEEK.output(variant, talk, options or TurnOptions())


def read(text: str, state: str = "content", *, repair: bool = True, ids: bool = True) -> list[Event]:
    """The events of an output whose tags are control tokens, or are spelled."""
    parser = OutputParser(output(), state, IDS if ids else None, repair=repair)
    events: list[Event] = []
    while text:
        first = next((token for token in IDS if text.startswith(token)), text[0])
        events += parser.feed(first, IDS.get(first) if ids else None)
        text = text[len(first) :]
    return events + parser.finish()


def said(events: list[Event]) -> tuple[str, str, list[tuple[str, Any]]]:
    answer = Answer(events)
    return answer.reasoning, answer.shown, [(name, json.loads(arguments)) for name, arguments in answer.made()]


def test_strings_stream_as_they_come_and_other_values_when_they_are_whole() -> None:
    parser = OutputParser(output(), "content", IDS)
    pieces = ["Sure", "\n\n<", "｜DSML｜", "tool_calls>\n<", "｜DSML｜", 'invoke name="lo', 'ok">\n<', "｜DSML｜"]
    pieces += ['parameter name="city" string="true">Pa', 'r"\n', "is<", "/b</", "｜DSML｜", "parameter>\n<", "｜DSML｜"]
    pieces += ['parameter name="days" string="false">', "3</", "｜DSML｜", "parameter>\n</", "｜DSML｜", "invoke>\n</"]
    pieces += ["｜DSML｜", "tool_calls>"]
    seen = [(piece, [(e.kind, e.text) for e in parser.feed(piece, IDS.get(piece)) if e.text]) for piece in pieces]
    assert [(piece, events) for piece, events in seen if events] == [
        ("Sure", [("content", "Sure")]),
        ('ok">\n<', [("tool_start", "look")]),
        ('parameter name="city" string="true">Pa', [("tool_args", '{"city": "Pa')]),
        ('r"\n', [("tool_args", 'r\\"')]),
        ("is<", [("tool_args", "\\nis")]),
        ("/b</", [("tool_args", "</b")]),
        ("parameter>\n<", [("tool_args", '"')]),
        ('parameter name="days" string="false">', [("tool_args", ', "days": ')]),
        ("parameter>\n</", [("tool_args", "3")]),
        ("invoke>\n</", [("tool_args", "}")]),
    ]
    assert said(parser.finish()) == ("", "", [])


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (OPEN + INVOKE + CITY + DAYS + END + CLOSE, WHOLE),
        (OPEN + INVOKE + "\n" + END + CLOSE, [("look", {})]),
        (OPEN + INVOKE + CITY + END + INVOKE + DAYS + END + CLOSE, [("look", {"city": "Paris"}), ("look", {"days": 3})]),
    ],
)
def test_calls_that_are_written_right_are_read_by_every_reader(text: str, calls: Any, repair: bool) -> None:
    assert said(read("hm</think>Sure." + text, "reasoning", repair=repair)) == ("hm", "Sure.", calls)


@pytest.mark.parametrize(
    "text",
    [
        "\n" + OPEN.strip() + INVOKE + CITY + DAYS + END + CLOSE + "Done.",
        INVOKE + CITY + DAYS + END,
        "\n\n" + INVOKE + CITY + DAYS + END + CLOSE,
        OPEN + INVOKE + CITY + DAYS + CLOSE,
        OPEN + INVOKE + CITY + DAYS + END,
        OPEN + INVOKE + CITY.replace("</｜DSML｜parameter>", "") + DAYS + END + CLOSE,
        OPEN + INVOKE + CITY.replace("</｜DSML｜parameter>\n", "") + DAYS + END + CLOSE,
        OPEN + INVOKE + CITY + DAYS.replace("</｜DSML｜parameter>", "") + END + CLOSE,
        OPEN + INVOKE + CITY + DAYS.replace("</｜DSML｜parameter>", "") + CLOSE,
        OPEN + INVOKE + CITY.replace(' string="true"', "") + DAYS.replace(' string="false"', "") + END + CLOSE,
        OPEN + INVOKE + CITY + DAYS.replace("false", "no") + END + CLOSE,
        OPEN + "Calling." + INVOKE + "(" + CITY + "," + DAYS + ")" + END + "and" + CLOSE,
    ],
)
def test_slips_are_repaired(text: str) -> None:
    assert said(read("Sure." + text)) == ("", "Sure.", WHOLE)
    assert said(read("Sure." + text, ids=False)) == ("", "Sure.", WHOLE)


@pytest.mark.parametrize(
    "text",
    [
        INVOKE + CITY + DAYS + END,
        OPEN + INVOKE + CITY + DAYS + CLOSE,
        OPEN + INVOKE + CITY + DAYS + END,
        OPEN + INVOKE + CITY.replace("</｜DSML｜parameter>", "") + DAYS + END + CLOSE,
        OPEN + INVOKE + CITY.replace(' string="true"', "") + END + CLOSE,
        OPEN + "Calling." + INVOKE + CITY + END + CLOSE,
        OPEN + '<｜DSML｜invoke name="">\n' + CITY + END + CLOSE,
        OPEN + CLOSE,
    ],
)
def test_a_strict_reader_cuts_what_is_not_exactly_right(text: str) -> None:
    assert "tool_cut" in [event.kind for event in read(text, repair=False)]


def test_a_strict_reader_takes_the_calls_before_the_one_that_is_cut() -> None:
    events = read(OPEN + INVOKE + CITY + END + INVOKE + DAYS, repair=False)
    assert [event.kind for event in events if event.kind in ("tool_end", "tool_cut")] == ["tool_end", "tool_cut"]


@pytest.mark.parametrize("cut", [len(INVOKE), len(INVOKE + CITY) - 9, len(INVOKE + CITY), len(INVOKE + CITY + DAYS)])
def test_a_call_that_is_cut_is_shown_as_it_was_written(cut: int) -> None:
    written = OPEN + (INVOKE + CITY + DAYS + END)[:cut]
    assert said(read("Almost." + written)) == ("", "Almost." + written, [])


def test_a_block_ends_reasoning_but_a_tag_quoted_there_does_not() -> None:
    call = OPEN + INVOKE + CITY + DAYS + END + CLOSE
    assert said(read("hm" + call, "reasoning")) == ("hm", "", WHOLE)
    quoted = 'Maybe <｜DSML｜invoke name="now">?'
    assert said(read(quoted + "</think>" + call, "reasoning")) == (quoted, "", WHOLE)
    assert said(read(quoted, "reasoning")) == (quoted, "", [])


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ('name="days" string="false">three', "three"),
        ('name="days" string="false"> 3 ', 3),
        ('name="days" string="true">3', "3"),
        ('name="tags" string="false">["a", "b"', '["a", "b"'),
        ('name="tags" string="false">NaN', "NaN"),
        ('name="tags">["a", 1]', ["a", 1]),
        ('name="other">3', "3"),
        ('name="other" string="false">{"a": 1.5}', {"a": 1.5}),
        ('name="city">3', "3"),
    ],
)
def test_the_attribute_says_what_a_value_is_else_the_schema(parameter: str, value: Any) -> None:
    text = f"{OPEN}{INVOKE}<｜DSML｜parameter {parameter}</｜DSML｜parameter>\n{END}{CLOSE}"
    ((_, arguments),) = said(read(text))[2]
    assert list(arguments.values()) == [value]


def test_tags_spelled_by_ordinary_tokens_are_text() -> None:
    text = "Write" + OPEN + INVOKE + "\n" + END + CLOSE + " here."
    parser = OutputParser(output(), "content", IDS)
    events = [event for char in text for event in parser.feed(char)] + parser.finish()
    assert said(events) == ("", text, [])


def test_a_spelled_tag_does_not_end_a_value() -> None:
    parser = OutputParser(output(), "content", IDS)
    events: list[Event] = []
    tags = f'{OPEN}{INVOKE}<｜DSML｜parameter name="city" string="true">'.split("｜DSML｜")
    for number, tag in enumerate(tags):
        events += parser.feed("｜DSML｜", 1) if number else []
        events += parser.feed(tag)
    events += parser.feed("a</｜DSML｜parameter>b</") + parser.feed("｜DSML｜", 1) + parser.feed("parameter>\n</")
    events += parser.feed("｜DSML｜", 1) + parser.feed("invoke>") + parser.finish()
    assert said(events)[2] == [("look", {"city": "a</｜DSML｜parameter>b"})]


def test_a_block_is_known_by_its_variants_name() -> None:
    text = "Sure." + OPEN + INVOKE + CITY + END + CLOSE
    parser = OutputParser(output(V3_2), "content")
    assert said(parser.feed(text.replace("tool_calls", "function_calls")) + parser.finish())[2] == [
        ("look", {"city": "Paris"})
    ]


@pytest.mark.parametrize(
    "format",
    [
        output(V3_2_EXP, talk=Conversation(())),
        output(V4, TurnOptions(tool_choice=ToolChoice("none"))),
        output(V3_2, talk=Conversation(())),
    ],
)
def test_without_active_tools_there_are_no_calls(format: OutputFormat) -> None:
    assert format == PLAIN
    parser = OutputParser(format, "reasoning")
    assert said(parser.feed("hm</think>A" + OPEN) + parser.finish()) == ("hm", "A" + OPEN, [])


@pytest.mark.parametrize(("tail", "state"), [("<think>", "reasoning"), ("</think>", "content"), ("", "content")])
def test_the_prompt_says_where_an_answer_begins(tail: str, state: str) -> None:
    assert output().state_after(f"<｜Assistant｜>{tail}", TurnOptions()) == state


def test_turns_end_at_the_end_of_sentence() -> None:
    assert DEEPSEEK.stops(V4, TurnOptions()).specials == ("<｜end▁of▁sentence｜>",)


@pytest.mark.parametrize(("variant", "top_p"), [(V4, 1.0), (V3_2, 0.95)])
def test_sampling_is_what_the_makers_recommend(variant: Variant, top_p: float) -> None:
    sampling = DEEPSEEK.sampling(variant, TurnOptions())
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, top_p, 0)
