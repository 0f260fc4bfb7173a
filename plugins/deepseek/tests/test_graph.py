"""The forward passes against transformers 5.24, which made the models of tests/data with random weights and ran them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colibri_deepseek
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, load_runtime
from colibri.compute.plan import Plan
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri.testing.compute import ComputeConformance
from colibri.testing.drive import logits_of
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.published import Encoder, fp8, fp8_short, mxfp4_short, republish
from colibri.testing.storage import values_of
from colibri_deepseek import DeepSeek

DATA = Path(__file__).parent / "data"
MODELS = {name: DATA / name for name in ("deepseek_v4", "deepseek_v4_hub", "deepseek_v32", "deepseek_v3")}


class TestDeepSeek(ComputeConformance):
    plugin = colibri_deepseek
    family = "deepseek"
    models = MODELS


def plan_of(folder: Path) -> Plan:
    return declare(DeepSeek(), open_checkpoint(folder))[0]


def v4_release(name: str) -> Encoder | None:
    """How the releases of V4 store a tensor: routed experts in 4 bits, attention and shared experts in 8."""
    if ".ffn.experts." in name:
        return mxfp4_short
    return fp8_short if re.search(r"attn\.w|shared_experts", name) else None


def v32_release(name: str) -> Encoder | None:
    """How the releases of V3.2 store a tensor: matrices of attention and of experts in 8 bits."""
    return fp8 if name.endswith("_proj.weight") or "kv_a_proj_with_mqa" in name else None


@pytest.mark.parametrize(
    ("name", "release", "types"),
    [
        ("deepseek_v4", v4_release, {"e2m1", "e4m3"}),
        ("deepseek_v4_hub", v4_release, {"e2m1", "e4m3"}),
        ("deepseek_v32", v32_release, {"e4m3"}),
    ],
)
def test_the_quantised_release_of_a_model(
    name: str, release: Callable[[str], Encoder | None], types: set[str], tmp_path: Path
) -> None:
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    quantised, plain = republish(DATA / name, tmp_path, release, config)
    _, tensors = declare(DeepSeek(), open_checkpoint(quantised))
    assert {tensor.dtype for tensor in tensors.values() if tensor.scales is not None} == types
    with np.load(DATA / name / "reference.npz") as reference:
        ids, original = reference["prompt_ids"].tolist(), reference["logits_full"]
    found = logits_of(load_runtime(DeepSeek(), open_checkpoint(quantised), context=160), ids)
    expected = logits_of(InterpretedRuntime(*declare(DeepSeek(), open_checkpoint(plain)), context=160), ids)
    assert np.abs(found - expected).max() < 2e-3
    # It is still much the same model; where a choice of experts or positions was close, it may fall otherwise.
    assert np.median([np.corrcoef(a, b)[0, 1] for a, b in zip(found, original, strict=True)]) > 0.8


@pytest.mark.parametrize("name", MODELS)
def test_drafting_layers_are_left_alone(name: str, tmp_path: Path) -> None:
    arrays = {tensor.name: values_of(tensor) for tensor in open_checkpoint(DATA / name).tensors.values()}
    more = {"mtp.0.e_proj.weight": np.ones((64, 64)), "model.layers.3.eh_proj.weight": np.ones((64, 128))}
    config = json.loads((DATA / name / "config.json").read_text())
    write_checkpoint(tmp_path, config, {**arrays, **more}, dtype=lambda name: "i64" if "tid2eid" in name else "f32")
    assert plan_of(tmp_path) == plan_of(DATA / name)


def test_layers_look_through_a_window_and_at_compressed_rows() -> None:
    plan = plan_of(DATA / "deepseek_v4_hub")
    attention = [node for node in plan.nodes if node.op == "attention"]
    assert [node.attrs["window"] for node in attention] == [16] * 4
    assert [node.attrs["every"] for node in attention] == [1, 128, 4, 128]
    assert [node.inputs[3] >= 0 for node in attention] == [False, False, True, False]  # chosen rows
    assert all(node.weights[0] >= 0 for node in attention)  # sinks


def test_first_layers_take_their_experts_from_a_table() -> None:
    plan = plan_of(DATA / "deepseek_v4")
    routes = [node for node in plan.nodes if node.op == "route"]
    named = [[plan.weights[index].name.rpartition(".")[2] for index in node.weights if index >= 0] for node in routes]
    assert named == [["tid2eid"], ["bias"], ["bias"], ["tid2eid"], ["bias"]]


@pytest.mark.parametrize("expert", [8, -1])
def test_a_table_that_names_an_expert_that_is_not_there(expert: int, tmp_path: Path) -> None:
    tensors = open_checkpoint(DATA / "deepseek_v4").tensors.values()
    arrays = {tensor.name: values_of(tensor) for tensor in tensors}
    arrays["layers.3.ffn.gate.tid2eid"][17, 1] = expert
    config = json.loads((DATA / "deepseek_v4" / "config.json").read_text())
    write_checkpoint(tmp_path, config, arrays, dtype=lambda name: "i64" if "tid2eid" in name else "f32")
    with pytest.raises(CheckpointError, match=r"layers\.3\.ffn\.gate\.tid2eid"):
        load_runtime(DeepSeek(), open_checkpoint(tmp_path), context=16)


@pytest.mark.parametrize("name", ["deepseek_v4_hub", "deepseek_v3"])
def test_tied_embeddings(name: str, tmp_path: Path) -> None:
    config = json.loads((DATA / name / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    (tmp_path / "model.safetensors").symlink_to(DATA / name / "model.safetensors")
    plan = plan_of(tmp_path)
    assert plan.nodes[-1].weights[0] == plan.nodes[0].weights[0]


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("deepseek_v4", {"vocab_size": 300}, "'embed.weight': weight: has shape [256, 64], 300 rows are needed"),
        ("deepseek_v4", {"n_routed_experts": 9}, "ffn.gate.weight': weight: has shape [8, 64], 9 rows are needed"),
        ("deepseek_v4", {"num_experts_per_tok": 3}, "ffn.gate.tid2eid': moe: has shape [256, 2], [vocabulary, 3]"),
        ("deepseek_v4", {"mlp_layer_types": ["moe"] * 5}, "layers.0.ffn.gate.bias': is missing"),
        ("deepseek_v4", {"hc_mult": 2}, "hc_attn_fn': linear: takes 256 values a row, it is given 128"),
        ("deepseek_v4", {"num_attention_heads": 8}, "attn.wq_b.weight': weight: has shape [128, 32], 256 rows are needed"),
        ("deepseek_v4", {"o_groups": 4}, "attn.wo_a.weight': linear_groups: has 32 rows, no 4 runs of 16"),
        ("deepseek_v4", {"o_lora_rank": 8}, "attn.wo_b.weight': linear: takes 32 values a row, it is given 16"),
        ("deepseek_v4", {"compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 4}},
         "attn.compressor.ape': pool: has shape [8, 32], [4, 32] is needed"),
        ("deepseek_v4_hub", {"compress_ratios": [0, 128, 128, 128]},
         "layers.2.attn.compressor.wkv.weight': weight: has shape [64, 64], 32 rows are needed"),
        ("deepseek_v4_hub", {"index_head_dim": 32},
         "indexer.compressor.wkv.weight': weight: has shape [32, 64], 64 rows are needed"),
        ("deepseek_v4_hub", {"index_n_heads": 8}, "indexer.weights_proj.weight': weight: has shape [16, 64], 8 rows"),
        ("deepseek_v4_hub", {"num_hidden_layers": 5, "compress_ratios": [0] * 5},
         "layers.4.hc_attn_fn': is missing"),
        ("deepseek_v32", {"index_n_heads": 8}, "indexer.weights_proj.weight': weight: has shape [16, 64], 8 rows"),
        ("deepseek_v32", {"n_routed_experts": 16}, "mlp.gate.weight': weight: has shape [8, 64], 16 rows are needed"),
        ("deepseek_v3", {"kv_lora_rank": 16}, "kv_a_proj_with_mqa.weight': weight: has shape [40, 64], 24 rows are needed"),
        ("deepseek_v3", {"first_k_dense_replace": 3}, "layers.1.mlp.gate_proj.weight': is missing"),
    ],
)  # fmt: skip
def test_a_configuration_that_does_not_fit_the_weights(
    name: str, edit: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = json.loads((DATA / name / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **edit}))
    (tmp_path / "model.safetensors").symlink_to(DATA / name / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        plan_of(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
