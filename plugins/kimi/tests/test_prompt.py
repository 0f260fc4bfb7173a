"""What the golden prompts do not show: defaults, demands, refusals, turns in the model's own tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Special, Spoken, Text
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import BadRequest, CheckpointError
from colibri_kimi import Kimi
from colibri_kimi.variants import KIMI_K3, KIMI_LINEAR

KIMI = Kimi()
TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name}}) for name in ("look", "find"))
EFFORT = (
    '<|open|>message role="system" type="thinking-effort"<|sep|>`thinking_effort` guides on how much to think in your '
    "thinking channel (not including the response channel), supported values include `low`, `medium`, `high`, and "
    "`max`.\nNow the system is invoked with `thinking_effort={}`.<|close|>message<|sep|><|end_of_msg|>"
)
USER = '<|open|>message role="user"<|sep|>Hi<|close|>message<|sep|><|end_of_msg|>'
HEAD = '<|open|>message role="assistant"<|sep|>'
CHOICE = (
    '<|open|>message role="system" type="tool-choice"<|sep|>The system is invoked with `tool_choice={}`.\n'
    "You MUST {} in the next message.<|close|>message<|sep|><|end_of_msg|>"
)


def turn(role: Any, text: str = "", **fields: Any) -> Turn:
    return Turn(role, (TextPart(text),), **fields)


def k3(*turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> str:
    return KIMI.render(KIMI_K3, Conversation(turns, tools), TurnOptions(**options)).text


def checkpoint(path: Path = Path("model"), **config: Any) -> Checkpoint:
    return Checkpoint(path, "safetensors", config, {}, {})


HI = turn("user", "Hi")


def test_a_client_that_says_nothing_gets_the_most_thinking() -> None:
    thinking = EFFORT.format("max") + USER + HEAD + "<|open|>think<|sep|>"
    assert k3(HI) == k3(HI, thinking=True) == k3(HI, effort="max") == thinking
    assert k3(HI, effort="low") == thinking.replace("=max", "=low")
    assert k3(HI, thinking=False, effort="low") == USER + HEAD + "<|open|>response<|sep|>"


@pytest.mark.parametrize("effort", ["medium", "xhigh", "Max"])
def test_other_words_for_an_effort_are_refused(effort: str) -> None:
    with pytest.raises(BadRequest, match=f"Unsupported thinking_effort='{effort}'") as caught:
        k3(HI, effort=effort)
    assert caught.value.param == "reasoning_effort"


def test_the_choice_of_tools_is_said_once_behind_the_messages() -> None:
    free = k3(HI, tools=TOOLS)
    cue = HEAD + "<|open|>think<|sep|>"
    assert free.endswith(USER + cue)
    required = CHOICE.format("required", "call tools")
    assert k3(HI, tools=TOOLS, tool_choice=ToolChoice("required")) == free.removesuffix(cue) + required + cue
    named = k3(HI, tools=TOOLS, tool_choice=ToolChoice("named", "find"))
    assert named == k3(HI, tools=TOOLS[1:], tool_choice=ToolChoice("required"))
    forbidden = k3(HI, tools=TOOLS, tool_choice=ToolChoice("none"))
    assert forbidden == free.removesuffix(cue) + CHOICE.format("none", "NOT call any tools") + cue


def test_names_are_attributes_and_attributes_are_escaped() -> None:
    call = ToolCall('a"b', {"k&": '&"'})
    text = k3(turn("user", name='x"&'), turn("assistant", name="y", calls=(call,)), thinking=False, cue="none")
    assert '<|open|>message role="user" name="x&quot;&amp;"<|sep|>' in text
    assert '<|open|>message role="assistant" name="y"<|sep|><|open|>response<|sep|>' in text
    assert (
        '<|open|>call tool="a&quot;b" index="1"<|sep|><|open|>argument key="k&amp;" type="string"<|sep|>&"<|close|>' in text
    )


def test_results_are_numbered_and_named_by_their_calls() -> None:
    calls = (ToolCall("look", {}, "1"), ToolCall("find", {}, "2"))
    asked = turn("assistant", calls=calls)

    def results(*turns: Turn) -> list[str]:
        text = k3(HI, asked, *turns, cue="none")
        return [part.partition("<|close|>")[0] for part in text.split('<|open|>message role="tool" ')[1:]]

    first, second = turn("tool", "A", call_id="1"), turn("tool", "B", call_id="2", name="stale")
    sorted_ = ['tool="look" index="1"<|sep|>A', 'tool="find" index="2"<|sep|>B']
    assert results(first, second) == results(second, first) == sorted_
    stray = turn("tool", "C", call_id="9", name="other")
    assert results(second, stray) == ['tool="stale" index="1"<|sep|>B', 'tool="other" index="2"<|sep|>C']
    assert results(turn("tool", "D"), first) == ['tool="look" index="1"<|sep|>D', 'tool="find" index="2"<|sep|>A']
    with pytest.raises(BadRequest, match="resolvable tool name") as caught:
        k3(HI, turn("tool", "x", call_id="1"))
    assert caught.value.param == "messages.1.tool_call_id"


def test_arguments_that_are_no_json_stand_as_they_are() -> None:
    def written(arguments: str) -> str:
        text = k3(turn("assistant", calls=(ToolCall("look", arguments),)), cue="none")
        return text.partition('<|open|>call tool="look" index="1"<|sep|>')[2].partition("<|close|>call<|sep|>")[0]

    assert written('{"a": <') == '<|open|>json type="object"<|sep|>{"a": <<|close|>json<|sep|>'
    assert written(" ") == ""
    assert written("[1]") == ""


def test_an_image_is_a_placeholder_and_a_sound_is_refused() -> None:
    shown = Turn("user", (TextPart("a"), MediaPart("image"), TextPart("b")))
    assert '"user"<|sep|>a<|kimi_image_placeholder|>b<|close|>' in k3(shown)
    with pytest.raises(BadRequest, match="audio") as caught:
        k3(Turn("user", (MediaPart("audio"),)))
    assert caught.value.param == "messages.0.content.0"


def test_only_the_bars_are_control_tokens() -> None:
    pieces = KIMI.render(KIMI_K3, Conversation((HI,), TOOLS), TurnOptions()).pieces
    specials = {piece.token for piece in pieces if isinstance(piece, Special)}
    assert specials == {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"}


SPOKEN = "R<|close|>think<|sep|><|open|>response<|sep|>A<|close|>response<|sep|><|close|>message<|sep|>"


@pytest.mark.parametrize(
    ("reasoning", "content", "wrote", "missing"),
    [
        ("R", "A", SPOKEN, ""),
        ("R", "A", SPOKEN.removesuffix("<|close|>message<|sep|>"), "<|close|>message<|sep|>"),
        ("R", "A", SPOKEN.partition("<|close|>response")[0], "<|close|>response<|sep|><|close|>message<|sep|>"),
        ("R", "", "R", SPOKEN[1:].replace("A", "")),
    ],
)
def test_a_turn_in_the_models_own_tokens_is_closed_where_it_was_cut(
    reasoning: str, content: str, wrote: str, missing: str
) -> None:
    written = turn("assistant", content, reasoning=reasoning, spoken=Spoken((7,), wrote))
    asked, later = k3(HI), k3(HI, written, HI)
    assert later == asked + wrote + missing + "<|end_of_msg|>" + USER + HEAD + "<|open|>think<|sep|>"
    pieces = KIMI.render(KIMI_K3, Conversation((HI, written, HI)), TurnOptions()).pieces
    assert Spoken((7,), wrote) in pieces


def test_a_turn_is_written_anew_where_its_own_tokens_do_not_fit() -> None:
    thought = turn("assistant", "A", reasoning="R", spoken=Spoken((7,), SPOKEN))
    at_once = turn("assistant", "A", spoken=Spoken((7,), "A<|close|>response<|sep|><|close|>message<|sep|>"))
    anew = HEAD + "<|open|>response<|sep|>A<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>"
    assert k3(HI, thought, thinking=False, cue="none") == k3(HI, at_once, thinking=False, cue="none") == USER + anew
    empty = anew.replace("<|open|>response", "<|open|>think<|sep|><|close|>think<|sep|><|open|>response")
    assert k3(HI, at_once, cue="none") == EFFORT.format("max") + USER + empty

    def own(thinking: bool, said: Turn) -> bool:
        pieces = KIMI.render(KIMI_K3, Conversation((HI, said)), TurnOptions(thinking=thinking)).pieces
        return any(isinstance(piece, Spoken) for piece in pieces)

    assert [own(True, thought), own(False, thought), own(True, at_once), own(False, at_once)] == [True, False, False, True]


def test_a_continued_turn_is_written_by_the_template() -> None:
    written = turn("assistant", "A", reasoning="R", spoken=Spoken((7,), SPOKEN))
    assert k3(HI, written, cue="continue").endswith("<|open|>think<|sep|>R<|close|>think<|sep|><|open|>response<|sep|>A")


@pytest.mark.parametrize("turns", [(), (HI,), (turn("assistant", "A", calls=(ToolCall("look", {}),)),)])
def test_only_an_answer_can_be_continued(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        k3(*turns, cue="continue")


def test_the_outer_model_type_tells_the_variant() -> None:
    k3_config = {"model_type": "kimi_k3", "text_config": {"model_type": "kimi_linear"}}
    assert KIMI.variant_for(checkpoint(**k3_config)) == KIMI_K3
    assert KIMI.variant_for(checkpoint(model_type="kimi_linear")) == KIMI_LINEAR
    assert KIMI.variant_for(checkpoint(model_type="kimi_k2")) is None
    assert KIMI.variant_for(checkpoint(text_config={"model_type": "kimi_linear"})) is None


def test_the_vocabulary_is_the_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither a tokenizer\.json nor a tiktoken\.model"):
        KIMI.tokenizer(checkpoint(tmp_path))
    for name in ("tiktoken.model", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
        assert KIMI.tokenizer(checkpoint(tmp_path)).file == str(tmp_path / name)


def test_pieces_of_text_are_split_into_tokens_one_by_one() -> None:
    """So that no token reaches from an attribute's quotes into its value, nor from one part of a message into the next."""
    said = Turn("user", (TextPart("a"), TextPart(""), TextPart("b")), name="_x")
    pieces = KIMI.render(KIMI_K3, Conversation((said,)), TurnOptions(thinking=False, cue="none")).pieces
    opened = [Special("<|open|>"), *map(Text, ("message", " role", '="', "user", '"', " name", '="', "_x", '"'))]
    assert list(pieces[:-4]) == [*opened, Special("<|sep|>"), Text("a"), Text("b")]
