"""What the golden prompts do not show: effort, demands, turns the model wrote, refusals, control tokens."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Special, Spoken
from colibri.errors import BadRequest
from colibri.family import Sampling, Variant
from colibri_qwen import Qwen
from colibri_qwen.variants import QWEN3_6, QWEN3_8, QWEN3_8_FLASH_NEXT

QWEN = Qwen()
TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name}}) for name in ("look", "find"))
OPEN, SHUT = "<think>\n", "<think>\n\n</think>\n\n"
LOW = "Reasoning effort is set to low."


def turn(role: Any, text: str | None = None, **fields: Any) -> Turn:
    return Turn(role, None if text is None else (TextPart(text),), **fields)


USER, MORE = turn("user", "Hi"), turn("user", "And?")


def rendered(variant: Variant, *turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> str:
    return QWEN.render(variant, Conversation(turns, tools), TurnOptions(**options)).text


def answer(variant: Variant, *turns: Turn, **options: Any) -> str:
    """How the first answer of a conversation is printed."""
    return rendered(variant, *turns, **options).split("<|im_start|>assistant\n")[1].partition("<|im_end|>")[0]


# Effort.


def test_effort_is_said_before_all_else_and_only_while_thinking() -> None:
    system = turn("system", "Be terse.")
    assert rendered(QWEN3_8, system, USER, effort="low").startswith(f"<|im_start|>system\n{LOW}")
    assert rendered(QWEN3_8, system, USER, effort="low", tools=TOOLS).startswith(f"<|im_start|>system\n{LOW}")
    assert rendered(QWEN3_8, system, USER, effort="medium").startswith("<|im_start|>system\nBe terse.<|im_end|>")
    assert rendered(QWEN3_8, USER, effort="medium").startswith("<|im_start|>user")
    assert rendered(QWEN3_8, USER, effort="low", thinking=False).startswith("<|im_start|>user")
    assert rendered(QWEN3_6, USER, effort="low") == rendered(QWEN3_6, USER)


def test_other_words_for_effort_are_refused_while_thinking() -> None:
    with pytest.raises(BadRequest, match=r"Unexpected reasoning effort high\. Supported types are xhigh") as refused:
        rendered(QWEN3_8, USER, effort="high")
    assert refused.value.param == "reasoning_effort"
    assert rendered(QWEN3_8, USER, effort="high", thinking=False) == rendered(QWEN3_8, USER, thinking=False)


def test_what_is_claimed_are_the_words_of_the_template() -> None:
    for variant in (QWEN3_8, QWEN3_8_FLASH_NEXT):
        assert [len(rendered(variant, USER, effort=word)) > 0 for word in variant.capabilities.efforts] == [True] * 3
        assert variant.capabilities.thinks
    assert not QWEN3_6.capabilities.thinks


# Tools.


@pytest.mark.parametrize("system", ["", "Be terse."])
def test_a_demand_is_one_line_in_the_tool_block(system: str) -> None:
    turns = (turn("system", system), USER)
    free = rendered(QWEN3_6, *turns, tools=TOOLS)
    demanded = rendered(QWEN3_6, *turns, tools=TOOLS, tool_choice=ToolChoice("required"))
    line = "\nYou must call one of the functions above. Do not answer directly."
    assert demanded == free.replace("</IMPORTANT>", f"</IMPORTANT>{line}", 1)
    named = rendered(QWEN3_6, *turns, tools=TOOLS, tool_choice=ToolChoice("named", "find"))
    assert named == rendered(QWEN3_6, *turns, tools=TOOLS[1:], tool_choice=ToolChoice("required"))


def test_tags_of_the_template_are_control_tokens_and_those_of_clients_are_text() -> None:
    tags = "<think></think><tool_call></tool_call><tool_response></tool_response><|im_end|><|image_pad|>"
    calls = (ToolCall("look", {"x": tags}),)
    turns = (turn("system", tags), turn("user", f"a{tags}"), turn("assistant", tags, calls=calls, reasoning=tags))
    prompt = QWEN.render(QWEN3_8, Conversation((*turns, turn("tool", tags), MORE), TOOLS), TurnOptions())
    specials = [piece.token for piece in prompt.pieces if isinstance(piece, Special)]
    block, frame = ["<tool_call>", "</tool_call>"], ["<|im_start|>", "<|im_end|>"]
    said = ["<|im_start|>", "<think>", "</think>", *block, "<|im_end|>"]
    result = ["<|im_start|>", "<tool_response>", "</tool_response>", "<|im_end|>"]
    assert specials == ["<|im_start|>", *block * 2, "<|im_end|>", *frame, *said, *result, *frame, "<|im_start|>", "<think>"]


def test_arguments_that_were_no_object_are_none() -> None:
    calls = [(ToolCall("look", {}), ToolCall("look", what)) for what in ("[1]", "{", {})]
    assert len({rendered(QWEN3_6, USER, turn("assistant", calls=call)) for call in calls}) == 1


def test_a_result_given_as_a_user_message_is_no_question() -> None:
    told = turn("assistant", "18", reasoning="sunny")
    result = turn("user", " <tool_response>18</tool_response>\n")
    assert answer(QWEN3_6, USER, told, result) == "<think>\nsunny\n</think>\n\n18"
    assert answer(QWEN3_6, USER, told, MORE) == "18"
    with pytest.raises(BadRequest, match="No user query found"):
        rendered(QWEN3_6, result)


# Reasoning.


def test_reasoning_inside_the_text_is_told_from_it_only_where_the_template_does() -> None:
    inline = turn("assistant", "<think>\n easy \n</think>\n\n 4")
    assert answer(QWEN3_6, USER, inline) == "<think>\neasy\n</think>\n\n 4"
    assert answer(QWEN3_8, USER, inline) == f"{SHUT}<think>\n easy \n</think>\n\n 4"
    field = turn("assistant", "a</think>b", reasoning="")
    assert answer(QWEN3_6, USER, field) == f"{SHUT}a</think>b"


@pytest.mark.parametrize(("variant", "kept"), [(QWEN3_6, False), (QWEN3_8, True)])
def test_past_reasoning_is_kept_as_the_template_likes_unless_the_client_says(variant: Variant, kept: bool) -> None:
    told = turn("assistant", "4", reasoning="easy")
    shown = {True: "<think>\neasy\n</think>\n\n4", False: "4"}
    assert answer(variant, USER, told, MORE) == shown[kept]
    assert answer(variant, USER, told, MORE, thinking=False) == shown[kept]
    for keeps in (True, False):
        assert answer(variant, USER, told, MORE, preserve_thinking=keeps) == shown[keeps]


# Turns the model wrote.


def spoken(text: str, **fields: Any) -> Turn:
    return turn("assistant", fields.pop("content", "shown"), spoken=Spoken((1, 2), text), **fields)


def test_what_the_model_wrote_stands_behind_the_cue_it_was_written_behind() -> None:
    for thinking in (True, False):
        thought = spoken("easy\n</think>\n\n4", reasoning="easy")
        at_once = spoken("4")
        assert answer(QWEN3_8, USER, thought, MORE, thinking=thinking) == f"{OPEN}easy\n</think>\n\n4"
        assert answer(QWEN3_8, USER, at_once, MORE, thinking=thinking) == f"{SHUT}4"
        assert answer(QWEN3_6, USER, spoken("\n</think>\n\n4"), MORE, thinking=thinking) == f"{OPEN}\n</think>\n\n4"


@pytest.mark.parametrize(("thinking", "lead"), [(True, OPEN), (False, SHUT)])
def test_a_call_may_end_reasoning_that_is_still_empty(thinking: bool, lead: str) -> None:
    call = spoken("<tool_call>…", content=None, calls=(ToolCall("look", {}),))
    assert answer(QWEN3_6, USER, call, MORE, thinking=thinking) == f"{lead}<tool_call>…"


def test_what_was_thought_is_not_said_again_where_past_reasoning_is_dropped() -> None:
    thought = spoken("easy\n</think>\n\n4", reasoning="easy")
    assert answer(QWEN3_6, USER, thought, MORE) == "shown"
    assert answer(QWEN3_6, USER, thought, MORE, preserve_thinking=True) == f"{OPEN}easy\n</think>\n\n4"
    assert answer(QWEN3_6, USER, thought, cue="none") == f"{OPEN}easy\n</think>\n\n4"


def test_a_continued_turn_is_rendered_from_its_text() -> None:
    assert answer(QWEN3_6, USER, spoken("4"), cue="continue") == f"{SHUT}shown"


# Refusals, in the template's words.


@pytest.mark.parametrize(
    ("turns", "reason", "param"),
    [
        ((), "No messages provided", "messages"),
        ((turn("system", "S"),), "No user query found in messages", "messages"),
        ((USER, turn("system", "S")), "System message must be at the beginning", "messages.1.role"),
        ((turn("developer", "D"), USER), "Unexpected message role", "messages.0.role"),
        ((Turn("system", (MediaPart("image"),)), USER), "System message cannot contain images", "messages.0.content"),
        ((Turn("user", (MediaPart("audio"),)),), "Unexpected item type in content", "messages.0.content"),
    ],
)
def test_what_the_template_refuses_is_refused(turns: tuple[Turn, ...], reason: str, param: str) -> None:
    for variant in (QWEN3_6, QWEN3_8):
        with pytest.raises(BadRequest, match=reason) as refused:
            rendered(variant, *turns)
        assert refused.value.param == param


def test_blanks_around_an_image_are_trimmed_only_at_the_ends() -> None:
    parts = (TextPart(" a "), MediaPart("image"), TextPart(" b "))
    assert "user\na <|vision_start|><|image_pad|><|vision_end|> b<|im_end|>" in rendered(QWEN3_6, Turn("user", parts))


def test_sampling_is_what_the_makers_recommend() -> None:
    thinks, answers = Sampling(1.0, 0.95, 20), Sampling(0.7, 0.8, 20)
    assert QWEN.sampling(QWEN3_6, TurnOptions(thinking=True)) == thinks
    assert QWEN.sampling(QWEN3_6, TurnOptions(thinking=False)) == answers
    assert QWEN.sampling(QWEN3_8, TurnOptions(thinking=False)) == thinks
