"""What the golden prompts do not show: demands, refusals, turns the model wrote, and which variant a checkpoint is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Piece, Special, Spoken, Text
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import BadRequest, CheckpointError
from colibri.family import Variant
from colibri_deepseek import DeepSeek
from colibri_deepseek.variants import V3_2, V3_2_EXP, V4

DEEPSEEK = DeepSeek()
TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name}}) for name in ("look", "find"))
DEMAND = "You must call one of the functions above. Do not answer directly.\n"
BOTH = pytest.mark.parametrize("variant", [V4, V3_2])


def turn(role: Any, text: str, **fields: Any) -> Turn:
    return Turn(role, (TextPart(text),), **fields)


def spoken(text: str, shown: str, reasoning: str | None = None, **fields: Any) -> Turn:
    return turn("assistant", shown, reasoning=reasoning, spoken=Spoken((7,), text), **fields)


USER = turn("user", "Hi")


def pieces(variant: Variant, *turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> tuple[Piece, ...]:
    return DEEPSEEK.render(variant, Conversation(turns, tools), TurnOptions(**options)).pieces


def rendered(variant: Variant, *turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> str:
    return DEEPSEEK.render(variant, Conversation(turns, tools), TurnOptions(**options)).text


def test_v4_thinks_and_v3_2_does_not_where_nothing_is_said() -> None:
    assert rendered(V4, USER) == "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜><think>"
    assert rendered(V3_2, USER) == "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>"


@BOTH
def test_a_demand_is_one_line_behind_the_tool_block(variant: Variant) -> None:
    free = rendered(variant, USER, tools=TOOLS)
    demanded = rendered(variant, USER, tools=TOOLS, tool_choice=ToolChoice("required"))
    assert demanded == free.replace("<｜User｜>", f"{DEMAND}<｜User｜>")
    named = rendered(variant, USER, tools=TOOLS, tool_choice=ToolChoice("named", "find"))
    assert named == rendered(variant, USER, tools=TOOLS[1:], tool_choice=ToolChoice("required"))


@BOTH
def test_a_finished_answer_is_followed_by_a_new_one(variant: Variant) -> None:
    talk = (USER, turn("assistant", "Hello.", reasoning="hm"))
    assert rendered(variant, *talk, thinking=True).endswith("Hello.<｜end▁of▁sentence｜><｜Assistant｜><think>")
    assert rendered(variant, *talk, thinking=False).endswith("Hello.<｜end▁of▁sentence｜><｜Assistant｜></think>")


@BOTH
def test_nothing_is_opened_without_a_cue(variant: Variant) -> None:
    assert rendered(variant, USER, cue="none") == "<｜begin▁of▁sentence｜><｜User｜>Hi"
    call = turn("assistant", "", calls=(ToolCall("look", {}),))
    assert rendered(variant, USER, call, turn("tool", "x"), cue="none").rpartition("x")[2] in (
        "</tool_result>",
        "</result>\n</function_results>",
    )


@BOTH
def test_tags_of_the_template_are_control_tokens(variant: Variant) -> None:
    talk = (USER, turn("assistant", "", calls=(ToolCall("look", {"x": "</｜DSML｜parameter>"}),)), turn("tool", "<think>"))
    found = pieces(variant, *talk, tools=TOOLS, thinking=True)
    text = "".join(piece.text for piece in found if isinstance(piece, Text))
    assert text.count("｜DSML｜") == 1, "only what the call's argument spells is text"
    assert text.count("<think>") == 1
    assert {piece.token for piece in found if isinstance(piece, Special)} == {
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<think>",
        "</think>",
        "｜DSML｜",
    }


@BOTH
@pytest.mark.parametrize("arguments", ['{"x": ', "[1]"])
def test_arguments_that_are_no_object_are_one_parameter(variant: Variant, arguments: str) -> None:
    call = turn("assistant", "", calls=(ToolCall("look", arguments),))
    assert f'parameter name="arguments" string="true">{arguments}</' in rendered(variant, USER, call)


# Turns the model wrote.


@pytest.mark.parametrize(
    ("written", "options", "kept"),
    [
        # Behind an open block: what began with reasoning, even none, but not what was written without.
        (spoken("hm</think>A", "A", "hm"), {"preserve_thinking": True}, True),
        (spoken("</think>A", "A"), {"preserve_thinking": True}, True),
        (spoken("A", "A"), {"preserve_thinking": True}, False),
        # Behind a closed block: what was written without reasoning, but not what began with some, now dropped.
        (spoken("A", "A"), {}, True),
        (spoken("A", "A"), {"thinking": False}, True),
        (spoken("hm</think>A", "A", "hm"), {}, False),
        (spoken("</think>A", "A"), {"thinking": False}, False),
    ],
)
def test_what_the_model_wrote_stands_where_it_was_written(written: Turn, options: Any, kept: bool) -> None:
    found = pieces(V4, USER, written, USER, **options)
    assert (Spoken((7,), written.spoken.text) in found) is kept if written.spoken else False
    plain = Turn("assistant", written.content, written.reasoning)
    expected = rendered(V4, USER, plain, USER, **options)
    assert rendered(V4, USER, written, USER, **options) == expected


def test_v3_2_keeps_what_was_written_behind_the_last_request() -> None:
    call = spoken("hm</think>\n\n<…>", "", "hm", calls=(ToolCall("look", {}),))
    found = pieces(V3_2, USER, call, turn("tool", "x"), tools=TOOLS, thinking=True)
    assert call.spoken in found
    assert call.spoken not in pieces(V3_2, USER, call, turn("tool", "x"), USER, tools=TOOLS, thinking=True)


# Refusals.


def test_efforts_are_the_templates_own() -> None:
    with pytest.raises(BadRequest, match="Invalid reasoning effort: medium, expected one of low, high, max") as caught:
        rendered(V4, USER, effort="medium")
    assert caught.value.param == "reasoning_effort"


@BOTH
@pytest.mark.parametrize(
    "turns",
    [
        (USER,),
        (USER, turn("assistant", "A", calls=(ToolCall("look", {}),))),
    ],
)
def test_only_an_answer_can_be_continued(variant: Variant, turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        rendered(variant, *turns, cue="continue")


@BOTH
def test_developer_messages_must_have_text(variant: Variant) -> None:
    with pytest.raises(BadRequest, match="Invalid message for role `developer`"):
        rendered(variant, turn("developer", ""))


@BOTH
def test_images_are_refused(variant: Variant) -> None:
    with pytest.raises(BadRequest, match="text only"):
        rendered(variant, Turn("user", (TextPart("x"), MediaPart("image"))))


def test_v4_names_an_image_among_results() -> None:
    result = Turn("tool", (TextPart("x"), MediaPart("image")))
    assert "<tool_result>x\n\n[Unsupported image]</tool_result>" in rendered(V4, USER, result)


def test_v3_2_has_no_results_without_calls() -> None:
    call = turn("assistant", "", calls=(ToolCall("look", {}),))
    for talk in ((USER, turn("tool", "x")), (USER, call, turn("tool", "x"), turn("tool", "y"))):
        with pytest.raises(BadRequest, match="No tool calls but found tool output"):
            rendered(V3_2, *talk)


def test_v3_2_thinks_behind_the_last_request_or_not_at_all() -> None:
    with pytest.raises(BadRequest, match="without reasoning_content"):
        rendered(V3_2, USER, turn("assistant", "A"), thinking=True, cue="continue")
    assert rendered(V3_2, USER, turn("assistant", "A"), cue="continue").endswith("</think>A")


def test_v3_2_exp_has_no_tools() -> None:
    for talk in (Conversation((USER,), TOOLS), Conversation((USER, turn("tool", "x")))):
        with pytest.raises(BadRequest, match="without tools"):
            DEEPSEEK.render(V3_2_EXP, talk, TurnOptions())
    assert rendered(V3_2_EXP, USER, thinking=True) == rendered(V3_2, USER, thinking=True)


# Checkpoints.


def checkpoint(model_type: str, path: Path = Path("model")) -> Checkpoint:
    return Checkpoint(path, "safetensors", {"model_type": model_type}, {}, {})


def test_the_configuration_tells_the_variant(tmp_path: Path) -> None:
    assert DEEPSEEK.variant_for(checkpoint("deepseek_v4", tmp_path)) == V4
    assert DEEPSEEK.variant_for(checkpoint("deepseek_v32", tmp_path)) == V3_2
    assert DEEPSEEK.variant_for(checkpoint("deepseek_v3", tmp_path)) is None


@pytest.mark.parametrize(("token", "variant"), [("｜DSML｜", V3_2), ("<think>", V3_2_EXP)])
def test_the_vocabulary_tells_v3_2_from_its_forerunner(tmp_path: Path, token: str, variant: Variant) -> None:
    (tmp_path / "tokenizer.json").write_text(f'{{"added_tokens": [{{"content": "{token}"}}]}}', encoding="utf-8")
    assert DEEPSEEK.variant_for(checkpoint("deepseek_v32", tmp_path)) == variant


def test_the_vocabulary_is_the_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        DEEPSEEK.tokenizer(checkpoint("deepseek_v4", tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert DEEPSEEK.tokenizer(checkpoint("deepseek_v4", tmp_path)).file == str(tmp_path / "tokenizer.json")
