"""What the golden prompts do not show: variants, demands, past turns as they were generated, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colibri.api.openai.cases import render_case
from colibri.chat.conversation import Conversation, MediaPart, TextPart, Tool, ToolCall, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Special, Spoken
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import BadRequest, CheckpointError
from colibri.family import Variant
from colibri_mimo import Mimo
from colibri_mimo.variants import MIMO_V2_5, MIMO_V2_6, MIMO_V2_FLASH

MIMO = Mimo()
TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name}}) for name in ("look", "find"))
USER = Turn("user", (TextPart("Hi"),))
ASKED = "<|im_start|>user\nHi<|im_end|><|im_start|>assistant\n"
PERSONA = "<|im_start|>system\nYou are MiMo, a helpful AI assistant engineered by Xiaomi.<|im_end|>"


def rendered(variant: Variant, *turns: Turn, tools: tuple[Tool, ...] = (), **options: Any) -> str:
    return MIMO.render(variant, Conversation(turns, tools), TurnOptions(**options)).text


def model(text: str, **fields: Any) -> Turn:
    return Turn("assistant", (TextPart(text),), **fields)


def checkpoint(path: Path, model_type: str = "mimo_v2") -> Checkpoint:
    return Checkpoint(path, "safetensors", {"model_type": model_type}, {}, {})


def test_a_demand_is_one_line_in_the_tool_block() -> None:
    free = rendered(MIMO_V2_6, USER, tools=TOOLS)
    demanded = rendered(MIMO_V2_6, USER, tools=TOOLS, tool_choice=ToolChoice("required"))
    line = "\n</tools>\nYou must call one of the functions above. Do not answer directly.<|im_end|>"
    assert demanded == free.replace("\n</tools><|im_end|>", line, 1)
    named = rendered(MIMO_V2_6, USER, tools=TOOLS, tool_choice=ToolChoice("named", "find"))
    assert named == rendered(MIMO_V2_6, USER, tools=TOOLS[1:], tool_choice=ToolChoice("required"))


def test_tags_are_control_tokens_as_far_as_the_vocabulary_has_them() -> None:
    turns = (USER, model("x", calls=(ToolCall("look", {"x": "<think>", "n": 1}),)))
    pieces = MIMO.render(MIMO_V2_6, Conversation(turns, TOOLS), TurnOptions(cue="none")).pieces
    assert [piece.token for piece in pieces if isinstance(piece, Special)] == [
        *("<|im_start|>", "<|im_end|>") * 2,
        *("<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>"),
    ]


@pytest.mark.parametrize("role", ["system", "developer", "tool", "user"])
def test_every_role_is_printed_as_it_is_given(role: Any) -> None:
    assert rendered(MIMO_V2_6, Turn(role, (TextPart(" a\n"),)), cue="none") == f"<|im_start|>{role}\n a\n<|im_end|>"


def test_arguments_that_were_no_object_stay_what_they_were() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": "[1, 2"}}
    case = {"messages": [{"role": "assistant", "tool_calls": [call]}], "add_generation_prompt": False}
    answer = "<|im_start|>assistant\n<think></think><tool_call><function=look>[1, 2</function></tool_call><|im_end|>"
    assert render_case(MIMO, MIMO_V2_6, case)["text"] == answer


def test_pictures_are_placeholders_and_sounds_have_no_words() -> None:
    seen = Turn("user", (TextPart("What is "), MediaPart("image"), TextPart("?")))
    text = "<|im_start|>user\nWhat is <|vision_start|><|image_pad|><|vision_end|>?<|im_end|>"
    assert rendered(MIMO_V2_6, seen, cue="none") == text
    with pytest.raises(BadRequest, match="audio") as caught:
        rendered(MIMO_V2_6, USER, Turn("user", (MediaPart("audio"),)))
    assert caught.value.param == "messages.1.content"


@pytest.mark.parametrize("turns", [(), (USER,), (USER, model("x", calls=(ToolCall("look", {}),)))])
def test_only_an_answer_without_calls_can_be_continued(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        rendered(MIMO_V2_6, *turns, cue="continue")


@pytest.mark.parametrize(
    ("thinking", "spoken", "printed"),
    [
        (True, "<think>r</think>x", "<think>r</think>x"),
        (True, "x", "x"),
        (False, "x", "<think></think>x"),
        (False, "<think>r</think>x", "<think>r</think>x"),
    ],
)
def test_a_generated_turn_follows_the_cue_it_was_generated_behind(thinking: bool, spoken: str, printed: str) -> None:
    turn = model("x", reasoning="r" if "r" in spoken else None, spoken=Spoken((1, 2), spoken))
    assert rendered(MIMO_V2_6, USER, turn, cue="none", thinking=thinking) == f"{ASKED}{printed}<|im_end|>"


def test_a_continued_turn_is_written_out_even_if_it_was_generated() -> None:
    turn = model("x", spoken=Spoken((1, 2), "x"))
    assert rendered(MIMO_V2_6, USER, turn, cue="continue") == f"{ASKED}<think></think>x"


def test_older_models_have_a_system_text_of_their_own() -> None:
    assert rendered(MIMO_V2_5, USER) == PERSONA + ASKED
    assert rendered(MIMO_V2_5, Turn("system", (TextPart(""),)), USER) == "<|im_start|>system\n<|im_end|>" + ASKED
    late = (USER, Turn("system", (TextPart("S"),)))
    assert rendered(MIMO_V2_5, *late, cue="none").startswith(PERSONA)
    assert rendered(MIMO_V2_6, USER) == ASKED


def test_only_the_first_model_has_to_be_told_to_think() -> None:
    silent = {variant.name: rendered(variant, USER).endswith("<think></think>") for variant in MIMO.variants()}
    assert silent == {"mimo-v2.6": False, "mimo-v2.5": False, "mimo-v2-flash": True}
    assert rendered(MIMO_V2_FLASH, USER, thinking=True) == PERSONA + ASKED


def test_older_models_have_no_words_for_tools() -> None:
    call = model("", calls=(ToolCall("look", {}),))
    for turns, tools in (((USER,), TOOLS), ((USER, call), ()), ((Turn("tool", (TextPart("x"),)),), ())):
        with pytest.raises(BadRequest, match=r"MiMo-V2\.5 has no words for tools"):
            rendered(MIMO_V2_5, *turns, tools=tools)
    assert rendered(MIMO_V2_5, USER, tools=TOOLS, tool_choice=ToolChoice("none")) == PERSONA + ASKED


def test_the_config_tells_the_variant_and_the_template_where_that_is_not_enough(tmp_path: Path) -> None:
    assert MIMO.variant_for(checkpoint(tmp_path, "qwen2")) is None
    assert MIMO.variant_for(checkpoint(tmp_path, "mimo_v2_flash")) == MIMO_V2_FLASH
    assert MIMO.variant_for(checkpoint(tmp_path)) == MIMO_V2_6
    (tmp_path / "chat_template.jinja").write_text("You are provided with the following tools")
    assert MIMO.variant_for(checkpoint(tmp_path)) == MIMO_V2_6
    (tmp_path / "tokenizer_config.json").write_text(
        '{"chat_template": "You are MiMo, a helpful AI assistant engineered by Xiaomi."}'
    )
    assert MIMO.variant_for(checkpoint(tmp_path)) == MIMO_V2_5


def test_the_vocabulary_is_the_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        MIMO.tokenizer(checkpoint(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert MIMO.tokenizer(checkpoint(tmp_path)).file == str(tmp_path / "tokenizer.json")


def test_sampling_is_what_the_makers_recommend() -> None:
    sampled = [(s.temperature, s.top_p) for s in (MIMO.sampling(v, TurnOptions()) for v in MIMO.variants())]
    assert sampled == [(1.0, 0.95), (1.0, 0.95), (0.8, 0.95)]
