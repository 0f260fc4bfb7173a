from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.chat.blocks import BLOCKS, blocks_or_bare
from colibri.chat.conversation import Tool, TurnOptions
from colibri.chat.detokenizer import Detokenizer, Run
from colibri.chat.events import Event
from colibri.chat.output import OutputFormat, merged
from colibri.chat.prompt import Piece, Special, prompt
from colibri.chat.reader import Reader
from colibri.chat.schemas import ToolSchemas
from colibri.chat.tokenizer import Tokenizer
from colibri.errors import ModelOutputError
from colibri.family import Stops
from colibri.testing.conformance import check_events

CALL, END = Special("<call>"), Special("</call>")
THINKS = OutputFormat(
    moves={("reasoning", "</call>"): ("content",), ("content", "<call>"): ("reasoning",)},
    starts=(("<call>", "reasoning"),),
)


def read(reader: Reader, ids: list[int], sizes: int = 1) -> list[Event]:
    events = [event for at in range(0, len(ids), sizes) for event in reader.feed(ids[at : at + sizes])]
    return merged([*events, *reader.finish()])


def shown(events: list[Event], kind: str = "content") -> str:
    return "".join(event.text for event in events if event.kind == kind)


@given(data=st.data())
def test_batches_and_single_tokens_read_the_same_and_tile_the_output(tokenizer: Tokenizer, data: st.DataObject) -> None:
    pool: list[Piece | str] = [CALL, END, Special("<|end|>"), "<call>", "🌧️", " \n", "STOP", "ST", "a", '{"name": "f"']
    ids = tokenizer.encode(prompt(data.draw(st.lists(st.sampled_from(pool), max_size=10))))
    ids += data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 5), max_size=4))
    detokenizer = Detokenizer(tokenizer)
    runs = [*detokenizer.feed(ids), Run(detokenizer.finish())]
    format = data.draw(st.sampled_from([BLOCKS, THINKS, None]))
    stop = data.draw(st.sampled_from([(), ("STOP",), ("STOP", "a")]))
    patient = data.draw(st.booleans())

    def run(size: int) -> tuple[list[Event], str | None, int]:
        reader = Reader(tokenizer, format, stop=stop, patient=patient)
        return read(reader, ids, size), reader.stopped, reader.reasoning_tokens

    one, whole = run(1), run(len(ids) or 1)
    assert one == whole
    raw = "".join(run.text for run in runs)
    end = whole[0][-1].span[1] if whole[0] else 0
    assert end == len(raw) or one[1] is not None
    check_events(whole[0], raw[:end])


def test_a_stop_text_ends_the_answer_and_is_accounted_for(tokenizer: Tokenizer) -> None:
    reader = Reader(tokenizer, stop=("END",))
    events = read(reader, tokenizer.encode_text("one ENDtwo"), 100)
    assert events == [Event("content", "one ", (0, 4)), Event("swallowed", "", (4, 7))]
    assert reader.stopped == "END"
    assert reader.feed([1, 2]) == reader.finish() == []


def test_family_stops_may_be_patient_where_the_clients_are_not(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("\nROLE\nhi ROLE x")
    reader = Reader(tokenizer, stops=Stops(texts=("ROLE",), patient=True))
    assert shown(read(reader, ids)) == "\nhi "
    assert reader.stopped == "ROLE"
    reader = Reader(tokenizer, stops=Stops(texts=("ROLE",), patient=True), stop=("\n",))
    assert shown(read(reader, ids)) == ""
    assert reader.stopped == "\n"
    reader = Reader(tokenizer, stop=("\n", "ROLE"), patient=True)
    assert shown(read(reader, ids)) == "hi "


def test_control_tokens_that_mark_nothing_are_not_shown(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(prompt(["a", Special("<|end|>"), "b", CALL, "c <|end|>"]))
    events = read(Reader(tokenizer), ids)
    assert shown(events) == "ab<call>c <|end|>"
    assert [event.span for event in events] == [(0, 1), (1, 8), (8, 24)]


def test_reasoning_tokens_are_counted(tokenizer: Tokenizer) -> None:
    thought = tokenizer.encode_text(" brown 🌧️ fox")
    ids = [*thought, tokenizer.specials["</call>"], *tokenizer.encode_text("The answer")]
    reader = Reader(tokenizer, THINKS, tail="…<call>")
    events = read(reader, ids)
    assert (shown(events, "reasoning"), shown(events)) == (" brown 🌧️ fox", "The answer")
    assert reader.reasoning_tokens == len(thought)
    reader = Reader(tokenizer, THINKS, tail="…<call>", options=TurnOptions(cue="continue"))
    assert shown(read(reader, thought)) == " brown 🌧️ fox"
    assert reader.reasoning_tokens == 0


SCHEMAS = ToolSchemas([Tool("f", {}, {"properties": {"n": {"type": "integer"}}, "required": ["n"]})])


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "g", "arguments": {"n": 1}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"n": "x"}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"n": 1, "n": 1}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"n": 1}}',
        '<tool_call>{"name": "f", "arguments": {"n": 1',
        "<tool_call>f(1)</tool_call>",
    ],
)
def test_strict_calls_must_be_exactly_right(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(ModelOutputError) as caught:
        read(Reader(tokenizer, BLOCKS, schemas=SCHEMAS), tokenizer.encode_text(text))
    assert (caught.value.status, caught.value.code) == (502, "invalid_model_tool_call")


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f',
        '{"na',
        '```json\n{"name": "f", "arguments": {"n": 1',
        '{"name": "f"}',
        '{"name": "f", "arguments": {"n": ""}}',
    ],
)
def test_strict_calls_without_their_tags_must_be_exactly_right_too(tokenizer: Tokenizer, text: str) -> None:
    """Such as a call that the token limit cut off."""
    ids = tokenizer.encode_text(text)
    with pytest.raises(ModelOutputError) as caught:
        read(Reader(tokenizer, blocks_or_bare(["f"]), schemas=SCHEMAS), ids)
    assert (caught.value.status, caught.value.code) == (502, "invalid_model_tool_call")


@pytest.mark.parametrize("text", ["", " ", "```json", '{"n": 1}', "{n}", "Well: {", '```json\n{"n": 1}\n```'])
def test_text_is_no_strict_call_that_is_cut(tokenizer: Tokenizer, text: str) -> None:
    reader = Reader(tokenizer, blocks_or_bare(["f"]), schemas=SCHEMAS)
    assert shown(read(reader, tokenizer.encode_text(text))) == text
    lenient = Reader(tokenizer, blocks_or_bare(["f"]))
    assert shown(read(lenient, tokenizer.encode_text('{"name": "f'))) == '{"name": "f'


def test_strict_calls_that_are_right_pass(tokenizer: Tokenizer) -> None:
    text = 'Two:\n<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>\n'
    text += '<tool_call>{"name": "f", "arguments": {"n": 2}}</tool_call>'
    reader = Reader(tokenizer, BLOCKS, schemas=SCHEMAS)
    events = read(reader, tokenizer.encode_text(text))
    assert shown(events, "tool_args") == '{"n": 1}{"n": 2}'
    assert reader.calls == 2
