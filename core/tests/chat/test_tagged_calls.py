"""Calls in tags: what a table of the plain tags reads, and what each action of a family's own rows adds."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.answer import Answer
from colibri.chat.arguments import ArgumentTypes
from colibri.chat.conversation import Tool
from colibri.chat.output import TEXT, OutputFormat, OutputParser
from colibri.chat.tagged_calls import CALL, CALL_END, KINDS, PARAMETER, PARAMETER_END, TAGS, TaggedCalls
from colibri.testing.conformance import check_events

SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "point": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
    },
    "$defs": {"Point": {"type": "object"}},
}
TYPES = ArgumentTypes.by_tool([Tool("look", {}, SCHEMA)])
IDS = {CALL: 1, CALL_END: 2}
PLAIN = {("content", CALL): ("call", "open"), ("between", CALL): ("call", "open"), ("between", TEXT): ("content",), **TAGS}

Moves = dict[tuple[str, str], tuple[str, ...]]

#: What families may add: values that the next parameter ends, or only one that the tool has and that was not given yet.
ENDED_BY_ANY: Moves = {("value", PARAMETER): ("key", "valued", "mended", "begun")}
ENDED_BY_KNOWN: Moves = {
    ("value", PARAMETER): ("key", "begun"),
    ("key", PARAMETER_END): ("inside", "unkeyed", "valued"),
}
WRITTEN: Moves = {("inside", "</function>"): ("ended", "ended", "written")}


def parser(rows: Moves | None = None, *, by_id: bool = False, repair: bool = True, **options: Any) -> OutputParser:
    format = OutputFormat({**PLAIN, **(rows or {})}, {"between": "drop", **KINDS}, calls=TaggedCalls(TYPES, **options))
    return OutputParser(format, specials=IDS if by_id else None, repair=repair)


def read(text: str, rows: Moves | None = None, **options: Any) -> Answer:
    reader = parser(rows, **options)
    events = [*reader.feed(text), *reader.finish()]
    check_events(events, text)
    return Answer(events)


def calls(text: str, rows: Moves | None = None, **options: Any) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in read(text, rows, **options).made()]


def call(inside: str, name: str = "look") -> str:
    return f"{CALL}<function={name}>{inside}</function>{CALL_END}"


def parameter(name: str, value: str) -> str:
    return f"{PARAMETER}{name}>{value}{PARAMETER_END}"


@pytest.mark.parametrize(
    ("rows", "ends"),
    [({}, [[], [("tool_args", "}"), ("tool_end", "")]]), (WRITTEN, [[("tool_args", "}")], [("tool_end", "")]])],
)
def test_strings_stream_as_they_come_and_other_values_when_they_are_whole(rows: Moves, ends: list[Any]) -> None:
    reader = parser(rows, by_id=True)
    pieces = [CALL, "<function=lo", "ok>", "<parameter=text>", 'a "', "b</para", "meter>", "<parameter=count>", " 1", "2"]
    pieces += ["</parameter>", "</function>", CALL_END]
    assert [[(event.kind, event.text) for event in reader.feed(piece, IDS.get(piece))] for piece in pieces] == [
        [],
        [],
        [("tool_start", "look")],
        [("tool_args", '{"text": "')],
        [("tool_args", 'a \\"')],
        [("tool_args", "b")],
        [("tool_args", '"')],
        [],
        [],
        [],
        [("tool_args", ', "count": 12')],
        *ends,
    ]


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("text", " a &lt; <b>\n</function></tool_call><tool_call>", " a &lt; <b>\n</function></tool_call><tool_call>"),
        ("text", "", ""),
        ("count", " 7 ", 7),
        ("count", "seven", "seven"),
        ("flag", "True", True),
        ("point", '{"a":\n[1]}', {"a": [1]}),
        ("point", "null", None),
        ("other", "7", "7"),
    ],
)
def test_values_are_verbatim_and_typed_by_the_schema(name: str, value: str, read: object) -> None:
    assert calls(call(parameter(name, value)), repair=False) == [("look", {name: read})]
    assert calls(call(parameter(name, value), "undeclared"), repair=False) == [("undeclared", {name: value})]


@pytest.mark.parametrize(
    "text",
    [
        f"{CALL}<function=look>{parameter('text', 'x')}{CALL_END}",
        f"{CALL}<function=look>{parameter('text', 'x')}</function>",
        f"{CALL}<function=look>{parameter('text', 'x')}</function></tool_c",
    ],
)
def test_one_of_the_last_tags_may_be_left_out_unless_calls_must_be_exact(text: str) -> None:
    assert calls(text) == [("look", {"text": "x"})]
    assert read(text, repair=False).shown == text


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"{CALL} and then the name.",
        f"{CALL}<function=look",
        f"{CALL}{CALL_END}",
        call("", ""),
        call("", "a\nb"),
        f"{CALL}<function=look>{parameter('text', 'x')}",
        f"{CALL}<function=look>{PARAMETER}text>half</para",
        f"{CALL}prose<function=look></function>{CALL_END}",
        f"{CALL}<function=look></function>prose{CALL_END}",
        call("prose"),
        call(parameter("text", "x") + "prose" + parameter("count", "1")),
        call(parameter("", "x")),
        call('{"text": "x"}'),
    ],
)
def test_what_is_no_call_is_shown_as_it_was_written(text: str) -> None:
    for rows in ({}, ENDED_BY_ANY, WRITTEN):
        answer = read(text, rows)
        assert (answer.shown, answer.made()) == (text, [])


def test_a_value_without_its_end_may_end_at_the_next_parameter() -> None:
    text = call(f"{PARAMETER}text>x{PARAMETER}count>1{PARAMETER_END}")
    for rows in (ENDED_BY_ANY, ENDED_BY_KNOWN):
        assert calls(text, rows) == [("look", {"text": "x", "count": 1})]
        assert read(text, rows, repair=False).shown == text
    assert calls(text, repair=False) == [("look", {"text": f"x{PARAMETER}count>1"})]


@pytest.mark.parametrize("value", ["a <parameter=x> b", "a <parameter=text>", "a <parameter=", "a <parameter=count"])
def test_what_only_looks_like_a_parameter_can_be_part_of_a_value(value: str) -> None:
    text = call(parameter("text", value))
    assert calls(text, ENDED_BY_KNOWN, repair=False) == [("look", {"text": value})]
    other = value.replace("text", "point")
    assert calls(call(parameter("point", other)), ENDED_BY_KNOWN) == [("look", {"point": other})]


def test_a_parameter_may_count_once() -> None:
    text = call(parameter("text", "x") + parameter("text", "y"))
    assert calls(text, once=True) == [("look", {"text": "x"})]
    assert read(text, once=True, repair=False).shown == text
    assert read(text).made() == [("look", '{"text": "x", "text": "y"}')]


def test_an_object_may_stand_for_all_parameters() -> None:
    assert calls(call(' {"text": "x"}\n'), objects=True) == [("look", {"text": "x"})]
    for inside in ("[1]", '{"text": ', '{"a": 1}{}', '{"a": 1}' + parameter("text", "x")):
        assert read(call(inside), objects=True).shown == call(inside)
    assert read(call('{"text": "x"}'), objects=True, repair=False).shown == call('{"text": "x"}')


def test_names_and_keys_are_those_that_a_family_can_read() -> None:
    words = re.compile(r"\w+")
    assert calls(call(parameter("a b", "x"), "see it")) == [("see it", {"a b": "x"})]
    assert read(call(parameter("a b", "x")), keys=words).shown == call(parameter("a b", "x"))
    assert read(call("", "see it"), names=words).shown == call("", "see it")


def test_a_broken_call_does_not_take_the_next_with_it() -> None:
    assert calls(f"{CALL}<function={CALL_END}{call('')}") == [("look", {})]
    assert calls(f"{CALL}{call('')}") == [("look", {})]
    assert calls(f"{CALL}<function=look></function>{call('')}") == [("look", {}), ("look", {})]


TOKENS = [*sorted({marker for _, marker in TAGS}), "look", "text", "count", "x", "1", "\n", " ", "{", "}", "</func"]


@given(
    st.lists(st.sampled_from(TOKENS), max_size=16),
    st.sampled_from([{}, ENDED_BY_ANY, {**ENDED_BY_KNOWN, **WRITTEN}]),
    st.fixed_dictionaries(dict.fromkeys(("by_id", "repair", "once", "objects"), st.booleans())),
)
def test_any_output_is_told_the_same_in_pieces(tokens: list[str], rows: Moves, options: dict[str, bool]) -> None:
    answers = []
    for cut in (False, True):
        reader = parser(rows, **options)
        events = []
        for token in tokens:
            control = IDS.get(token) if options["by_id"] else None
            for piece in token if cut and control is None else [token]:
                events += reader.feed(piece, control)
        events += reader.finish()
        check_events(events, "".join(tokens))
        answer = Answer(events)
        answers.append((answer.shown, {i: (name, "".join(text)) for i, (name, text) in answer.calls.items()}, answer.whole))
    assert answers[0] == answers[1]
