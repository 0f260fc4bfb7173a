"""The forward pass against transformers (Kimi Linear), and against a float32 reference that was written from the description
of Kimi K3 and agrees with mlx-lm's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colibri_kimi
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, load_runtime
from colibri.errors import CheckpointError
from colibri.testing.compute import ComputeConformance
from colibri.testing.drive import logits_of
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.published import Encoder, fp8, int4, republish
from colibri_kimi import Kimi

DATA = Path(__file__).parent / "data"


class TestKimi(ComputeConformance):
    plugin = colibri_kimi
    family = "kimi"
    models = {name: DATA / name for name in ("kimi_linear", "kimi_k3", "kimi_k3_mxfp4")}


def edited(folder: Path, name: str, edit: dict[str, Any]) -> Path:
    """A model with another configuration; `edit` goes to its innermost object."""
    config = json.loads((DATA / name / "config.json").read_text())
    config.get("text_config", config).update(edit)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").symlink_to(DATA / name / "model.safetensors")
    return folder


def test_a_slot_remembers_latents_and_memories_but_no_keys() -> None:
    plan, _ = declare(Kimi(), open_checkpoint(DATA / "kimi_linear"))
    found = sorted((state.kind, state.width, state.window) for state in plan.states)
    delta = [("recurrent", 4 * 16 * 16, 0), *[("rows", 64, 4)] * 3]
    assert found == sorted([*delta * 3, ("rows", 32 + 8, 0)])


def test_the_first_layer_reads_the_residual_as_it_is() -> None:
    plan, _ = declare(Kimi(), open_checkpoint(DATA / "kimi_k3"))
    scored = {weight.name for weight in plan.weights if weight.name.endswith("_res_proj.weight")}
    layers = "language_model.model.layers"
    assert f"{layers}.0.self_attention_res_proj.weight" not in scored
    assert f"{layers}.0.mlp_res_proj.weight" in scored
    assert len(scored) == 2 * 5  # two for each layer but the first, which has one, and one behind all


def bulk(name: str) -> Encoder | None:
    """Products in 8-bit floats, experts in 4-bit integers; norms, routers and the like stay as they are."""
    if ".experts." in name:
        return int4
    return fp8 if re.search(r"(_proj|kv_a_proj_with_mqa)\.weight", name) and "_res_" not in name else None


@pytest.mark.parametrize("name", ["kimi_linear", "kimi_k3"])
def test_quantised_weights_are_computed_with_as_what_they_stand_for(name: str, tmp_path: Path) -> None:
    quantised, plain = republish(DATA / name, tmp_path, bulk, {"quantization_config": {"quant_method": "fp8"}})
    ids = list(range(4, 240, 7))
    found = logits_of(load_runtime(Kimi(), open_checkpoint(quantised), context=64), ids)
    plan, tensors = declare(Kimi(), open_checkpoint(plain))
    expected = logits_of(InterpretedRuntime(plan, tensors, context=64), ids)
    assert np.abs(found - expected).max() < 2e-3


def test_what_is_beside_the_language_model_is_left_alone(tmp_path: Path) -> None:
    def with_more(name: str) -> Encoder | None:
        if not name.endswith("lm_head.weight"):
            return None
        return lambda x: ({"X.weight": ("F32", x), "X_tower.layers.0.weight": ("F32", x[:3])}, x)

    quantised, plain = republish(DATA / "kimi_k3", tmp_path, with_more, {"vision_config": {"depth": 1}})
    hashes = {declare(Kimi(), open_checkpoint(folder))[0].hash() for folder in (quantised, plain)}
    assert len(open_checkpoint(quantised).tensors) == len(open_checkpoint(plain).tensors) + 1
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("kimi_k3", {"vocab_size": 300}, "weight: has shape [256, 64], 300 rows are needed"),
        ("kimi_k3", {"num_experts": 9}, "layers.1.block_sparse_moe.experts.8.w1.weight': is missing"),
        ("kimi_k3", {"num_experts": 7}, "block_sparse_moe.gate.weight': weight: has shape [8, 64], 7 rows are needed"),
        ("kimi_k3", {"q_lora_rank": None}, "layers.2.self_attn.q_proj.weight': is missing"),
        ("kimi_k3", {"routed_expert_hidden_size": None}, "takes 32 values a row, it is given 64"),
        ("kimi_k3", {"num_attention_heads": 8}, "kv_b_proj.weight': weight: has shape [128, 32], 256 rows are needed"),
        ("kimi_linear", {"kv_lora_rank": 16}, "kv_a_proj_with_mqa.weight': weight: has shape [40, 64], 24 rows are needed"),
        ("kimi_linear", {"qk_nope_head_dim": 8}, "kv_b_proj.weight': weight: has shape [128, 32], 96 rows are needed"),
        ("kimi_linear", {"first_k_dense_replace": 2}, "layers.1.mlp.gate_proj.weight': is missing"),
        ("kimi_linear", {"attn_res_block_size": 2}, "layers.0.mlp_res_norm.weight': is missing"),
    ],
)
def test_a_configuration_that_does_not_fit_the_weights(
    name: str, edit: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as caught:
        declare(Kimi(), open_checkpoint(edited(tmp_path, name, edit)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("heads", [3, 5, 8])
def test_heads_of_delta_attention_that_do_not_fit(heads: int, tmp_path: Path) -> None:
    linear = json.loads((DATA / "kimi_linear" / "config.json").read_text())["linear_attn_config"]
    folder = edited(tmp_path, "kimi_linear", {"linear_attn_config": {**linear, "num_heads": heads}})
    with pytest.raises(CheckpointError, match=r"self_attn\.q_conv1d\.weight"):
        declare(Kimi(), open_checkpoint(folder))


@pytest.mark.parametrize("make", [InterpretedRuntime, None])
def test_grouped_experts(make: Callable[..., Any] | None, tmp_path: Path) -> None:
    """With as many groups to choose from as there are, a choice by groups is the same as one without."""
    grouped = edited(tmp_path, "kimi_linear", {"num_expert_group": 2, "topk_group": 2})
    ids = list(range(4, 240, 7))
    found = []
    for folder in (grouped, DATA / "kimi_linear"):
        checkpoint = open_checkpoint(folder)
        plan, tensors = declare(Kimi(), checkpoint)
        runtime = make(plan, tensors, context=64) if make else load_runtime(Kimi(), checkpoint, context=64)
        found.append(logits_of(runtime, ids))
    assert (found[0] == found[1]).all()
