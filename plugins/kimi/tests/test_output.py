"""How answers arrive: what streams at once, what only control tokens can mark, what is mended and what is cut."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from colibri.chat.answer import Answer
from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.output import OutputFormat, OutputParser
from colibri_kimi import Kimi
from colibri_kimi.variants import KIMI_K3

KIMI = Kimi()
DATA = Path(__file__).parent / "data" / "chat"
IDS = {"[EOS]": 163585, "<|end_of_msg|>": 163586, "<|open|>": 163587, "<|close|>": 163588, "<|sep|>": 163589}
TALK = Conversation((), (Tool("look", {}),))
THINK = '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>'
RESPONSE = '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>'
TOOLS, TOOLS_END = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
LOOK, CALL_END = '<|open|>call tool="look" index="1"<|sep|>', "<|close|>call<|sep|>"
ARGUMENT_END, MESSAGE_END = "<|close|>argument<|sep|>", "<|close|>message<|sep|>"
JSON, JSON_END = '<|open|>json type="object"<|sep|>', "<|close|>json<|sep|>"


def argument(key: str, type: str, value: str) -> str:
    return f'<|open|>argument key="{key}" type="{type}"<|sep|>{value}{ARGUMENT_END}'


def k3(mode: Any = "auto") -> OutputFormat:
    return KIMI.output(KIMI_K3, TALK, TurnOptions(tool_choice=ToolChoice(mode)))


def parser(tail: str = RESPONSE, *, mode: Any = "auto", by_id: bool = True, repair: bool = True) -> OutputParser:
    format = k3(mode)
    return OutputParser(format, format.state_after(tail, TurnOptions()), IDS if by_id else None, repair=repair)


def pieces(text: str) -> list[str]:
    """The text with each control token a piece of its own."""
    return [piece for piece in re.split("(" + "|".join(map(re.escape, IDS)) + ")", text) if piece]


def kinds(reader: OutputParser, *texts: str) -> list[list[tuple[str, str]]]:
    found = []
    for text in texts:
        events = [event for piece in pieces(text) for event in reader.feed(piece, IDS.get(piece))]
        found.append([(event.kind, event.text) for event in events if event.kind != "swallowed"])
    return found


def answer(reader: OutputParser, output: str) -> Answer:
    events = [event for piece in pieces(output) for event in reader.feed(piece, IDS.get(piece))]
    return Answer([*events, *reader.finish()])


def calls(found: Answer) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in found.made()]


def test_string_arguments_stream_inside_the_json_string_and_others_when_they_are_whole() -> None:
    texts = ["Sure", "<|close|>response<|sep|>", TOOLS, '<|open|>call tool="lo', 'ok" index="1"', "<|sep|>"]
    texts += ['<|open|>argument key="x" type="string"<|sep|>', 'a"', "b\n", "é", ARGUMENT_END]
    texts += ['<|open|>argument key="n" type="number"<|sep|>', "1", ".5", ARGUMENT_END, CALL_END, TOOLS_END]
    assert kinds(parser(), *texts) == [
        [("content", "Sure")],
        [],
        [],
        [],
        [],
        [("tool_start", "look")],
        [("tool_args", '{"x": "')],
        [("tool_args", 'a\\"')],
        [("tool_args", "b\\n")],
        [("tool_args", "é")],
        [("tool_args", '"')],
        [("tool_args", ', "n": ')],
        [],
        [],
        [("tool_args", "1.5")],
        [("tool_args", "}"), ("tool_end", "")],
        [],
    ]


def test_arguments_in_one_object_stream_as_they_come() -> None:
    texts = [
        TOOLS,
        LOOK,
        '<|open|>json type="object"<|sep|>',
        ' {"a": "x',
        'y", "b',
        '": 1}\n',
        "<|close|>json<|sep|>",
        CALL_END,
    ]
    assert kinds(parser(), *texts)[3:] == [
        [("tool_args", '{"a": "x')],
        [("tool_args", 'y", "b')],
        [("tool_args", '": 1}')],
        [],
        [("tool_end", "")],
    ]


#: Those whose outputs spell no control token in text.
PLAIN = [case for case in json.loads((DATA / "outputs-kimi-k3.json").read_text()) if "segments" not in case]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case["name"])
def test_control_tokens_mean_what_their_characters_would(case: dict[str, Any]) -> None:
    found = answer(parser(case["prompt_tail"]), case["output"])
    expected = case["expected"]
    assert found.shown.strip() == (expected["content"] or "").strip()
    assert found.reasoning.strip() == (expected["reasoning"] or "").strip()
    assert calls(found) == [(call["name"], call["arguments"]) for call in expected["tool_calls"]]


@pytest.mark.parametrize(
    ("texts", "reasoning", "content"),
    [
        (["<|close|>think<|sep|>", " after"], "<|close|>think<|sep|> after", "ok"),
        (["config: ", "<|open|>think<|sep|>"], "config: <|open|>think<|sep|>", "ok"),
        (["<|open|>response<|sep|>"], "<|open|>response<|sep|>", "ok"),
    ],
)
def test_spelled_tags_are_text(texts: list[str], reasoning: str, content: str) -> None:
    reader = parser(THINK)
    events = [event for text in texts for event in reader.feed(text)]
    rest = "<|close|>think<|sep|><|open|>response<|sep|>ok<|close|>response<|sep|><|close|>message<|sep|>"
    events += [event for piece in pieces(rest) for event in reader.feed(piece, IDS.get(piece))]
    found = Answer([*events, *reader.finish()])
    assert (found.reasoning, found.shown) == (reasoning, content)


def test_a_spelled_call_is_no_call_and_a_spelled_end_ends_no_value() -> None:
    spelled = f"{TOOLS}{LOOK}{CALL_END}{TOOLS_END}"
    reader = parser()
    events = [event for char in spelled for event in reader.feed(char)]
    assert Answer([*events, *reader.finish()]).shown == spelled
    reader = parser()
    kinds(reader, f'{TOOLS}{LOOK}<|open|>argument key="x" type="string"<|sep|>')
    events = reader.feed(ARGUMENT_END)
    assert [event.text for event in events] == [ARGUMENT_END]


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize(
    ("tail", "output", "reasoning", "content", "made"),
    [
        (THINK, f"R<|close|>think<|sep|>{TOOLS}{LOOK}{CALL_END}{TOOLS_END}<|close|>message<|sep|>", "R", "", 1),
        (THINK, "R<|close|>think<|sep|>\n<|open|>response<|sep|>A<|close|>response<|sep|>\n", "R", "A", 0),
        (THINK, "a <|open|>response<|sep|> b<|close|>think<|sep|>", "a <|open|>response<|sep|> b", "", 0),
        (THINK, "R<|close|>think<|sep|>A", "R", "A", 0),
        (THINK, "cut off", "cut off", "", 0),
        (THINK, f"{TOOLS}{LOOK}{CALL_END}", "", "", 1),
        (RESPONSE, f"A{TOOLS}{LOOK}{CALL_END}", "", "A", 1),
        (
            RESPONSE,
            f"A<|close|>response<|sep|>\n{TOOLS}\n{LOOK}\n{CALL_END}\n{TOOLS_END}\n<|close|>message<|sep|>",
            "",
            "A",
            1,
        ),
        (RESPONSE, " A \n<|close|>response<|sep|><|close|>message<|sep|>", "", " A \n", 0),
        (RESPONSE, "a <|open|>call <|close|>think<|sep|>", "", "a <|open|>call <|close|>think<|sep|>", 0),
    ],
)
def test_elements_of_a_message(by_id: bool, tail: str, output: str, reasoning: str, content: str, made: int) -> None:
    found = answer(parser(tail, by_id=by_id), output)
    assert (found.reasoning, found.shown, len(found.whole)) == (reasoning, content, made)
    assert not found.cut


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        ("number", " 1e2 ", 100.0),
        ("number", "NaN", "NaN"),
        ("number", "7 apples", "7 apples"),
        ("integer", "7", 7),
        ("boolean", "True", "True"),
        ("object", '{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ("array", "[1,", "[1,"),
        ("array", "[[1], 2]", [[1], 2]),
        ("null", "", ""),
        ("string", " <|open|>x&quot; ", " <|open|>x&quot; "),
    ],
)
def test_values_are_what_their_type_says_or_else_text(type: str, text: str, value: object) -> None:
    found = answer(parser(), f"{TOOLS}{LOOK}{argument('k', type, text)}{CALL_END}{TOOLS_END}")
    assert calls(found) == [("look", {"k": value})]


def test_what_a_lenient_reader_mends() -> None:
    nameless = f'<|open|>call index="1"<|sep|>{argument("a", "string", "x")}{CALL_END}'
    unclosed = LOOK + argument("n", "number", "2")
    untyped = f'{LOOK}<|open|>argument key="a"<|sep|>1{ARGUMENT_END}{CALL_END}'
    found = answer(parser(), f"{TOOLS}{nameless}{unclosed}{untyped}{unclosed}{TOOLS_END}<|close|>message<|sep|>")
    assert calls(found) == [("look", {"n": 2}), ("look", {"a": "1"}), ("look", {"n": 2})]
    assert found.shown == ""


CUT = [
    f"{LOOK}<|open|>argument key=",
    f'{LOOK}<|open|>argument key="a" type="string"<|sep|>b',
    LOOK + argument("a", "string", "b"),
    f'{LOOK}{JSON}{{"a": 1}}',
    f"{LOOK}{JSON}[1]{JSON_END}{CALL_END}",
    f'{LOOK}{JSON}{{"a": 1{JSON_END}{CALL_END}',
    f"{LOOK}{JSON}{{}} x{JSON_END}{CALL_END}",
    f"{LOOK}{JSON}{{}}{JSON_END}{argument('a', 'string', 'b')}{CALL_END}",
    f"{LOOK}{argument('a', 'string', 'b')}{JSON}{{}}{JSON_END}{CALL_END}",
    '<|open|>call tool="lo',
]


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize("call", CUT)
def test_a_call_that_is_incomplete_or_broken_is_shown_as_it_is(call: str, repair: bool) -> None:
    found = answer(parser(repair=repair), TOOLS + LOOK + CALL_END + call)
    assert (found.cut, found.shown, calls(found)) == (True, call, [("look", {})])


@pytest.mark.parametrize(
    "call",
    [
        f'<|open|>call index="1"<|sep|>{CALL_END}',
        f"<|open|>call tool=look<|sep|>{CALL_END}",
        f"{LOOK}{argument('a', 'number', 'many')}{CALL_END}",
        f'{LOOK}<|open|>argument key="a"<|sep|>b{ARGUMENT_END}{CALL_END}',
        f'{LOOK}<|open|>argument type="string"<|sep|>b{ARGUMENT_END}{CALL_END}',
        f"{LOOK}words{CALL_END}",
        f"{LOOK}{TOOLS_END}",
        LOOK + LOOK + CALL_END,
    ],
)
def test_a_strict_reader_mends_nothing(call: str) -> None:
    assert not answer(parser(), TOOLS + call).cut
    assert answer(parser(repair=False), TOOLS + call).cut


def test_a_strict_reader_takes_what_is_written_exactly_right() -> None:
    right = LOOK + argument("a&amp;b", "string", "x") + argument("n", "null", "null") + CALL_END
    found = answer(parser(repair=False), f"{TOOLS}{right}{LOOK}{CALL_END}{TOOLS_END}<|close|>message<|sep|>")
    assert calls(found) == [("look", {"a&b": "x", "n": None}), ("look", {})]
    assert not found.cut


def test_calls_that_were_forbidden_reach_nobody() -> None:
    output = (
        f"No.<|close|>response<|sep|>{TOOLS}{LOOK}{argument('a', 'string', 'b')}{CALL_END}{TOOLS_END}<|close|>message<|sep|>"
    )
    found = answer(parser(mode="none"), output)
    assert (found.shown, found.calls, found.cut) == ("No.", {}, False)


def test_turns_end_at_the_control_tokens() -> None:
    assert KIMI.stops(KIMI_K3, TurnOptions()).specials == ("<|end_of_msg|>", "[EOS]")
