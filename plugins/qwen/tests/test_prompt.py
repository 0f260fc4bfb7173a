"""What the golden prompts do not show: variants, demands, refusals, where a checkpoint's words come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colibri.chat.conversation import Conversation, TextPart, Tool, ToolChoice, Turn, TurnOptions
from colibri.chat.prompt import Special
from colibri.compute.checkpoint import Checkpoint
from colibri.errors import BadRequest, CheckpointError
from colibri.family import Variant
from colibri_qwen import Qwen
from colibri_qwen.variants import QWEN2, QWEN2_5, QWEN2_5_CODER

QWEN = Qwen()
TOOLS = tuple(Tool(name, {"type": "function", "function": {"name": name}}) for name in ("look", "find"))
USER = Turn("user", (TextPart("Hi"),))
DEMAND = "\n</tool_call>\nYou must call one of the functions above. Do not answer directly.<|im_end|>\n"


def rendered(variant: Variant, talk: Conversation, **options: Any) -> str:
    return QWEN.render(variant, talk, TurnOptions(**options)).text


def checkpoint(metadata: dict[str, Any] | None, path: Path = Path("model"), model_type: str = "qwen2") -> Checkpoint:
    if metadata is None:
        return Checkpoint(path, "safetensors", {"model_type": model_type}, {}, {})
    return Checkpoint(path, "gguf", {}, {"general.architecture": model_type, **metadata}, {})


def test_qwen2_has_another_persona_and_no_tools() -> None:
    assert rendered(QWEN2, Conversation((USER,))) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    for talk in (Conversation((USER,), TOOLS), Conversation((USER, Turn("tool", (TextPart("x"),))))):
        with pytest.raises(BadRequest, match="no words for tools"):
            rendered(QWEN2, talk)


def test_a_demand_is_one_line_in_the_tool_block() -> None:
    talk = Conversation((USER,), TOOLS)
    free = rendered(QWEN2_5, talk)
    demanded = rendered(QWEN2_5, talk, tool_choice=ToolChoice("required"))
    assert demanded == free.replace("\n</tool_call><|im_end|>\n", DEMAND, 1)
    named = rendered(QWEN2_5, talk, tool_choice=ToolChoice("named", "find"))
    assert named == rendered(QWEN2_5, Conversation((USER,), TOOLS[1:]), tool_choice=ToolChoice("required"))


def test_tags_of_the_template_are_control_tokens_as_far_as_the_vocabulary_has_them() -> None:
    pieces = QWEN.render(QWEN2_5, Conversation((USER,), TOOLS), TurnOptions()).pieces
    specials = {piece.token for piece in pieces if isinstance(piece, Special)}
    assert specials == {"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"}


@pytest.mark.parametrize("turns", [(), (USER,)])
def test_only_an_answer_can_be_continued(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BadRequest, match="can be continued"):
        rendered(QWEN2_5, Conversation(turns), cue="continue")


@pytest.mark.parametrize(
    ("metadata", "variant"),
    [
        ({"general.basename": "Qwen2.5-Coder"}, QWEN2_5_CODER),
        ({"general.name": "Qwen2.5 Coder 7B Instruct"}, QWEN2_5_CODER),
        ({"general.name": "Qwen2.5 7B Instruct", "tokenizer.ggml.tokens": ["a", "<tool_call>"]}, QWEN2_5),
        ({}, QWEN2_5),
        ({"general.basename": "Qwen2", "tokenizer.ggml.tokens": ["a", "<|im_end|>"]}, QWEN2),
    ],
)
def test_gguf_metadata_tell_the_variant(metadata: dict[str, Any], variant: Variant) -> None:
    assert QWEN.variant_for(checkpoint(metadata, Path("some-coder.gguf"))) == variant
    assert QWEN.variant_for(checkpoint(metadata, model_type="llama")) is None


def test_safetensors_models_are_coders_unless_their_vocabulary_is_older(tmp_path: Path) -> None:
    assert QWEN.variant_for(checkpoint(None, tmp_path)) == QWEN2_5_CODER
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": [{"content": "<tool_call>"}]}')
    assert QWEN.variant_for(checkpoint(None, tmp_path)) == QWEN2_5_CODER
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": [{"content": "<|im_end|>"}]}')
    assert QWEN.variant_for(checkpoint(None, tmp_path)) == QWEN2


def test_the_vocabulary_is_the_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        QWEN.tokenizer(checkpoint(None, tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert QWEN.tokenizer(checkpoint(None, tmp_path)).file == str(tmp_path / "tokenizer.json")
    spec = QWEN.tokenizer(checkpoint({}, tmp_path / "m.gguf"))
    assert (spec.file, list(spec.splits), spec.nfc) == (str(tmp_path / "m.gguf"), ["qwen2"], True)
