"""The configuration of V4: both spellings of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.blocks import Streams
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.operations import Glu
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri_deepseek.checkpoint import Compression, V4Config

DATA = Path(__file__).parent / "data"
SPARSE, HEAVY = Compression(4, chosen=True), Compression(128, chosen=False)

PLAIN = {"rope_theta": 1e4}

#: What transformers writes for the model that the hub would write as deepseek_v4_hub.
TRANSFORMERS = {
    "compress_ratios": None,
    "num_hash_layers": None,
    "rope_scaling": None,
    "scoring_func": None,
    "topk_method": None,
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
    "layer_types": [
        "sliding_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
    ],
    "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"],
    "partial_rotary_factor": 0.25,
    "rope_parameters": {
        "compress": {
            "attention_factor": 1.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 16.0,
            "original_max_position_embeddings": 128,
            "partial_rotary_factor": 0.25,
            "rope_theta": 160000.0,
            "rope_type": "yarn",
        },
        "main": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"},
    },
}


def read(folder: Path, edit: dict[str, Any]) -> V4Config:
    """The configuration of deepseek_v4_hub with some keys set, or left out where None."""
    config = {**json.loads((DATA / "deepseek_v4_hub" / "config.json").read_text()), **edit}
    config = {key: value for key, value in config.items() if value is not None}
    return V4Config.of(open_checkpoint(write_checkpoint(folder, config, {})))


def test_the_configuration(tmp_path: Path) -> None:
    c = read(tmp_path, {})
    assert c.layers == (None, HEAVY, SPARSE, HEAVY)
    assert c.hashed == (True, False, False, False)
    assert (c.heads, c.head_dim, c.window, c.groups, c.output_rank) == (4, 32, 16, 2, 16)
    assert (c.experts, c.top_k, c.norm_topk, c.factor) == (8, 2, True, 1.5)
    assert c.glu == Glu(limit=10.0)
    assert c.streams == Streams(4, 20, 1e-6, 1e-6)
    assert (c.vocab, c.eps, c.tied, c.context) == (256, 1e-6, False, 2048)
    assert (c.index.heads, c.index.head_dim, c.index.budget) == (16, 16, 8)


def test_rotations_are_of_the_last_values_of_a_head(tmp_path: Path) -> None:
    c = read(tmp_path, {})
    assert c.rope.inv_freq == pytest.approx([1e4 ** (-j / 4) for j in range(4)])
    assert c.compressed_rope.inv_freq[0] == 1.0
    assert c.compressed_rope.inv_freq[3] == pytest.approx(160000 ** (-3 / 4) / 16)
    assert c.index.rotation is not None
    assert [(r.head_dim, r.offset) for r in (c.rope, c.compressed_rope, c.index.rotation)] == [(32, 24), (32, 24), (16, 8)]
    for rope in (c.rope, c.compressed_rope, c.index.rotation):
        assert rope.interleaved
        assert rope.factor == 1.0  # in spite of yarn


def test_the_spelling_of_transformers(tmp_path: Path) -> None:
    assert read(tmp_path / "theirs", TRANSFORMERS) == read(tmp_path / "hub", {})


def test_the_published_sizes(tmp_path: Path) -> None:
    edit = {"num_hidden_layers": 43, "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0], "num_hash_layers": 3}
    sizes = {"head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128, "num_attention_heads": 64, "o_groups": 8}
    c = read(tmp_path, {**edit, **sizes})
    assert (c.layers.count(None), c.layers.count(SPARSE), c.layers.count(HEAVY)) == (2, 21, 20)
    assert c.hashed.count(True) == 3
    assert (len(c.rope.inv_freq), c.rope.offset, c.index.rotation and c.index.rotation.offset) == (32, 448, 64)


def test_ratios_of_drafting_layers_come_last(tmp_path: Path) -> None:
    assert read(tmp_path, {"compress_ratios": [0, 128, 4, 128, 0]}).layers == (None, HEAVY, SPARSE, HEAVY)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 4.0),
        ("num_attention_heads", None),
        ("num_attention_heads", 3),
        ("num_key_value_heads", 2),
        ("n_shared_experts", 0),
        ("head_dim", 0),
        ("head_dim", 1 << 40),
        ("qk_rope_head_dim", None),
        ("qk_rope_head_dim", 7),
        ("qk_rope_head_dim", 64),
        ("sliding_window", None),
        ("sliding_window", 0),
        ("o_groups", 8),
        ("o_lora_rank", -1),
        ("compress_ratios", None),
        ("compress_ratios", [0, 128, 4]),
        ("compress_ratios", [0, 128, 4, 16]),
        ("compress_ratios", [0, 128, 4, "4"]),
        ("compress_ratios", [0, 128, 4, False]),
        ("compress_ratios", 4),
        ("num_hash_layers", None),
        ("num_hash_layers", -1),
        ("mlp_layer_types", ["moe"] * 3),
        ("mlp_layer_types", ["dense"] * 4),
        ("compress_rope_theta", 0),
        ("compress_rope_theta", None),
        ("rope_theta", None),
        ("rope_theta", "1e4"),
        ("rope_scaling", {"type": "spiral"}),
        ("rope_scaling", {"type": "yarn"}),
        ("rope_scaling", 4),
        ("index_head_dim", 4),
        ("index_topk", 0),
        ("index_topk", 1 << 30),
        ("index_n_heads", None),
        ("n_routed_experts", None),
        ("num_experts_per_tok", 9),
        ("norm_topk_prob", "yes"),
        ("routed_scaling_factor", 0),
        ("scoring_func", "sigmoid"),
        ("topk_method", "greedy"),
        ("swiglu_limit", None),
        ("hc_mult", 0),
        ("hc_eps", 0),
        ("hc_sinkhorn_iters", 1 << 30),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("mlp_bias", True),
        ("vocab_size", True),
        ("rms_norm_eps", -1),
        ("max_position_embeddings", None),
        ("tie_word_embeddings", 0),
    ],
)
def test_a_bad_value_is_named(key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, {key: value})
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: ")
    named = "num_attention_heads" if (key, value) == ("num_attention_heads", 3) else key
    assert named.removesuffix("_head_dim").removeprefix("qk_") in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"layer_types": None}, "compress_ratios is missing"),
        ({"layer_types": ["full_attention"] * 4}, "layer_types has 'full_attention' in it"),
        ({"compress_rates": None}, "compress_rates.heavily_compressed_attention is missing"),
        ({"compress_rates": {"heavily_compressed_attention": 0}}, "compress_rates.heavily_compressed_attention must be"),
        ({"rope_parameters": {"main": {"rope_theta": -1}, "compress": {}}}, "rope_parameters.main.rope_theta must be"),
        ({"rope_parameters": {"main": {}, "compress": PLAIN}}, "rope_parameters.main.rope_theta is missing"),
        ({"rope_parameters": {"main": PLAIN, "compress": {}}}, "rope_parameters.compress.rope_theta is missing"),
        ({"rope_parameters": {"main": PLAIN}}, "rope_parameters.compress.rope_theta is missing"),
        ({"rope_parameters": {"main": PLAIN, "compress": 4}}, "rope_parameters.compress must be an object"),
        (
            {"rope_parameters": {"main": PLAIN, "compress": {**PLAIN, "rope_type": "linear"}}},
            "rope_parameters.compress.factor is missing",
        ),
        (
            {"rope_parameters": {"main": PLAIN, "compress": PLAIN}, "partial_rotary_factor": 0.5},
            "qk_rope_head_dim is 8, 16 values are rotated by other keys",
        ),
    ],
)
def test_a_bad_value_is_named_in_the_spelling_of_transformers(edit: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, {**TRANSFORMERS, **edit})
    assert message in str(caught.value)
