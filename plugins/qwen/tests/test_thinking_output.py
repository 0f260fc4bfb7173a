"""How the answers of models that think arrive: what streams, what is repaired, and what is no call."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.answer import Answer
from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.events import Event
from colibri.chat.output import OutputParser
from colibri.testing.conformance import check_events
from colibri_qwen import Qwen
from colibri_qwen.variants import QWEN3_6

SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "maybe": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
    },
    "$defs": {"Point": {"type": "object"}},
}
TALK = Conversation((), (Tool("look", {}, SCHEMA),))
THINKING = Qwen().output(QWEN3_6, TALK, TurnOptions())
IDS = {"<tool_call>": 1, "</tool_call>": 2, "<think>": 3, "</think>": 4}
HEAD, TAIL = "<tool_call>\n<function=look>\n", "</function>\n</tool_call>"


def parser(state: str = "content", *, by_id: bool = False, repair: bool = True, talk: Conversation = TALK) -> OutputParser:
    format = THINKING if talk is TALK else Qwen().output(QWEN3_6, talk, TurnOptions())
    return OutputParser(format, state, IDS if by_id else None, repair=repair)


def read(text: str, state: str = "content", *, by_id: bool = False, **options: Any) -> list[Event]:
    reader = parser(state, by_id=by_id, **options)
    pieces = re.split(f"({'|'.join(IDS)})", text) if by_id else [text]
    events = [event for piece in pieces for event in reader.feed(piece, IDS.get(piece))] + reader.finish()
    check_events(events, text)
    return events


def calls(text: str, **options: Any) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in Answer(read(text, **options)).made()]


def parameter(name: str, value: str) -> str:
    return f"<parameter={name}>\n{value}\n</parameter>\n"


def test_strings_stream_as_they_come_and_other_values_when_they_are_whole() -> None:
    reader = parser(by_id=True)
    pieces = [
        "<tool_call>",
        "\n<function",
        "=lo",
        "ok>\n",
        "<parameter=text",
        ">\n",
        'a "',
        "b\n",
        "c",
        "\n</para",
        "meter>",
    ]
    pieces += ["\n<parameter=count>", "\n1", "2\n", "</parameter>", "\n</function>\n", "</tool_call>"]
    seen = [[(event.kind, event.text) for event in reader.feed(piece, IDS.get(piece))] for piece in pieces]
    assert seen == [
        [],
        [],
        [],
        [("tool_start", "look")],
        [],
        [("tool_args", '{"text": "')],
        [("tool_args", 'a \\"')],
        [("tool_args", "b")],
        [("tool_args", "\\nc")],
        [],
        [("tool_args", '"')],
        [],
        [],
        [],
        [("tool_args", ', "count": 12')],
        [],
        [("tool_args", "}"), ("tool_end", "")],
    ]


def test_prose_streams_at_once_and_reasoning_ends_at_its_tag_or_at_a_call() -> None:
    reader = parser("reasoning", by_id=True)
    pieces = ["Hm", " <", "b>", "\n", "</think>", "\n\n", "A < b", "\n", "<tool_call>"]
    seen = [[(event.kind, event.text) for event in reader.feed(piece, IDS.get(piece))] for piece in pieces]
    shown = [event for events in seen for event in events if event[0] != "swallowed"]
    assert shown == [("reasoning", "Hm"), ("reasoning", " <"), ("reasoning", "b>"), ("content", "A < b")]
    events = read(f"Hm\n\n{HEAD}{TAIL}", "reasoning")
    assert [event.text for event in events if event.kind == "reasoning"] == ["Hm"]
    assert len(Answer(events).whole) == 1


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("\n x \n", "\n x \n"),
        ("", ""),
        ("\r", "\r"),
        ("</function>", "</function>"),
        ("<tool_call>\n<function=f>", "<tool_call>\n<function=f>"),
        ("</tool_call>", "</tool_call>"),
        ("&lt;b&gt; \\n", "&lt;b&gt; \\n"),
    ],
)
def test_a_string_is_all_that_stands_between_its_line_breaks(value: str, read: str) -> None:
    for by_id in (False, True):
        assert calls(HEAD + parameter("text", value) + TAIL, by_id=by_id) == [("look", {"text": read})]


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("count", " 7 ", 7),
        ("count", "seven", "seven"),
        ("flag", "True", True),
        ("maybe", '{"a":\n[1]}', {"a": [1]}),
        ("maybe", "null", None),
        ("other", "7", "7"),
    ],
)
def test_the_schema_says_what_type_a_value_has(name: str, value: str, read: object) -> None:
    assert calls(HEAD + parameter(name, value) + TAIL) == [("look", {name: read})]
    undeclared = calls(HEAD + parameter(name, value) + TAIL, talk=Conversation(()))
    assert undeclared == [("look", {name: value})]


@pytest.mark.parametrize(
    "block",
    [
        f"{HEAD}<parameter=text>\nx\n<parameter=count>\n1\n</parameter>\n{TAIL}",
        f"{HEAD}<parameter=text>x<parameter=count>1</parameter>{TAIL}",
        f"{HEAD}{parameter('text', 'x')}<parameter=count>\n1\n{TAIL}",
        f"{HEAD}{parameter('text', 'x')}{parameter('count', '1')}</tool_call>",
        f"{HEAD}{parameter('text', 'x')}{parameter('count', '1')}</function>",
        f"{HEAD}{parameter('text', 'x')}{parameter('count', '1')}</function>\n</tool_c",
    ],
)
def test_tags_left_out_are_repaired_unless_calls_must_be_exact(block: str) -> None:
    assert calls(block) == [("look", {"text": "x", "count": 1})]
    assert calls(block, repair=False) == []
    assert Answer(read(block, repair=False)).shown == block


def test_exact_calls_are_taken_however_blanks_stand_between_their_tags() -> None:
    inline = "<tool_call><function=look><parameter=text>x</parameter></function></tool_call>"
    assert calls(inline, repair=False) == [("look", {"text": "x"})]
    assert calls(HEAD + parameter("text", "x") + TAIL, repair=False) == [("look", {"text": "x"})]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call> and then the name.",
        "<tool_call>\n<function=look",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=a\nb>\n</function>\n</tool_call>",
        f"{HEAD}<parameter=text",
        f"{HEAD}<parameter=text>\nhalf a val",
        f"{HEAD}<parameter=text>\nhalf\n</para",
        f"{HEAD}{parameter('text', 'x')}",
        f"{HEAD}<parameter=>\nx\n</parameter>\n{TAIL}",
        f"{HEAD}<parameter=text</tool_call>",
        f"{HEAD}prose{TAIL}",
        f"{HEAD}</function>prose</tool_call>",
        "<tool_call>\n</tool_call>",
    ],
)
def test_what_is_no_call_is_shown_as_it_was_written(text: str) -> None:
    for by_id in (False, True):
        events = read(text, by_id=by_id)
        assert Answer(events).shown == text
        assert Answer(events).made() == []


def test_a_broken_call_does_not_take_the_next_with_it() -> None:
    assert calls(f"<tool_call>\n<function=\n</tool_call>\n{HEAD}{TAIL}") == [("look", {})]
    assert calls(f"<tool_call>\n{HEAD}{TAIL}") == [("look", {})]
    assert calls(f"{HEAD}</function>\n{HEAD}{TAIL}") == [("look", {}), ("look", {})]


def test_texts_before_and_behind_calls_stay_apart() -> None:
    assert Answer(read(f"A.\n\n{HEAD}{TAIL}\n{HEAD}{TAIL}\n\nB.")).shown == "A.\n\nB."
    assert Answer(read(f"{HEAD}{TAIL}\n\nB.\n{HEAD}{TAIL}\n")).shown.strip() == "B."


def test_where_no_call_may_be_made_tags_are_text() -> None:
    format = Qwen().output(QWEN3_6, TALK, TurnOptions(tool_choice=ToolChoice("none")))
    reader = OutputParser(format, "reasoning", IDS)
    events = [event for piece in ("a", "</think>", "<tool_call>") for event in reader.feed(piece, IDS.get(piece))]
    assert [(event.kind, event.text) for event in events if event.text] == [("reasoning", "a"), ("content", "<tool_call>")]


MARKERS = sorted({marker for _, marker in THINKING.moves if marker} - set(IDS))
TOKENS = [*IDS, *MARKERS, "look", "text", "count", "x", "1", "\n", " ", "</func"]


@given(st.lists(st.sampled_from(TOKENS), max_size=16), st.booleans(), st.booleans())
def test_any_output_is_told_the_same_in_pieces(tokens: list[str], by_id: bool, repair: bool) -> None:
    whole, cut = parser(by_id=by_id, repair=repair), parser(by_id=by_id, repair=repair)
    seen: list[list[Event]] = [[], []]
    for token in tokens:
        control = IDS.get(token) if by_id else None
        seen[0] += whole.feed(token, control)
        for char in [token] if control else token:
            seen[1] += cut.feed(char, control)
    for events, reader in zip(seen, (whole, cut), strict=True):
        events += reader.finish()
        check_events(events, "".join(tokens))
    a, b = (Answer(events) for events in seen)
    assert _joined(a) == _joined(b)


def _joined(answer: Answer) -> Any:
    """An answer without the seams of its fragments."""
    begun = {call: (name, "".join(arguments)) for call, (name, arguments) in answer.calls.items()}
    return answer.shown, answer.reasoning, begun, answer.made()
