"""Which model a checkpoint is, and where its vocabulary lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.checkpoint import Checkpoint
from colibri.errors import CheckpointError
from colibri.family import Variant
from colibri_qwen import Qwen
from colibri_qwen.variants import QWEN2, QWEN2_5, QWEN2_5_CODER, QWEN3_6, QWEN3_8, QWEN3_8_FLASH_NEXT, QWEN3_NEXT

QWEN = Qwen()
EFFORT = "{%- set effort = reasoning_effort|default('xhigh') %}"


def gguf(metadata: dict[str, Any], path: Path = Path("model.gguf"), architecture: str = "qwen2") -> Checkpoint:
    return Checkpoint(path, "gguf", {}, {"general.architecture": architecture, **metadata}, {})


def folder(path: Path, model_type: str | None = "qwen2") -> Checkpoint:
    return Checkpoint(path, "safetensors", {"model_type": model_type}, {}, {})


@pytest.mark.parametrize("model_type", [None, "llama", "qwen3"])
def test_other_models_are_not_of_this_family(model_type: str | None, tmp_path: Path) -> None:
    assert QWEN.variant_for(folder(tmp_path, model_type)) is None
    assert QWEN.variant_for(gguf({}, architecture="llama")) is None


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
    assert QWEN.variant_for(gguf(metadata, Path("some-coder.gguf"))) == variant


def test_safetensors_models_are_coders_unless_their_vocabulary_is_older(tmp_path: Path) -> None:
    assert QWEN.variant_for(folder(tmp_path)) == QWEN2_5_CODER
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": [{"content": "<tool_call>"}]}')
    assert QWEN.variant_for(folder(tmp_path)) == QWEN2_5_CODER
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": [{"content": "<|im_end|>"}]}')
    assert QWEN.variant_for(folder(tmp_path)) == QWEN2


@pytest.mark.parametrize("model_type", ["qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"])
def test_the_template_tells_qwen3_8_from_qwen3_6(model_type: str, tmp_path: Path) -> None:
    assert QWEN.variant_for(folder(tmp_path, model_type)) == QWEN3_6
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": EFFORT}))
    assert QWEN.variant_for(folder(tmp_path, model_type)) == QWEN3_8
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert QWEN.variant_for(folder(tmp_path, model_type)) == QWEN3_6
    (tmp_path / "chat_template.jinja").write_text(EFFORT)
    assert QWEN.variant_for(folder(tmp_path, model_type)) == QWEN3_8


@pytest.mark.parametrize("model_type", ["qwen4_exp", "qwen4_exp_text"])
def test_qwen3_8_flash_next_has_an_architecture_of_its_own(model_type: str, tmp_path: Path) -> None:
    assert QWEN.variant_for(folder(tmp_path, model_type)) == QWEN3_8_FLASH_NEXT


@pytest.mark.parametrize("data", ["", "[", "[]", '{"chat_template": [{}]}', "[" * 100_000])
def test_a_faulty_tokenizer_configuration_tells_nothing(data: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(data)
    assert QWEN.variant_for(folder(tmp_path, "qwen3_5")) == QWEN3_6


def test_of_qwen3_next_only_instruct_is_known(tmp_path: Path) -> None:
    config = {"added_tokens_decoder": {"151667": {"content": "<think>"}}, "chat_template": "<tool_call>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert QWEN.variant_for(folder(tmp_path, "qwen3_next")) == QWEN3_NEXT
    for template in ("{{- '<think>\\n' }}", "<tool_call>\n<function=f>"):
        (tmp_path / "chat_template.jinja").write_text(template)
        with pytest.raises(CheckpointError, match="not that of Qwen3-Next-Instruct"):
            QWEN.variant_for(folder(tmp_path, "qwen3_next"))


def test_the_vocabulary_is_the_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        QWEN.tokenizer(folder(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert QWEN.tokenizer(folder(tmp_path)).file == str(tmp_path / "tokenizer.json")
    spec = QWEN.tokenizer(gguf({}, tmp_path / "m.gguf"))
    assert (spec.file, list(spec.splits), spec.nfc) == (str(tmp_path / "m.gguf"), ["qwen2", "qwen35"], True)
