"""The configuration of V3.2 and V3: both spellings of it, what follows where a key is absent, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.blocks import Routing
from colibri.compute.checkpoint import open_checkpoint
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri_deepseek.checkpoint_v32 import V32Config

DATA = Path(__file__).parent / "data"
YARN = {"factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0}


def read(folder: Path, edit: dict[str, Any]) -> V32Config:
    """The configuration of deepseek_v32 with some keys set, or left out where None."""
    config = {**json.loads((DATA / "deepseek_v32" / "config.json").read_text()), **edit}
    config = {key: value for key, value in config.items() if value is not None}
    return V32Config.of(open_checkpoint(write_checkpoint(folder, config, {})))


def test_the_configuration(tmp_path: Path) -> None:
    c = read(tmp_path, {})
    assert c.dense == (True, False, False)
    assert (c.latent.heads, c.latent.nope, c.latent.rope, c.latent.v_dim, c.latent.rank) == (4, 16, 8, 16, 32)
    assert c.routing == Routing(8, 2, norm=True, factor=2.5, groups=4, top_groups=2)
    assert (c.vocab, c.eps, c.tied, c.context) == (256, 1e-6, False, 256)
    assert c.index is not None
    assert (c.index.heads, c.index.head_dim, c.index.budget) == (16, 16, 8)


def test_the_indexer_rotates_halves_and_attention_pairs(tmp_path: Path) -> None:
    c = read(tmp_path, {})
    assert c.latent.rotation is not None
    assert c.index is not None
    assert c.index.rotation is not None
    assert (c.latent.rotation.interleaved, c.index.rotation.interleaved) == (True, False)
    assert c.latent.rotation.inv_freq == c.index.rotation.inv_freq
    assert (c.latent.rotation.factor, c.index.rotation.head_dim) == (1.0, 16)


def test_v3_has_no_indexer() -> None:
    c = V32Config.of(open_checkpoint(DATA / "deepseek_v3"))
    assert c.index is None
    assert c.latent.rotation is not None
    assert c.latent.rotation.inv_freq[0] == 1.0


@pytest.mark.parametrize(
    ("rules", "sharpness"),
    [
        ({"rope_type": "yarn", **YARN, "mscale": 1.0, "mscale_all_dim": 1.0}, (0.1 * math.log(8) + 1) ** 2),
        ({"type": "yarn", **YARN, "mscale": 1.0, "mscale_all_dim": 0.5}, (0.05 * math.log(8) + 1) ** 2),
        ({"type": "yarn", **YARN, "mscale_all_dim": 0}, 1.0),
        ({"type": "yarn", **YARN}, 1.0),
        ({"rope_type": "default", "mscale_all_dim": 1.0}, 1.0),
    ],
)
def test_a_stretched_rotation_sharpens_attention(rules: dict[str, Any], sharpness: float, tmp_path: Path) -> None:
    assert read(tmp_path, {"rope_scaling": rules}).latent.scale == pytest.approx(24**-0.5 * sharpness)


def test_the_spelling_of_transformers(tmp_path: Path) -> None:
    edit = {
        "rope_scaling": None,
        "rope_theta": None,
        "rope_parameters": {"rope_type": "yarn", **YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 10000.0},
        "first_k_dense_replace": 3,  # it writes both, and means the list
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "layer_types": ["indexed_attention"] * 3,
        **dict.fromkeys(("scoring_func", "topk_method", "moe_layer_freq", "ep_size")),
    }
    assert read(tmp_path / "theirs", edit) == read(tmp_path / "hub", {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", -1),
        ("num_attention_heads", None),
        ("q_lora_rank", None),
        ("qk_nope_head_dim", 0),
        ("qk_rope_head_dim", 5),
        ("v_head_dim", "16"),
        ("kv_lora_rank", None),
        ("rope_interleave", 1),
        ("rope_scaling", {"type": "yarn", **YARN, "mscale_all_dim": -1.0}),
        ("rope_scaling", {"type": "dynamic"}),
        ("rope_scaling", []),
        ("rope_theta", 0),
        ("index_head_dim", 4),
        ("index_n_heads", 0),
        ("index_topk", None),
        ("first_k_dense_replace", 1.0),
        ("mlp_layer_types", ["dense", "moe", "sparse"]),
        ("n_routed_experts", 6),
        ("n_group", 3),
        ("topk_group", 5),
        ("num_experts_per_tok", 0),
        ("routed_scaling_factor", float("inf")),
        ("norm_topk_prob", "true"),
        ("n_shared_experts", -1),
        ("scoring_func", "softmax"),
        ("topk_method", "group_limited_greedy"),
        ("moe_layer_freq", 2),
        ("hidden_act", "relu"),
        ("attention_bias", True),
        ("vocab_size", 0),
        ("rms_norm_eps", float("nan")),
        ("max_position_embeddings", None),
        ("tie_word_embeddings", "no"),
    ],
)
def test_a_bad_value_is_named(key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, {key: value})
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: ")
    named = {"qk_rope_head_dim": "rope", "n_routed_experts": "n_group"}.get(key, key)
    assert named in message
    assert "\n" not in message
