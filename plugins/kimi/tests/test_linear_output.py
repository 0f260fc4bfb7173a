"""How answers of Kimi Linear arrive: what streams at once, what only control tokens can mark, what is mended and cut."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from colibri.chat.answer import Answer
from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.output import OutputFormat, OutputParser
from colibri_kimi import Kimi
from colibri_kimi.variants import KIMI_LINEAR

KIMI = Kimi()
SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENT, CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
IDS = {token: 163595 + n for n, token in enumerate((SECTION, SECTION_END, CALL, ARGUMENT, CALL_END))}
LOOK = f"{CALL}functions.look:0{ARGUMENT}{{}}{CALL_END}"


def linear(mode: Any = "auto", *tools: str) -> OutputFormat:
    talk = Conversation((), tuple(Tool(name, {}) for name in tools))
    return KIMI.output(KIMI_LINEAR, talk, TurnOptions(tool_choice=ToolChoice(mode)))


def parser(*, by_id: bool = True, repair: bool = True) -> OutputParser:
    return OutputParser(linear("auto", "look"), None, IDS if by_id else None, repair=repair)


def pieces(text: str) -> list[str]:
    """The text with each control token a piece of its own."""
    return [piece for piece in re.split("(" + "|".join(map(re.escape, IDS)) + ")", text) if piece]


def kinds(reader: OutputParser, *texts: str) -> list[list[tuple[str, str]]]:
    found = []
    for text in texts:
        events = reader.feed(text, IDS.get(text))
        found.append([(event.kind, event.text) for event in events if event.kind != "swallowed"])
    return found


def answer(output: str, *, by_id: bool = True, repair: bool = True) -> Answer:
    reader = parser(by_id=by_id, repair=repair)
    events = [event for piece in pieces(output) for event in reader.feed(piece, IDS.get(piece) if by_id else None)]
    return Answer([*events, *reader.finish()])


def calls(found: Answer) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in found.made()]


def test_arguments_stream_as_they_come() -> None:
    texts = [
        "Sure ",
        SECTION,
        CALL,
        "functions",
        ".look",
        ":0",
        ARGUMENT,
        '{"x"',
        ': "a',
        '\\n b"',
        "}",
        CALL_END,
        SECTION_END,
    ]
    assert kinds(parser(), *texts) == [
        [("content", "Sure ")],
        *([], [], [], [], []),
        [("tool_start", "look")],
        [("tool_args", '{"x"')],
        [("tool_args", ': "a')],
        [("tool_args", '\\n b"')],
        [("tool_args", "}")],
        [("tool_end", "")],
        [],
    ]


def test_arguments_that_are_no_bare_object_come_whole() -> None:
    texts = [SECTION, CALL, "functions.look:0", ARGUMENT, '"{\\"x\\"', ': 1}"', CALL_END]
    assert kinds(parser(), *texts)[3:] == [
        [("tool_start", "look")],
        [],
        [],
        [("tool_args", '{"x": 1}'), ("tool_end", "")],
    ]


def test_a_spelled_call_is_no_call_and_a_spelled_end_ends_none() -> None:
    spelled = SECTION + LOOK + SECTION_END
    reader = parser()
    events = [event for char in spelled for event in reader.feed(char)]
    assert Answer([*events, *reader.finish()]).shown == spelled
    found = kinds(parser(), SECTION, CALL, "functions.look:0", ARGUMENT, '{"x": "', "<|tool_call_end|", '>"}', CALL_END)
    assert found[-3:] == [[("tool_args", "<|tool_call_end|")], [("tool_args", '>"}')], [("tool_end", "")]]


def test_a_control_token_ends_a_call_even_inside_a_string() -> None:
    broken = f'{SECTION}{CALL}functions.look:0{ARGUMENT}{{"x": "a{CALL_END}'
    found = answer(broken + LOOK + SECTION_END)
    assert (found.cut, found.shown, calls(found)) == (True, broken, [("look", {})])


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("functions.look:0", "look"),
        ("functions.look:123", "look"),
        ("functions.a.b:1:2", "a.b:1"),
        ("functions.functions.look:0", "functions.look"),
        ("look:0", "look"),
        ("a.look", "a.look"),
        ("functions.look", "look"),
        ("functions.look:", "look"),
        (" functions.look : 0\n", "look"),
        ("functions.look:two", "look:two"),
    ],
)
def test_the_id_holds_the_name(id: str, name: str) -> None:
    call = f"{SECTION}{CALL}{id}{ARGUMENT}{{}}{CALL_END}{SECTION_END}"
    assert calls(answer(call)) == calls(answer(call, by_id=False)) == [(name, {})]
    strict = answer(call, repair=False)
    exact = re.fullmatch(r"functions\..*:[0-9]+", id) is not None
    assert (strict.cut, calls(strict)) == (not exact, [(name, {})] if exact else [])


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        SECTION + CALL + "functions.look:0" + ARGUMENT + "{}",
        SECTION + CALL + "functions.look:0" + ARGUMENT + "{}" + SECTION_END,
        SECTION + CALL + "functions.look:0" + ARGUMENT + CALL_END,
        SECTION + CALL + "functions.look:0" + ARGUMENT + " null " + CALL_END,
        SECTION + CALL + "functions.look:0" + ARGUMENT + '" "' + CALL_END,
        SECTION + CALL + "functions.look:0" + ARGUMENT + '"{}"' + CALL_END,
        SECTION + CALL + "functions.look:0" + CALL_END + SECTION_END,
        SECTION + CALL + "functions.look:0" + SECTION_END,
        SECTION + "now" + LOOK + SECTION_END,
        LOOK,
    ],
)
def test_what_a_lenient_reader_mends_a_strict_one_cuts(call: str, by_id: bool) -> None:
    found = answer("A" + call, by_id=by_id)
    assert (found.cut, found.shown, calls(found)) == (False, "A", [("look", {})])
    strict = answer("A" + call, by_id=by_id, repair=False)
    end = call.index(SECTION_END) if call.endswith(CALL_END + SECTION_END) else len(call)
    assert (strict.cut, strict.shown, calls(strict)) == (True, "A" + call[:end], [])


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        CALL,
        f"{CALL}functions.lo",
        f"{CALL}functions.look:0{ARGUMENT}",
        f'{CALL}functions.look:0{ARGUMENT}{{"x": [1, ',
        f'{CALL}functions.look:0{ARGUMENT}{{"x": 1{CALL_END}',
        f"{CALL}functions.look:0{ARGUMENT}{{}} and{CALL_END}",
        f"{CALL}functions.look:0{ARGUMENT}{{}}{{}}{CALL_END}",
        f"{CALL}functions.look:0{ARGUMENT}[{{}}]{CALL_END}",
        f'{CALL}functions.look:0{ARGUMENT}"x{CALL_END}',
        f'{CALL}functions.look:0{ARGUMENT}"[]"{CALL_END}',
        f"{CALL}functions.look:0{ARGUMENT}nul{CALL_END}",
        f"{CALL}:0{ARGUMENT}{{}}{CALL_END}",
        f"{CALL}functions.{ARGUMENT}{{}}{CALL_END}",
        f"{CALL}{CALL_END}",
    ],
)
def test_a_call_that_is_incomplete_or_broken_is_shown_as_it_is(call: str, repair: bool) -> None:
    found = answer(SECTION + LOOK + call, repair=repair)
    assert (found.cut, found.shown, calls(found)) == (True, call, [("look", {})])


def test_the_first_call_of_a_section_is_shown_with_its_beginning() -> None:
    for cut in (SECTION, SECTION + "\n", f"{SECTION}{CALL}functions.look", f"{SECTION}text{SECTION_END}"):
        found = answer("A" + cut)
        assert (found.cut, found.shown) == (True, "A" + cut)


def test_a_section_without_calls_is_nothing_to_a_lenient_reader() -> None:
    empty = f"A{SECTION}\n{SECTION_END}"
    assert (answer(empty).cut, answer(empty).shown) == (False, "A")
    assert answer(empty, repair=False).cut


def test_a_call_without_its_end_ends_where_the_next_one_begins() -> None:
    unended = f"{CALL}functions.look:0{ARGUMENT}{{}}"
    found = answer(SECTION + unended + f"{CALL}functions.lo" + unended + LOOK + SECTION_END)
    assert (found.shown, calls(found)) == (f"{CALL}functions.lo", [("look", {})] * 3)
    strict = answer(SECTION + unended + LOOK + SECTION_END, repair=False)
    assert (strict.shown, calls(strict)) == (SECTION + unended, [("look", {})])


def test_text_behind_calls_is_an_answer_again() -> None:
    found = answer(f"A {SECTION}\n{LOOK}\n{LOOK}\n{SECTION_END}\nB{SECTION}{LOOK}C{SECTION_END}\n")
    assert (found.shown, calls(found)) == ("A \nBC", [("look", {})] * 3)


def test_a_strict_reader_takes_what_is_written_exactly_right() -> None:
    call = f'{CALL}functions.look:1{ARGUMENT} {{"x": [1.5, null]}}\n{CALL_END}'
    found = answer(f"A{SECTION}{LOOK}\n{call}{SECTION_END}", repair=False)
    assert (found.cut, found.shown, calls(found)) == (False, "A", [("look", {}), ("look", {"x": [1.5, None]})])
    broken = f'{CALL}functions.look:0{ARGUMENT}{{"x": "a\nb"}}{CALL_END}'
    assert calls(answer(SECTION + broken)) == [("look", {"x": "a\nb"})]
    assert answer(SECTION + broken, repair=False).cut


def test_calls_are_read_only_where_tools_may_be_called() -> None:
    assert linear("none", "look") == linear("auto") == OutputFormat()
    assert linear("auto", "look") != OutputFormat()


def test_turns_end_at_the_control_tokens() -> None:
    assert KIMI.stops(KIMI_LINEAR, TurnOptions()).specials == ("<|im_end|>", "[EOS]")
