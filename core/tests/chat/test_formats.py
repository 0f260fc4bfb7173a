"""Formats of very different shapes, all as tables: pairs of tags, nested tags, typed elements, tagged messages.

They stand for what families may bring; each is read whole, cut, and by token ids.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from colibri.chat.calls import Guess, JsonCalls, Part
from colibri.chat.output import TEXT, OutputFormat, OutputParser, merged
from colibri.testing.conformance import check_events

SCHEMA = {"city": "string", "days": "integer", "flag": "boolean", "list": "array", "text": "string"}


class FieldCalls(Struct, frozen=True):
    """Calls whose name, keys and values are fields. `typed` values say themselves whether they are strings; `last`
    calls without a closing marker are kept if they hold a whole pair."""

    typed: str = ""
    attribute: str = ""

    def reader(self, repair: bool) -> FieldCall:
        return FieldCall(self, repair)


class FieldCall:
    def __init__(self, syntax: FieldCalls, repair: bool) -> None:
        self.syntax, self.repair = syntax, repair
        self.field: dict[str, str] = {}
        self.name = ""
        self.count = 0
        self.key = ""
        self.string: bool | None = None
        self.sound = True

    def read(self, state: str, text: str) -> tuple[int, list[Part]]:
        if state == "value" and self.string and self.sound:
            return len(text), [Part("tool_args", json.dumps(text)[1:-1], len(text))]
        self.field[state] = self.field.get(state, "") + text
        return len(text), []

    def act(self, action: str) -> list[Part]:
        self.sound &= (action == "name") == (not self.name) and (action == "value") == bool(self.key)
        if not self.sound:
            return []
        if action == "name":
            self.name = self._attribute("name", self.field.pop("name", ""))
            return [Part("tool_start", self.name), Part("tool_args", "{")]
        if action == "key":
            raw = self.field.pop("key", "")
            self.key = self._attribute("key", raw) or self._attribute("name", raw)
            if self.syntax.typed:
                kind = re.search(rf'{self.syntax.typed}="([^"]*)"', raw)
                self.string = kind is None or kind[1] in ("true", "string")
            else:
                self.string = SCHEMA.get(self.key, "string") == "string"
            comma = ", " if self.count else ""
            self.count += 1
            return [Part("tool_args", f"{comma}{json.dumps(self.key)}: " + ('"' if self.string else ""))]
        self.key = ""
        if self.string:
            return [Part("tool_args", '"')]
        return [Part("tool_args", self._value(self.field.pop("value", "")))]

    def close(self, marked: bool) -> list[Part]:
        if not self.sound or not self.name or self.key or not (marked or (self.repair and self.count)):
            return [Part("tool_cut")]
        return [Part("tool_args", "}"), Part("tool_end")]

    def _attribute(self, name: str, raw: str) -> str:
        if not self.syntax.attribute:
            return raw.strip()
        found = re.search(rf'(?:{name}|{self.syntax.attribute})="([^"]*)"', raw)
        return found[1].replace("&quot;", '"').replace("&amp;", "&") if found else ""

    def _value(self, raw: str) -> str:
        try:
            return json.dumps(json.loads(raw))
        except ValueError:
            return json.dumps(raw)


class Word(Struct, frozen=True):
    """A guess that text of one word may be a name."""

    def guess(self) -> Guess:
        return WordGuess()


class WordGuess:
    cut = False

    def __init__(self) -> None:
        self.text = ""

    def read(self, text: str) -> bool:
        self.text += text
        return re.fullmatch(r"[\w.-]{0,64}", self.text) is not None

    def finish(self) -> None:
        return None


FIELDS = {"name": "field", "key": "field", "gap": "field", "value": "field", "between": "drop", "after": "drop"}

PAIRS = OutputFormat(
    moves={
        ("reasoning", "</think>"): ("content",),
        ("reasoning", "<tool_call>"): ("name", "open"),
        ("content", "<tool_call>"): ("name", "open"),
        ("name", "<arg_key>"): ("key", "name"),
        ("name", "</tool_call>"): ("between", "name", "close"),
        ("key", "</arg_key>"): ("gap", "key"),
        ("gap", "<arg_value>"): ("value",),
        ("gap", "<arg_key>"): ("key",),
        ("gap", "</tool_call>"): ("between", "close"),
        ("value", "</arg_value>"): ("gap", "value"),
        ("between", "<tool_call>"): ("name", "open"),
        ("between", TEXT): ("content",),
    },
    kinds=FIELDS,
    start="content",
    starts=(("<think>", "reasoning"),),
    trim=frozenset({"content"}),
    calls=FieldCalls(),
)

LINES = OutputFormat(
    moves={
        ("reasoning", "</think>"): ("content",),
        ("reasoning", "<tool_call>"): ("gap", "open"),
        ("content", "<tool_call>"): ("gap", "open"),
        ("between", "<tool_call>"): ("gap", "open"),
        ("gap", "<tool_call>"): ("gap", "open"),
        ("gap", "<function="): ("name",),
        ("name", ">"): ("gap", "name"),
        ("gap", "<parameter="): ("key",),
        ("key", ">\n"): ("value", "key"),
        ("key", ">"): ("value", "key"),
        ("value", "\n</parameter>"): ("gap", "value"),
        ("value", "</parameter>"): ("gap", "value"),
        ("value", "\n<parameter="): ("key", "value"),
        ("gap", "</function>"): ("gap",),
        ("gap", "</tool_call>"): ("between", "close"),
        ("between", TEXT): ("content",),
    },
    kinds=FIELDS,
    start="content",
    starts=(("<think>\n", "reasoning"),),
    trim=frozenset({"content", "reasoning"}),
    calls=FieldCalls(),
)

UNDECIDED = OutputFormat(
    moves={
        **{move: to for move, to in LINES.moves.items() if move != ("reasoning", "<tool_call>")},
        ("start", "<think>"): ("reasoning",),
        ("start", TEXT): ("content",),
    },
    kinds={**FIELDS, "start": "drop"},
    start="start",
    calls=FieldCalls(),
)

MARKED = OutputFormat(
    moves={
        ("reasoning", "</think>"): ("content",),
        ("content", "\n\n<|M|calls>"): ("list",),
        ("content", "<|M|calls>"): ("list",),
        ("list", "<|M|invoke"): ("name", "open"),
        ("name", ">"): ("gap", "name"),
        ("gap", "<|M|parameter"): ("key",),
        ("key", ">"): ("value", "key"),
        ("value", "</|M|parameter>"): ("gap", "value"),
        ("value", "<|M|parameter"): ("key", "value"),
        ("gap", "</|M|invoke>"): ("list", "close"),
        ("gap", "</|M|calls>"): ("after", "close"),
        ("list", "</|M|calls>"): ("after",),
    },
    kinds={**FIELDS, "list": "drop"},
    start="content",
    starts=(("<think>", "reasoning"),),
    calls=FieldCalls(typed="string", attribute="name"),
)

ELEMENTS = OutputFormat(
    moves={
        ("first", "<|open|>response<|sep|>"): ("content",),
        ("first", "<|close|>think<|sep|>"): ("between",),
        ("first", TEXT): ("reasoning",),
        ("reasoning", "<|close|>think<|sep|>"): ("between",),
        ("between", "<|open|>response<|sep|>"): ("content",),
        ("between", "<|open|>tools<|sep|>"): ("list",),
        ("content", "<|close|>response<|sep|>"): ("between",),
        ("list", "<|open|>call"): ("name", "open"),
        ("name", "<|sep|>"): ("gap", "name"),
        ("gap", "<|open|>argument"): ("key",),
        ("key", "<|sep|>"): ("value", "key"),
        ("value", "<|close|>argument<|sep|>"): ("gap", "value"),
        ("gap", "<|close|>call<|sep|>"): ("list", "close"),
        ("list", "<|close|>tools<|sep|>"): ("between",),
    },
    kinds={**FIELDS, "first": "drop", "list": "drop"},
    start="between",
    starts=(("think<|sep|>", "first"), ("response<|sep|>", "content")),
    calls=FieldCalls(typed="type", attribute="tool"),
)

MESSAGES = OutputFormat(
    moves={
        **{(state, "<|text|>"): ("content",) for state in ("opener", "between")},
        **{(state, "<|thinking|>"): ("reasoning",) for state in ("opener", "between")},
        ("opener", "<|call|>"): ("body", "open"),
        ("opener", "<|end|>"): ("between", "text"),
        ("opener", TEXT): ("content",),
        ("content", "<|end|>"): ("between",),
        ("reasoning", "<|end|>"): ("between",),
        ("body", "<|end|>"): ("between", "close"),
        ("between", "<|model|>"): ("opener",),
        ("between", TEXT): ("content",),
    },
    kinds={"opener": "guess", "body": "body", "between": "drop"},
    start="opener",
    calls=JsonCalls(arguments="args"),
    guess=Word(),
)

Call = tuple[str, dict[str, Any]]
CITY: Call = ("f", {"city": "Paris"})

#: format, how the prompt ended, output, content, reasoning, calls
CASES: list[tuple[OutputFormat, str, str, str, str, list[Call]]] = [
    (PAIRS, "<think>", "why</think>answer", "answer", "why", []),
    (PAIRS, "<think>", "</think>answer", "answer", "", []),
    (PAIRS, "", "a </b> <tool> 1 <2", "a </b> <tool> 1 <2", "", []),
    (PAIRS, "", "go\n<tool_call>f</tool_call>\n<tool_call>g</tool_call>", "go", "", [("f", {}), ("g", {})]),
    (
        PAIRS,
        "<think>",
        "hm<tool_call>f<arg_key>city</arg_key>\n<arg_value> <arg_key>é </arg_value><arg_key>days</arg_key>"
        "<arg_value> 2 </arg_value></tool_call> ok",
        "ok",
        "hm",
        [("f", {"city": " <arg_key>é ", "days": 2})],
    ),
    (PAIRS, "", "<tool_call>f<arg_key>days</arg_key><arg_value>many</arg_value></tool_", "", "", [("f", {"days": "many"})]),
    (PAIRS, "", "write <tool_call> and", "write <tool_call> and", "", []),
    (
        LINES,
        "<think>\n",
        "why\n</think>\n\n Sure:\n\n<tool_call>\n<function=f>\n<parameter=city>\n\nA\n\n</parameter>\n"
        "<parameter=list>[1]</parameter>\n</function>\n</tool_call>\n",
        "Sure:",
        "why",
        [("f", {"city": "\nA\n", "list": [1]})],
    ),
    (
        LINES,
        "",
        "<tool_call>\n<function=f>\n<parameter=city>\nA\n<parameter=text>\n<tool_call> </param\n</parameter>\n</function>\n"
        "<tool_call><function=g></function></tool_call>",
        "",
        "",
        [("f", {"city": "A", "text": "<tool_call> </param"}), ("g", {})],
    ),
    (LINES, "", "  blanks at the ends stay \n", "  blanks at the ends stay \n", "", []),
    (UNDECIDED, "", "<think>why</think>answer", "answer", "why", []),
    (UNDECIDED, "", "answer <think>", "answer <think>", "", []),
    (UNDECIDED, "", "\n<think>\n</think>x", "x", "\n", []),
    (
        MARKED,
        "<think>",
        'no <|M|invoke name="g"> here</think>pre\n\n<|M|calls>\n<|M|invoke name="f">\n<|M|parameter name="city" '
        'string="true">Paris</|M|parameter>\n<|M|parameter name="days" string="false">7</|M|parameter>\n</|M|invoke>\n'
        '<|M|invoke name="f"><|M|parameter name="text">a<b><|M|parameter name="city" string="true">x</|M|parameter>'
        "</|M|calls>z",
        "pre",
        'no <|M|invoke name="g"> here',
        [("f", {"city": "Paris", "days": 7}), ("f", {"text": "a<b>", "city": "x"})],
    ),
    (
        ELEMENTS,
        "<|open|>think<|sep|>",
        "why <|open|>response<|sep|><|close|>think<|sep|><|open|>response<|sep|>Yes<|close|>response<|sep|>"
        '<|open|>tools<|sep|><|open|>call tool="a&quot;b" index="1"<|sep|><|open|>argument key="x" type="number"<|sep|>'
        '1.5<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool="g" index="2"<|sep|><|close|>call<|sep|>',
        "Yes",
        "why <|open|>response<|sep|>",
        [('a"b', {"x": 1.5}), ("g", {})],
    ),
    (
        ELEMENTS,
        "<|open|>think<|sep|>",
        "<|open|>response<|sep|>hi<|close|>response<|sep|><|close|>message<|sep|>",
        "hi",
        "",
        [],
    ),
    (ELEMENTS, "<|open|>response<|sep|>", "answer<|clo", "answer<|clo", "", []),
    (MESSAGES, "", "<|thinking|>one<|end|><|model|><|text|>mid<|end|><|thinking|>two<|end|>", "mid", "onetwo", []),
    (MESSAGES, "", "plain answer<|end|>", "plain answer", "", []),
    (MESSAGES, "", "word<|end|>", "word", "", []),
    (MESSAGES, "", "word", "word", "", []),
    (
        MESSAGES,
        "",
        'now<|call|>{"name":"now"}<|end|><|model|>add<|call|>{"name":"add","args":{"x":"a}<|end|>"}}<|end|>',
        "",
        "",
        [("now", {}), ("add", {"x": "a}<|end|>"})],
    ),
    (MESSAGES, "", '<|text|>{"name":"now","args":{}}<|end|>', '{"name":"now","args":{}}', "", []),
]

SPECIALS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "|M|", "<|open|>", "<|close|>")
SPECIALS += ("<|sep|>", "<|text|>", "<|thinking|>", "<|call|>", "<|end|>", "<|model|>")
IDS = {spelling: n for n, spelling in enumerate(SPECIALS)}


def read(format: OutputFormat, tail: str, pieces: list[str], *, ids: bool = False) -> list[Any]:
    state = next((state for end, state in format.starts if tail.endswith(end)), format.start)
    parser = OutputParser(format, state, IDS if ids else None)
    events = [event for piece in pieces for event in parser.feed(piece, IDS.get(piece) if ids else None)]
    return merged([*events, *parser.finish()])


def meaning(events: list[Any]) -> tuple[str, str, list[Call]]:
    def text(*kinds: str) -> str:
        return "".join(event.text for event in events if event.kind in kinds)

    calls = []
    for start in (event for event in events if event.kind == "tool_start"):
        arguments = "".join(event.text for event in events if event.kind == "tool_args" and event.call == start.call)
        calls.append((start.text, json.loads(arguments)))
    return text("content", "tool_cut"), text("reasoning"), calls


def tokens(text: str) -> list[str]:
    return [token for token in re.split("(" + "|".join(map(re.escape, SPECIALS)) + ")", text) if token]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("ids", [False, True])
def test_a_table_reads_the_format(case: int, ids: bool) -> None:
    format, tail, output, content, reasoning, calls = CASES[case]
    events = read(format, tail, tokens(output) if ids else [output], ids=ids)
    assert meaning(events) == (content, reasoning, calls)
    check_events(events, output)
    if not ids:
        for size in (1, 2, 3, 7):
            assert read(format, tail, [output[i : i + size] for i in range(0, len(output), size)]) == events


# All markers of these hold control tokens.
SPECIAL_ONLY = [case[:3] for case in CASES if case[0] in (PAIRS, MARKED, ELEMENTS, MESSAGES)]


@pytest.mark.parametrize(("format", "tail", "output"), SPECIAL_ONLY)
def test_markers_spelled_by_ordinary_tokens_are_text(format: OutputFormat, tail: str, output: str) -> None:
    events = read(format, tail, list(output), ids=True)
    assert {event.kind for event in events} <= {"content", "reasoning", "swallowed"}


@given(st.data())
def test_any_cut_of_anything_gives_the_same_events(data: st.DataObject) -> None:
    format, tail = data.draw(st.sampled_from([case[:2] for case in CASES]))
    pool = [marker for _, marker in format.moves if marker] + [case[2][:40] for case in CASES]
    pool += ["f", " ", "\n", "<", '{"name": "f", "', 'args": {', "}", '"', "é🌧️", "name=", "</", "|"]
    parts = data.draw(st.lists(st.sampled_from(pool), max_size=12))
    output = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(output)), max_size=8)))
    pieces = [output[i:j] for i, j in zip([0, *cuts], [*cuts, len(output)], strict=True)]
    whole = read(format, tail, [output])
    assert read(format, tail, pieces) == whole
    check_events(whole, output)
