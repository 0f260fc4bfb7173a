"""How answers arrive: what streams at once, what is repaired, what is cut, and what is let through when calls are strict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colibri.api.openai.cases import parse_case
from colibri.chat.answer import Answer
from colibri.chat.conversation import Conversation, Tool, ToolChoice, TurnOptions
from colibri.chat.output import OutputParser
from colibri.chat.schemas import ToolSchemas
from colibri.errors import ModelOutputError
from colibri_glm import Glm
from colibri_glm.output import PLAIN
from colibri_glm.variants import GLM_5_2, GLM_5_3, VARIANTS

GLM = Glm()
SEARCH = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "days": {"type": "integer"},
        "flag": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "where": {"$ref": "#/$defs/place"},
    },
    "required": ["q"],
    "$defs": {"place": {"type": ["object", "null"]}},
}
TOOLS = (Tool("search", {}, SEARCH), Tool("list_orders", {}))
FORMAT = GLM.output(GLM_5_2, Conversation((), TOOLS), TurnOptions())
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
IDS = {tag: number for number, tag in enumerate(TAGS, 1)}
DECLARED = [{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in TOOLS]


def pair(key: str, value: str) -> str:
    return f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>{name}{''.join(pair(key, value) for key, value in arguments.items())}</tool_call>"


def parsed(output: str, state: str = "gap", *, repair: bool = True) -> tuple[str, list[tuple[str, Any]], bool]:
    """What is shown, the calls, and whether one was cut."""
    parser = OutputParser(FORMAT, state, repair=repair)
    answer = Answer([*parser.feed(output), *parser.finish()])
    return answer.shown, [(name, json.loads(arguments)) for name, arguments in answer.made()], answer.cut


def kinds(parser: OutputParser, *pieces: str) -> list[list[tuple[str, str]]]:
    return [[(event.kind, event.text) for event in parser.feed(piece, IDS.get(piece))] for piece in pieces]


# As it comes.


def test_strings_stream_as_they_come_and_other_values_when_they_are_whole() -> None:
    parser = OutputParser(FORMAT, "reasoning", IDS)
    assert kinds(parser, "Hm", "</think>", "\n", "Sure", "<tool_call>", "sea", "rch", "<arg_key>", "q", "</arg_key>") == [
        [("reasoning", "Hm")],
        [("swallowed", "")],
        [("swallowed", "")],
        [("content", "Sure")],
        *[[], [], []],
        [("tool_start", "search")],
        *[[], []],
    ]
    assert kinds(parser, "<arg_value>", 'say "', "<arg_key>", "\n", "</arg_value>") == [
        [("tool_args", '{"q": "')],
        [("tool_args", 'say \\"')],
        [("tool_args", "<arg_key>")],
        [("tool_args", "\\n")],
        [("tool_args", '"')],
    ]
    assert kinds(parser, "<arg_key>", "days", "</arg_key>", "<arg_value>", " 1", "2 ", "</arg_value>", "</tool_call>") == [
        *[[], [], [], [], [], []],
        [("tool_args", ', "days": 12')],
        [("tool_args", "}"), ("tool_end", "")],
    ]


def test_prose_streams_at_once() -> None:
    parser = OutputParser(FORMAT, "gap", IDS)
    assert kinds(parser, " ", "a < b", " <tool", "_call", "> ") == [
        [("swallowed", "")],
        [("content", "a < b")],
        [("content", " <tool")],
        [("content", "_call")],
        [("content", "> ")],
    ]


def test_tags_spelled_by_ordinary_tokens_are_text() -> None:
    parser = OutputParser(FORMAT, "content", IDS)
    events = [event for char in call("search", q="x") for event in parser.feed(char)] + parser.finish()
    assert {event.kind for event in events} == {"content"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_answer_begins_as_the_prompt_ends(variant: Any) -> None:
    def said(output: str, options: TurnOptions, talk: Conversation) -> tuple[str, str]:
        format = GLM.output(variant, talk, options)
        parser = OutputParser(format, format.state_after(GLM.render(variant, talk, options).text, options))
        answer = Answer([*parser.feed(output), *parser.finish()])
        return answer.reasoning, answer.shown

    always = variant.capabilities.thinking == "always"
    for talk in (Conversation((), TOOLS), Conversation(())):
        assert said("why</think>answer", TurnOptions(), talk) == ("why", "answer")
        off = said("why</think>answer", TurnOptions(thinking=False), talk)
        assert off == (("why", "answer") if always else ("", "why</think>answer"))


@pytest.mark.parametrize("options", [TurnOptions(tool_choice=ToolChoice("none")), TurnOptions()])
def test_without_active_tools_nothing_is_a_call(options: TurnOptions) -> None:
    talk = Conversation((), TOOLS if options.tool_choice.mode == "none" else ())
    assert GLM.output(GLM_5_3, talk, options) == PLAIN
    parser = OutputParser(PLAIN, "reasoning")
    events = [*parser.feed("a<tool_call>b</think>\n" + call("search")), *parser.finish()]
    assert [(event.kind, event.text) for event in events if event.text] == [
        ("reasoning", "a<tool_call>b"),
        ("content", call("search")),
    ]


# What is repaired.


@pytest.mark.parametrize(
    ("output", "shown", "calls"),
    [
        (f"before {call('search', q='x')} after", "before  after", [("search", {"q": "x"})]),
        (f"Look.\n{call('list_orders')}\n{call('list_orders')}\n", "Look.", [("list_orders", {})] * 2),
        (
            "<tool_call>\nsearch\n<arg_key>q</arg_key>\n<arg_value>x\n</arg_value>\n</tool_call>",
            "",
            [("search", {"q": "x\n"})],
        ),
        (call("search", q="12345", days="2", flag="true"), "", [("search", {"q": "12345", "days": 2, "flag": True})]),
        (call("search", days="many", flag="1", note="null"), "", [("search", {"days": "many", "flag": "1", "note": None})]),
        (call("search", where='{"a": 1}', q=""), "", [("search", {"where": {"a": 1}, "q": ""})]),
        (call("other.tool-1", n="7"), "", [("other.tool-1", {"n": "7"})]),
        (f"<tool_call>search{pair('q', 'x')}", "", [("search", {"q": "x"})]),
        (f"<tool_call>search{pair('q', 'x')}</tool_cal", "", [("search", {"q": "x"})]),
        ("<tool_call>list_orders", "", [("list_orders", {})]),
        ("<tool_call>list_orders\n</tool", "", [("list_orders", {})]),
        (f"{call('list_orders')}<tool_call>search{pair('q', 'x')}", "", [("list_orders", {}), ("search", {"q": "x"})]),
        (f"<tool_call>search{pair('q', 'x')}{call('list_orders')}", "", [("search", {"q": "x"}), ("list_orders", {})]),
    ],
)
def test_calls_are_read_as_they_are_meant(output: str, shown: str, calls: list[tuple[str, Any]]) -> None:
    assert parsed(output) == (shown, calls, False)


def test_a_call_ends_open_reasoning() -> None:
    parser = OutputParser(FORMAT, "reasoning")
    answer = Answer([*parser.feed("why" + call("list_orders")), *parser.finish()])
    assert (answer.reasoning, answer.shown, answer.made()) == ("why", "", [("list_orders", "{}")])


@pytest.mark.parametrize(
    "output",
    [
        "write <tool_call> and then the name.",
        "write <tool_call> and then the name.</tool_call>",
        "<tool_call>drop_all_tables",
        "<tool_call></tool_call>",
        f"<tool_call>search{pair('q', 'x')}<arg_key>da",
        f"<tool_call>search{pair('q', 'x')}<arg_key>note</arg_key><arg_value>unfin",
        "<tool_call>search<arg_key>q</arg_key></tool_call>",
        "<tool_call>search<arg_key>q</tool_call>",
        f"<tool_call>search{pair(' ', 'x')}</tool_call>",
        f"<tool_call>search{pair('q', 'x')}, {pair('days', '2')}</tool_call>",
        f"<tool_call>two words{pair('q', 'x')}</tool_call>",
        "see </tool_call> and <arg_key>",
    ],
)
def test_what_is_no_call_is_shown_as_it_was_written(output: str) -> None:
    assert parsed(output) == (output, [], True)


def test_text_goes_on_behind_a_call_that_was_cut() -> None:
    assert parsed(f"<tool_call>?</tool_call> no. {call('list_orders')}") == (
        "<tool_call>?</tool_call> no. ",
        [("list_orders", {})],
        True,
    )


# Strict.


@pytest.mark.parametrize(
    "output",
    [
        call("search", q="x", days="2"),
        "Sure.\n" + call("list_orders") + "\n" + call("search", q=""),
        "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
        call("list_orders", anything="x"),
    ],
)
def test_strict_calls_that_are_right_are_those_of_the_lenient_reader(output: str) -> None:
    strict = parsed(output, repair=False)
    assert strict == parsed(output)
    assert strict[2] is False


@pytest.mark.parametrize(
    "output",
    [
        f"<tool_call>search{pair('q', 'x')}",
        f"<tool_call>search{pair('q', 'x')}<tool_call>list_orders</tool_call>",
        f"<tool_call>search{pair('q', 'x')}{pair('q', 'y')}</tool_call>",
        call("drop_all_tables"),
        call("list_orders") + "</tool_call>",
        "a stray <arg_value> tag",
    ],
)
def test_strict_calls_that_are_not_quite_right_are_cut(output: str) -> None:
    assert parsed(output, repair=False)[2] is True


@pytest.mark.parametrize("arguments", [{"q": "x", "days": "many"}, {"days": "2"}, {"q": "x", "color": "red"}])
def test_strict_calls_keep_to_the_schema(arguments: dict[str, str]) -> None:
    (name, value), *_ = parsed(call("search", **arguments), repair=False)[1]
    with pytest.raises(ModelOutputError):
        ToolSchemas(TOOLS).check(name, json.dumps(value))


# Where it ends.


def test_turns_end_at_the_marker_of_the_next_one() -> None:
    stops = GLM.stops(GLM_5_2, TurnOptions())
    assert stops.specials == ("<|endoftext|>",)
    assert (stops.texts, stops.patient) == (("<|user|>", "<|observation|>"), True)

    def content(*chunks: str) -> Any:
        case = {"output": list(chunks), "prompt_tail": "<think></think>", "tools": DECLARED}
        return parse_case(GLM, GLM_5_2, case)["content"]

    assert content("<|us", "er|>answer", "<|user|>ignored") == "answer"
    assert content("\n<|observation|> <|user|>answer<|obs", "ervation|>") == "answer"
    assert content("a <| b <|user") == "a <| b <|user"
