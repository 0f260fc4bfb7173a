"""The forward passes against transformers 5.24, which made the models of tests/data with random weights and ran them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colibri_glm
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, load_runtime
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri.testing.compute import ComputeConformance
from colibri.testing.drive import logits_of
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.published import Encoder, fp8, republish
from colibri.testing.storage import values_of
from colibri_glm import Glm

DATA = Path(__file__).parent / "data"
MODELS = {name: DATA / name for name in ("glm_moe_dsa", "glm5_next")}


class TestGlm(ComputeConformance):
    plugin = colibri_glm
    family = "glm"
    models = MODELS


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def arrays_of(name: str) -> dict[str, np.ndarray]:
    return {tensor.name: values_of(tensor) for tensor in open_checkpoint(DATA / name).tensors.values()}


def in_fp8(name: str) -> Encoder | None:
    """How the FP8 releases store a tensor: matrices of attention and of experts in 8 bits, all else as it was."""
    return fp8 if re.search(r"language_model|^model\.layers", name) and re.search(r"_proj\.weight$", name) else None


@pytest.mark.parametrize("name", MODELS)
def test_the_fp8_release_of_a_model(name: str, tmp_path: Path) -> None:
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    quantised, plain = republish(DATA / name, tmp_path, in_fp8, config)
    _, tensors = declare(Glm(), open_checkpoint(quantised))
    assert sum(tensor.dtype == "e4m3" for tensor in tensors.values()) > 100
    with np.load(DATA / name / "reference.npz") as reference:
        ids, original = reference["prompt_ids"].tolist(), reference["logits_full"]
    found = logits_of(load_runtime(Glm(), open_checkpoint(quantised), context=64), ids)
    expected = logits_of(InterpretedRuntime(*declare(Glm(), open_checkpoint(plain)), context=64), ids)
    assert np.abs(found - expected).max() < 2e-3
    # It is still much the same model; where a choice of experts or positions was close, it may fall otherwise.
    assert np.median([np.corrcoef(a, b)[0, 1] for a, b in zip(found, original, strict=True)]) > 0.8


@pytest.mark.parametrize("name", MODELS)
def test_drafting_layers_and_vision_are_left_alone(name: str, tmp_path: Path) -> None:
    prefix = "model.language_model" if name == "glm5_next" else "model"
    more = {f"{prefix}.layers.5.eh_proj.weight": np.ones((64, 128)), "model.visual.patch_embed.proj.bias": np.ones(3)}
    write_checkpoint(tmp_path, config_of(name), {**arrays_of(name), **more})
    plan, tensors = declare(Glm(), open_checkpoint(tmp_path))
    assert plan == declare(Glm(), open_checkpoint(DATA / name))[0]
    assert not any("visual" in tensor or "layers.5" in tensor for tensor in tensors)


def test_a_language_model_without_vision_has_shorter_names(tmp_path: Path) -> None:
    arrays = {name.replace(".language_model", ""): values for name, values in arrays_of("glm5_next").items()}
    write_checkpoint(tmp_path, config_of("glm5_next")["text_config"], arrays)
    alone, whole = (declare(Glm(), open_checkpoint(folder))[0] for folder in (tmp_path, DATA / "glm5_next"))
    assert alone.nodes == whole.nodes
    assert [w.name for w in alone.weights] == [w.name.replace(".language_model", "") for w in whole.weights]


def test_layers_share_the_choice_of_the_last_indexer() -> None:
    plan, _ = declare(Glm(), open_checkpoint(DATA / "glm_moe_dsa"))
    choices = [node.inputs[3] for node in plan.nodes if node.op == "attention"]
    made = [node.out for node in plan.nodes if node.op == "select"]
    assert choices == [made[0], made[1], made[1], made[1], made[2]]


def test_tied_embeddings(tmp_path: Path) -> None:
    arrays = arrays_of("glm_moe_dsa")
    del arrays["lm_head.weight"]
    write_checkpoint(tmp_path, {**config_of("glm_moe_dsa"), "tie_word_embeddings": True}, arrays)
    plan, _ = declare(Glm(), open_checkpoint(tmp_path))
    assert plan.nodes[-1].weights[0] == plan.nodes[0].weights[0]


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("glm_moe_dsa", {"num_hidden_layers": 6, "indexer_types": None},
         "tensor 'model.layers.2.self_attn.indexer.wq_b.weight': is missing"),
        ("glm_moe_dsa", {"vocab_size": 300},
         "tensor 'model.embed_tokens.weight': weight: has shape [256, 64], 300 rows are needed"),
        ("glm_moe_dsa", {"n_routed_experts": 9}, "tensor 'model.layers.1.mlp.gate.weight': weight: has shape [8, 64]"),
        ("glm_moe_dsa", {"num_attention_heads": 5}, "kv_b_proj.weight': weight: has shape [128, 32], 160 rows are needed"),
        ("glm_moe_dsa", {"index_head_dim": 32}, "k_norm.weight': rope: gives 16 values a row, no whole heads of 32"),
        ("glm_moe_dsa", {"kv_lora_rank": 33}, "kv_a_proj_with_mqa.weight': weight: has shape [40, 64], 41 rows are needed"),
        ("glm5_next", {"linear_attn_config": {"num_heads": 3}}, "q_conv1d.weight': has shape [64, 1, 4], [48, 4] is needed"),
        ("glm5_next", {"hc_mult": 3}, "hc_attn_fn': linear: takes 256 values a row, it is given 192"),
        ("glm5_next", {"index_kpool": 2}, "index_kpool_compress_ape': pool: has shape [4, 16], [2, 16] is needed"),
    ],
)  # fmt: skip
def test_a_configuration_that_does_not_fit_the_weights(
    name: str, edit: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = config_of(name)
    text = config.get("text_config", config)
    for key, value in edit.items():
        text[key] = {**text[key], **value} if isinstance(value, dict) else value
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(DATA / name / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        declare(Glm(), open_checkpoint(tmp_path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
