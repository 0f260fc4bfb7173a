"""What the golden prompts do not show: refusals, demands, efforts, the model's own tokens, which model a checkpoint is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Piece, Special, Spoken, Text
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import BadRequest, CheckpointError
from colibri.family import Sampling, Variant
from colibri_glm import Glm
from colibri_glm.variants import GLM_5_2, GLM_5_3, GLM_5_3_FLASH, VARIANTS

GLM = Glm()
DEMAND = "\nYou must call one of the functions above. Do not answer directly."
THINK, THINK_END = Special("<think>"), Special("</think>")
ASSISTANT, USER = Special("<|assistant|>"), Special("<|user|>")


def said(role: Any, text: str, **fields: Any) -> Turn:
    return Turn(role, (TextPart(text),), **fields)


def tool(name: str, **function: Any) -> Tool:
    return Tool(name, {"type": "function", "function": {"name": name, **function}})


def rendered(variant: Variant, *turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> str:
    return GLM.render(variant, Conversation(turns, tools), TurnOptions(**options)).text


def pieces(variant: Variant, *turns: Turn, **options: Any) -> tuple[Piece, ...]:
    """What stands behind the effort line."""
    begun = GLM.render(variant, Conversation(()), TurnOptions(**{**options, "cue": "none"})).pieces
    whole = GLM.render(variant, Conversation(turns), TurnOptions(**options)).pieces
    assert whole[: len(begun)] == begun
    return whole[len(begun) :]


USER_TURN = said("user", "Hi")


@pytest.mark.parametrize(
    ("variant", "options", "line"),
    [
        (GLM_5_2, {}, "Max"),
        (GLM_5_2, {"effort": "high"}, "High"),
        (GLM_5_2, {"effort": "medium", "thinking": True}, "Max"),
        (GLM_5_2, {"effort": "high", "thinking": False}, None),
        (GLM_5_3, {"effort": "low"}, "Low"),
        (GLM_5_3, {"effort": "high", "thinking": False}, "High"),
        (GLM_5_3_FLASH, {"effort": "LOW"}, "Max"),
    ],
)
def test_the_effort_is_a_system_turn_of_its_own(variant: Variant, options: dict[str, Any], line: str | None) -> None:
    effort = f"<|system|>Reasoning Effort: {line}" if line else ""
    cue = "<|assistant|><think>" if line else "<|assistant|><think></think>"
    assert rendered(variant, USER_TURN, **options) == f"[gMASK]<sop>{effort}<|user|>Hi{cue}"


def test_the_efforts_claimed_are_those_that_make_different_prompts() -> None:
    for variant in VARIANTS:
        lines = [rendered(variant, USER_TURN, effort=effort) for effort in variant.capabilities.efforts]
        assert len(set(lines)) == len(lines)
        assert rendered(variant, USER_TURN) == lines[-1]


def test_a_demand_is_one_line_at_the_end_of_the_tool_block() -> None:
    tools = (tool("look"), tool("find"))
    for variant in VARIANTS:
        free = rendered(variant, USER_TURN, tools=tools)
        demanded = rendered(variant, USER_TURN, tools=tools, tool_choice=ToolChoice("required"))
        assert demanded == free.replace("...</tool_call>", "...</tool_call>" + DEMAND, 1)
        named = rendered(variant, USER_TURN, tools=tools, tool_choice=ToolChoice("named", "find"))
        assert named == rendered(variant, USER_TURN, tools=tools[1:], tool_choice=ToolChoice("required"))


def test_a_tool_is_printed_without_what_concerns_the_server_only() -> None:
    tools = (tool("look", strict=True, defer_loading=False), tool("find", defer_loading=True))
    assert '<tools>\n{"name": "look"}\n</tools>' in rendered(GLM_5_2, USER_TURN, tools=tools)
    assert "<tools>\n</tools>" in rendered(GLM_5_3, USER_TURN, tools=tools[1:])


def test_tags_of_calls_are_control_tokens_and_the_list_of_tools_is_text() -> None:
    prompt = GLM.render(GLM_5_2, Conversation((USER_TURN,), (tool("look"),)), TurnOptions())
    specials = [piece.token for piece in prompt.pieces if isinstance(piece, Special)]
    pair = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
    block = ["<|system|>", "<tool_call>", *pair, *pair, "</tool_call>"]
    assert specials == ["[gMASK]", "<sop>", "<|system|>", *block, "<|user|>", "<|assistant|>", "<think>"]


def test_results_stand_in_the_order_of_their_calls_where_the_ids_are_clear() -> None:
    def results(variant: Variant, calls: list[str | None], ids: list[str | None]) -> str:
        turn = said("assistant", "", calls=tuple(ToolCall("f", {}, id) for id in calls))
        text = rendered(variant, turn, *(said("tool", f"{n}", call_id=id) for n, id in enumerate(ids)), cue="none")
        return text.partition("<|observation|>")[2].replace("<tool_response>", "").replace("</tool_response>", " ").strip()

    assert results(GLM_5_2, ["a", "b"], ["b", "a"]) == "0 1"
    for variant in (GLM_5_3, GLM_5_3_FLASH):
        assert results(variant, ["a", "b"], ["b", "a"]) == "1 0"
        assert results(variant, ["a", "b", "c"], ["c", "a"]) == "1 0"
        for unclear in (["b", "x"], ["b", None], ["b", "b"], ["b", ""]):
            assert results(variant, ["a", "b"], unclear) == "0 1"
        for calls in ([None, "b", "a"], ["a", "b", "b"], ["", "a", "b"]):
            assert results(variant, calls, ["b", "a"]) == "0 1"


def test_a_picture_is_a_reminder_where_the_model_has_no_eyes() -> None:
    turn = Turn("user", (MediaPart("image"), TextPart("What?"), MediaPart("audio")))
    for variant in (GLM_5_2, GLM_5_3):
        text = rendered(variant, turn)
        assert "unable to process this image" in text
        assert "unable to process this audio" in text
    assert pieces(GLM_5_3_FLASH, turn)[:-2] == (
        USER,
        *map(Special, ("<|begin_of_image|>", "<|image|>", "<|end_of_image|>")),
        Text("What?"),
        *map(Special, ("<|begin_of_audio|>", "<|end_of_audio|>")),
    )


@pytest.mark.parametrize("turns", [(), (USER_TURN,), (USER_TURN, Turn("assistant", calls=(ToolCall("f", {}),)))])
def test_only_an_answer_without_calls_can_be_continued(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        rendered(GLM_5_2, *turns, cue="continue")


def test_a_past_call_whose_arguments_are_no_object_has_none() -> None:
    turns = [said("assistant", "", calls=(ToolCall("f", {}), ToolCall("f", what))) for what in ("[1]", "{", "{}")]
    assert len({rendered(GLM_5_3, USER_TURN, turn) for turn in turns}) == 1


# What the model wrote itself.


def test_a_thought_is_the_models_own_tokens_only_where_the_template_keeps_it() -> None:
    spoken = Spoken((1, 2), "why</think>because")
    turns = (USER_TURN, said("assistant", "because", reasoning="why", spoken=spoken), said("user", "V"))
    kept = (USER, Text("Hi"), ASSISTANT, THINK, spoken, USER, Text("V"), ASSISTANT, THINK)
    dropped = (USER, Text("Hi"), ASSISTANT, THINK, THINK_END, Text("because"), USER, Text("V"), ASSISTANT, THINK)
    assert pieces(GLM_5_2, *turns) == dropped
    assert pieces(GLM_5_2, *turns, preserve_thinking=True) == kept
    assert pieces(GLM_5_3, *turns) == kept
    assert pieces(GLM_5_3, *turns, preserve_thinking=False) == dropped


@pytest.mark.parametrize("thinking", [True, False])
def test_a_turn_stands_behind_the_cue_it_was_written_behind(thinking: bool) -> None:
    def opening(text: str, content: str) -> tuple[Piece, ...]:
        spoken = Spoken((1, 2), text)
        shown = pieces(GLM_5_2, USER_TURN, said("assistant", content, spoken=spoken), thinking=thinking, cue="none")
        assert shown[2] == ASSISTANT
        assert shown[-1] == spoken
        return shown[3:-1]

    assert opening("</think>Hello", "Hello") == (THINK,)
    assert opening("Hello", "Hello") == (THINK, THINK_END)
    assert opening("<tool_call>f</tool_call>", "") == ((THINK,) if thinking else (THINK, THINK_END))


def test_a_turn_to_be_continued_is_text_again() -> None:
    turn = said("assistant", "A b", reasoning="why", spoken=Spoken((1, 2), "why</think>A b"))
    assert pieces(GLM_5_3, USER_TURN, turn, cue="continue")[2:] == (ASSISTANT, THINK, Text("why"), THINK_END, Text("A b"))


# Which model it is.


def checkpoint(model_type: str, path: Path = Path("model")) -> Checkpoint:
    return Checkpoint(path, "safetensors", {"model_type": model_type}, {}, {})


def test_the_type_or_the_template_tells_the_variant(tmp_path: Path) -> None:
    assert GLM.variant_for(checkpoint("glm5_next", tmp_path)) == GLM_5_3_FLASH
    assert GLM.variant_for(checkpoint("glm5_next_text", tmp_path)) == GLM_5_3_FLASH
    assert GLM.variant_for(checkpoint("glm4_moe", tmp_path)) is None
    assert GLM.variant_for(checkpoint("glm_moe_dsa", tmp_path)) == GLM_5_2
    assert GLM.variant_for(checkpoint("glm_moe_dsa", tmp_path / "a-file" / "inside")) == GLM_5_2
    template = tmp_path / "chat_template.jinja"
    template.write_text("{%- set effort = 'high' if reasoning_effort == 'high' else 'max' -%}{# below, allow, slow #}")
    assert GLM.variant_for(checkpoint("glm_moe_dsa", tmp_path)) == GLM_5_2
    template.write_bytes(b"{%- set effort = reasoning_effort if reasoning_effort in ['low', 'high'] else 'max' -%}\xff")
    assert GLM.variant_for(checkpoint("glm_moe_dsa", tmp_path)) == GLM_5_3
    assert GLM.variant_for(checkpoint("glm5_next", tmp_path)) == GLM_5_3_FLASH


def test_a_template_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").mkdir()
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja: cannot be read"):
        GLM.variant_for(checkpoint("glm_moe_dsa", tmp_path))


def test_the_vocabulary_is_the_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        GLM.tokenizer(checkpoint("glm_moe_dsa", tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert GLM.tokenizer(checkpoint("glm_moe_dsa", tmp_path)).file == str(tmp_path / "tokenizer.json")


def test_sampling_is_the_makers() -> None:
    assert GLM.sampling(GLM_5_2, TurnOptions()) == Sampling(temperature=1.0, top_p=0.95)
