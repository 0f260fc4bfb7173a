"""Qwen3-Next and its successors against transformers, from every layout that their files come in.

The models are small ones with random weights, stored by published names; tests/data holds what transformers 5.24 computes
for them in float32. Of their vision towers only the small tensors are kept, which have to be left alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colibri_qwen
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.load import declare, load_runtime
from colibri.compute.plan import Plan
from colibri.compute.runtime import Runtime
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri.testing.compute import ComputeConformance
from colibri.testing.drive import logits_of
from colibri.testing.interpreter import InterpretedRuntime
from colibri.testing.storage import dequantise, quantise, values_of
from colibri_qwen import Qwen

DATA = Path(__file__).parent / "data"
NAMES = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen4_exp")
SIZES = {"context": 128, "slots": 1, "max_rows": 64}

#: The largest difference that float32 may show; logits spread over 3.
CLOSE = 2e-3

Arrays = dict[str, np.ndarray]


class TestHybrids(ComputeConformance):
    plugin = colibri_qwen
    family = "qwen"
    models = {name: DATA / name for name in NAMES}


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def weights_of(name: str) -> Arrays:
    found = open_checkpoint(DATA / name).tensors.values()
    return {t.name: np.array(t.numbers()) if t.dtype == "i64" else values_of(t) for t in found}


def reference(name: str) -> Arrays:
    with np.load(DATA / name / "reference.npz") as stored:
        return dict(stored)


def written(folder: Path, config: dict[str, Any], weights: Arrays, codes: frozenset[str] = frozenset()) -> Path:
    """A model folder; the tensors named in `codes` are written as FP8, tables of whole numbers as such."""

    def dtype(name: str) -> str:
        return "e4m3" if name in codes else "i64" if "ple_embedding" in name and "ngram_embedding" not in name else "f32"

    return write_checkpoint(folder, config, weights, dtype=dtype)


def plan_of(folder: Path) -> Plan:
    return declare(Qwen(), open_checkpoint(folder))[0]


def native(folder: Path) -> Runtime:
    return load_runtime(Qwen(), open_checkpoint(folder), **SIZES)


def interpreted(folder: Path) -> Runtime:
    return InterpretedRuntime(*declare(Qwen(), open_checkpoint(folder)), **SIZES)


def separate(weights: Arrays) -> Arrays:
    """The same weights with tensors of its own for every expert."""
    found: Arrays = {}
    for name, array in weights.items():
        if name.endswith(".experts.gate_up_proj"):
            stem = name.removesuffix(".gate_up_proj")
            for e, both in enumerate(array):
                gate, up = np.split(both, 2)
                found |= {f"{stem}.{e}.gate_proj.weight": gate, f"{stem}.{e}.up_proj.weight": up}
        elif name.endswith(".experts.down_proj"):
            stem = name.removesuffix(".down_proj")
            found |= {f"{stem}.{e}.down_proj.weight": part for e, part in enumerate(array)}
        else:
            found[name] = array
    return found


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe", "qwen4_exp"])
def test_a_file_of_the_language_model_alone_is_the_same_model(name: str, tmp_path: Path) -> None:
    config = config_of(name)["text_config"]
    assert config["model_type"] == f"{name}_text"
    weights = {key.replace(".language_model.", "."): value for key, value in separate(weights_of(name)).items()}
    del weights["model.visual.merger.norm.weight"]
    alone, ids = written(tmp_path, config, weights), reference(name)["prompt_ids"].tolist()
    assert Qwen().variant_for(open_checkpoint(alone)) == Qwen().variant_for(open_checkpoint(DATA / name)) is not None
    assert logits_of(native(alone), ids).tobytes() == logits_of(native(DATA / name), ids).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_other_parts_of_a_file_are_left_alone(name: str) -> None:
    names = [weight.name for weight in plan_of(DATA / name).weights]
    assert not [key for key in names if "visual" in key or "mtp" in key]
    assert "lm_head.weight" in names


#: Of released FP8 models, what is not quantised.
PLAIN = ("norm", "embed_tokens", "lm_head", "visual", ".mlp.gate.", "shared_expert_gate", "conv1d", "in_proj_a.",
         "in_proj_b.", "in_proj_ba.", "A_log", "dt_bias", "layer_multipliers", "ngram_heads", "block_inject")  # fmt: skip


def fp8(weights: Arrays, block: int = 128) -> tuple[Arrays, frozenset[str], Arrays]:
    """Weights as FP8 releases have them: everything to write, the names of what is to be written as codes, and what they
    stand for. Tables of n-grams have one scale each, matrices one for every block."""
    stored, codes, meant = dict(weights), set(), dict(weights)
    for name, array in weights.items():
        if any(word in name for word in PLAIN):
            continue
        size = max(array.shape) if "ngram_embedding" in name else block
        rows, cols = (np.arange(n) // size for n in array.shape)
        scales = np.array(
            [[np.abs(array[rows == i][:, cols == j]).max() / 448 for j in range(cols[-1] + 1)] for i in range(rows[-1] + 1)]
        ).astype(np.float32)
        spread = scales.astype(np.float64)[rows][:, cols]
        stored[name] = array / spread
        stored[f"{name}_scale_inv"] = scales.reshape(-1) if scales.size == 1 else scales
        meant[name] = dequantise("e4m3", quantise("e4m3", stored[name]), array.shape) * spread
        codes.add(name)
    return stored, frozenset(codes), meant


@pytest.mark.parametrize("name", NAMES)
def test_fp8_releases_are_read_as_they_are(name: str, tmp_path: Path) -> None:
    config = config_of(name) | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    stored, codes, meant = fp8(separate(weights_of(name)))
    assert len(codes) > 20
    ids = reference(name)["prompt_ids"].tolist()
    expected = logits_of(interpreted(written(tmp_path / "meant", config_of(name), meant)), ids)
    found = logits_of(native(written(tmp_path / "fp8", config, stored, codes)), ids)
    assert np.abs(found - expected).max() < CLOSE
    # Guards the comparison itself: rounding to FP8 changes the model by much more than that.
    assert np.abs(expected - reference(name)["logits_full"]).max() > 10 * CLOSE


def test_tied_embeddings_need_no_head(tmp_path: Path) -> None:
    config, weights, ids = config_of("qwen3_5"), weights_of("qwen3_5"), list(range(40))
    embedding = weights["model.language_model.embed_tokens.weight"]
    untied = written(tmp_path / "untied", config, {**weights, "lm_head.weight": embedding})
    del weights["lm_head.weight"]
    tied = written(tmp_path / "tied", {**config, "tie_word_embeddings": True}, weights)
    assert logits_of(native(tied), ids).tobytes() == logits_of(native(untied), ids).tobytes()
    with pytest.raises(CheckpointError, match=r"tensor 'lm_head.weight': is missing"):
        plan_of(written(tmp_path / "headless", config, weights))


def test_layers_without_experts_among_those_with(tmp_path: Path) -> None:
    config, weights = config_of("qwen3_next"), weights_of("qwen3_next")
    for name in ("gate_proj", "up_proj", "down_proj"):
        weights[f"model.layers.1.mlp.{name}.weight"] = weights[f"model.layers.1.mlp.shared_expert.{name}.weight"]
    dense = plan_of(written(tmp_path, {**config, "mlp_only_layers": [1]}, weights))
    assert [bank.name for bank in dense.banks] == [f"model.layers.{i}.mlp.experts" for i in (0, 2, 3)]


def test_n_grams_do_not_reach_over_the_end_of_a_text() -> None:
    folder = DATA / "qwen4_exp"
    plan, tensors = declare(Qwen(), open_checkpoint(folder))
    rows = next(node.out for node in plan.nodes if node.op == "ngram")
    end = config_of("qwen4_exp")["text_config"]["eos_token_id"]

    def found(*ids: int) -> np.ndarray:
        runtime = InterpretedRuntime(plan, tensors, **SIZES)
        logits_of(runtime, ids)
        return runtime.values[rows][-1]

    assert np.array_equal(found(7, 8, end, 5), found(9, 8, end, 5))
    assert np.array_equal(found(end, 5), found(5))
    assert not np.array_equal(found(7, 8, 5), found(9, 8, 5))


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("qwen3_next", {"num_hidden_layers": 5, "layer_types": None}, "layers.4.input_layernorm.weight': is missing"),
        ("qwen3_next", {"vocab_size": 300}, "weight: has shape [256, 64], 300 rows are needed"),
        ("qwen3_next", {"num_experts": 9}, "mlp.experts.8.gate_proj.weight': is missing"),
        ("qwen3_next", {"num_experts": 7}, "mlp.gate.weight': moe: scores 8 experts, there are 7"),
        (
            "qwen3_next",
            {"linear_num_key_heads": 4},
            "in_proj_qkvz.weight': weight: has shape [192, 64], 256 rows are needed",
        ),
        ("qwen3_next", {"layer_types": ["full_attention"] * 4}, "layers.0.self_attn.q_proj.weight': is missing"),
        ("qwen3_5", {"linear_value_head_dim": 32}, "in_proj_qkv.weight': weight: has shape [128, 64], 192 rows are needed"),
        ("qwen3_5", {"linear_conv_kernel_dim": 3}, "conv1d.weight': has shape [128, 1, 4], [128, 3] is needed"),
        ("qwen3_5", {"num_attention_heads": 2}, "q_proj.weight': weight: has shape [256, 64], 128 rows are needed"),
        ("qwen3_5", {"num_key_value_heads": 4}, "k_proj.weight': weight: has shape [64, 64], 128 rows are needed"),
        ("qwen3_5_moe", {"num_experts": 9}, "experts.gate_up_proj': has shape [8, 64, 64], [9, 2 * inner, width] is needed"),
        ("qwen4_exp", {"hc_count": 2}, "hc_norm.weight': rms_norm: has shape [256], [64] is needed for 128 values"),
        ("qwen4_exp", {"ple_layer_ids": [1]}, "layers.0.ple.ple_embedding.ngram_embedding.shard_0.weight': is missing"),
        ("qwen4_exp", {"split_ngram_parts": 3}, "shard_0.weight': ngram: has 1632 rows with all parts"),
        ("qwen4_exp", {"heads_per_ngram": 3}, "ngram_heads_vocab_sizes': must hold 6 whole numbers"),
        ("qwen4_exp", {"ngram_size": 4}, "layer_multipliers': must hold 4 whole numbers"),
        ("qwen4_exp", {"indexer_n_heads": 3}, "index_qk_proj.weight': weight: has shape [208, 64], 64 rows are needed"),
    ],
)
def test_a_configuration_that_does_not_fit_the_weights(
    name: str, edit: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = config_of(name)
    config.get("text_config", config).update(edit)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(DATA / name / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        plan_of(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("layer_multipliers", [1, 2, -3]),
        ("layer_multipliers", [1, 2, 1 << 60]),
        ("ngram_heads_vocab_sizes", [0, 500, 500, 500]),
        ("ngram_heads_offsets", [0, 1, 2, 1 << 30]),
    ],
)
def test_tables_of_hashes_are_checked(table: str, values: list[int], tmp_path: Path) -> None:
    weights = weights_of("qwen4_exp")
    name = f"model.language_model.layers.1.ple.ple_embedding.{table}"
    folder = written(tmp_path, config_of("qwen4_exp"), weights | {name: np.array(values)})
    with pytest.raises(CheckpointError, match=r"ple\.ple_embedding\."):
        plan_of(folder)
