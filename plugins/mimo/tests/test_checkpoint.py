"""The configuration, as published files and as transformers spell it, and what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from colibri.compute.blocks import Routing
from colibri.compute.checkpoint import open_checkpoint
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri_mimo import Mimo
from colibri_mimo.checkpoint import MimoConfig
from colibri_mimo.variants import MIMO_V2_6, MIMO_V2_FLASH

DATA = Path(__file__).parent / "data"


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def read(folder: Path, config: dict[str, Any]) -> MimoConfig:
    return MimoConfig.of(open_checkpoint(write_checkpoint(folder, config, {})))


def test_published_files(tmp_path: Path) -> None:
    c = read(tmp_path, config_of("mimo_v2"))
    assert (c.vocab, c.eps, c.tied, c.context, c.shards, c.value_scale) == (256, 1e-5, False, 131072, 2, 0.707)
    assert [a.window for a in c.attention] == [0, 8, 8, 0, 8]
    full, windowed = c.attention[:2]
    assert (full.heads, full.kv_heads, full.head_dim, full.v_dim, full.sinks) == (4, 2, 24, 16, False)
    assert (windowed.heads, windowed.kv_heads, windowed.head_dim, windowed.v_dim, windowed.sinks) == (4, 4, 24, 16, True)
    assert c.expert_layers == (False, True, True, True, True)
    assert c.routing == Routing(8, 2, norm=True, factor=1.0, shared=False)


def test_kinds_of_layers_rotate_by_bases_of_their_own(tmp_path: Path) -> None:
    full, windowed = read(tmp_path, config_of("mimo_v2")).attention[:2]
    assert full.rope.inv_freq == pytest.approx([5e6 ** (-j / 4) for j in range(4)])
    assert windowed.rope.inv_freq == pytest.approx([1e4 ** (-j / 4) for j in range(4)])
    assert (full.rope.head_dim, full.rope.offset, full.rope.interleaved, full.rope.factor) == (24, 0, False, 1.0)


def test_transformers_spells_it_otherwise(tmp_path: Path) -> None:
    published, own = read(tmp_path / "a", config_of("mimo_v2")), read(tmp_path / "b", config_of("mimo_v2_flash"))
    assert own == published


def test_a_file_may_have_a_part_for_the_language_model(tmp_path: Path) -> None:
    config = config_of("mimo_v2")
    whole = {"model_type": "mimo_v2", "text_config": config, "vision_config": {}}
    assert read(tmp_path / "a", whole) == read(tmp_path / "b", config)


@pytest.mark.parametrize(
    ("keys", "window"),
    [
        ({"sliding_window": 128, "sliding_window_size": None}, 128),
        ({"sliding_window": None, "sliding_window_size": 128}, 129),
        ({"sliding_window": 128, "sliding_window_size": 128}, 129),
    ],
)
def test_how_many_tokens_a_window_has(keys: dict[str, Any], window: int, tmp_path: Path) -> None:
    assert read(tmp_path, {**config_of("mimo_v2"), **keys}).attention[1].window == window


def test_windowed_layers_may_have_sizes_of_their_own(tmp_path: Path) -> None:
    sizes = {"swa_num_attention_heads": 8, "swa_num_key_value_heads": 2, "swa_head_dim": 32, "swa_v_head_dim": 8}
    full, windowed = read(tmp_path, {**config_of("mimo_v2"), **sizes}).attention[:2]
    assert (full.heads, full.kv_heads, full.head_dim, full.v_dim) == (4, 2, 24, 16)
    assert (windowed.heads, windowed.kv_heads, windowed.head_dim, windowed.v_dim) == (8, 2, 32, 8)
    assert (windowed.rope.head_dim, len(windowed.rope.inv_freq)) == (32, 5)


def test_which_layers_have_sinks_is_said_by_the_file(tmp_path: Path) -> None:
    keys = {"add_swa_attention_sink_bias": False, "add_full_attention_sink_bias": True}
    c = read(tmp_path, {**config_of("mimo_v2"), **keys})
    assert [a.sinks for a in c.attention] == [True, False, False, True, False]


def test_experts_chosen_by_groups(tmp_path: Path) -> None:
    c = read(tmp_path, {**config_of("mimo_v2"), "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5})
    assert c.routing == replace(read(tmp_path, config_of("mimo_v2")).routing, groups=4, top_groups=2, factor=2.5)


@pytest.mark.parametrize(("name", "variant"), [("mimo_v2", MIMO_V2_6), ("mimo_v2_flash", MIMO_V2_FLASH)])
def test_a_variant_is_told_by_the_configuration(name: str, variant: Any) -> None:
    assert Mimo().variant_for(open_checkpoint(DATA / name)) == variant


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vocab_size", None),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 1 << 40),
        ("num_attention_heads", True),
        ("num_key_value_heads", 3),
        ("num_key_value_heads", 8),
        ("head_dim", 0),
        ("head_dim", 1 << 20),
        ("v_head_dim", "16"),
        ("swa_num_attention_heads", 6),
        ("swa_num_key_value_heads", 3),
        ("swa_head_dim", -24),
        ("swa_v_head_dim", 1.5),
        ("layernorm_epsilon", None),
        ("layernorm_epsilon", float("inf")),
        ("tie_word_embeddings", "no"),
        ("max_position_embeddings", 0),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("attention_value_scale", 0),
        ("attention_value_scale", float("nan")),
        ("hybrid_layer_pattern", None),
        ("hybrid_layer_pattern", [0, 1, 1, 0]),
        ("hybrid_layer_pattern", [0, 1, 1, 0, 2]),
        ("hybrid_layer_pattern", [0, 1, 1, 0, True]),
        ("hybrid_layer_pattern", [0, 1, 1, 0, [1]]),
        ("hybrid_layer_pattern", "01101"),
        ("moe_layer_freq", None),
        ("moe_layer_freq", 1),
        ("moe_layer_freq", [0, 1, 1, 1, -1]),
        ("sliding_window_size", 0),
        ("sliding_window_size", "7"),
        ("rope_theta", None),
        ("rope_theta", 0),
        ("swa_rope_theta", None),
        ("swa_rope_theta", "1e4"),
        ("partial_rotary_factor", 0.01),
        ("partial_rotary_factor", -1),
        ("rope_scaling", {"type": "spiral"}),
        ("add_swa_attention_sink_bias", 1),
        ("add_full_attention_sink_bias", "yes"),
        ("n_routed_experts", 0),
        ("num_experts_per_tok", 9),
        ("norm_topk_prob", 1),
        ("routed_scaling_factor", -1),
        ("n_group", 3),
        ("topk_group", 2),
        ("scoring_func", "softmax"),
        ("topk_method", "greedy"),
        ("n_shared_experts", 1),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, {**config_of("mimo_v2"), key: value})
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: ")
    assert ("rope rotates 0 of 24" if value == 0.01 else key) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layer_types", ["full_attention"] * 4),
        ("layer_types", ["full_attention"] * 4 + ["linear_attention"]),
        ("mlp_layer_types", ["dense"] * 4 + ["spare"]),
        ("rope_parameters", {"full_attention": {"rope_type": "spiral", "rope_theta": 1.0}}),
        ("rope_parameters", {"full_attention": {"rope_theta": 0}}),
        ("rope_parameters", {"full_attention": 1}),
        ("rope_parameters", []),
        ("sliding_window", 0),
    ],
)
def test_a_bad_value_in_transformers_spelling_is_named(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, {**config_of("mimo_v2_flash"), key: value})
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: {key}")
    assert "\n" not in message
