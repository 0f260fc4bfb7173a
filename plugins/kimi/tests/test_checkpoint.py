"""The configuration, as published files and as transformers spell it, and what is wrong with one."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.blocks import Latent, Routing
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.delta import Delta
from colibri.compute.operations import SWIGLU, Glu
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri_kimi import Kimi
from colibri_kimi.checkpoint import KimiConfig
from colibri_kimi.variants import KIMI_K3, KIMI_LINEAR

DATA = Path(__file__).parent / "data"


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def read(folder: Path, config: dict[str, Any]) -> KimiConfig:
    return KimiConfig.of(open_checkpoint(write_checkpoint(folder, config, {})))


def test_kimi_linear(tmp_path: Path) -> None:
    c = read(tmp_path, config_of("kimi_linear"))
    assert (c.prefix, c.vocab, c.eps, c.tied, c.context) == ("", 256, 1e-5, False, 1048576)
    assert c.delta_layers == (True, True, False, True)
    assert c.expert_layers == (False, True, True, True)
    assert c.delta == Delta(heads=4, head_dim=16, kernel=4, eps=1e-5, bound=0.0)
    assert c.attention == Latent(4, 16, 8, 16, rank=32, scale=24**-0.5, compressed=False)
    assert c.routing == Routing(8, 2, norm=True, factor=2.446)
    assert (c.full_gate, c.gated, c.latent, c.latent_norm, c.residual_block) == (False, False, False, False, 0)
    assert c.glu == SWIGLU


def test_kimi_k3(tmp_path: Path) -> None:
    c = read(tmp_path, config_of("kimi_k3"))
    assert (c.prefix, c.context) == ("language_model.", 4096)
    assert c.delta_layers == (True, True, False, True, False)
    assert c.delta == Delta(heads=4, head_dim=16, kernel=4, eps=1e-5, bound=-5.0)
    assert c.attention.compressed
    assert c.routing == Routing(8, 2, norm=True, factor=1.0)
    assert (c.full_gate, c.gated, c.latent, c.latent_norm, c.residual_block) == (True, True, True, True, 2)
    assert c.glu == Glu("situ", beta=4.0, linear_beta=25.0)


@pytest.mark.parametrize("words", [("linear_attention", "full_attention"), ("mamba", "attention")])
def test_transformers_spells_it_otherwise(tmp_path: Path, words: tuple[str, str]) -> None:
    published = config_of("kimi_linear")
    own = deepcopy(published)
    linear = own.pop("linear_attn_config")
    for key in ("first_k_dense_replace", "moe_layer_freq", "mla_use_nope", "moe_router_activation_func"):
        del own[key]
    own["layer_types"] = [words[0 if i in linear["kda_layers"] else 1] for i in (1, 2, 3, 4)]
    own["mlp_layer_types"] = ["dense", "sparse", "sparse", "sparse"]
    own["linear_num_heads"], own["linear_head_dim"] = linear["num_heads"], linear["head_dim"]
    own["linear_conv_kernel_dim"] = linear["short_conv_kernel_size"]
    assert read(tmp_path / "own", own) == read(tmp_path / "published", published)


def test_experts_are_in_every_second_layer_if_the_file_says_so(tmp_path: Path) -> None:
    config = {**config_of("kimi_linear"), "moe_layer_freq": 2, "first_k_dense_replace": 0}
    assert read(tmp_path, config).expert_layers == (True, False, True, False)


def test_groups_count_only_where_choice_is_grouped(tmp_path: Path) -> None:
    config = {**config_of("kimi_linear"), "num_expert_group": 4, "topk_group": 2}
    grouped = read(tmp_path / "a", config).routing
    alone = read(tmp_path / "b", {**config, "use_grouped_topk": False}).routing
    assert (grouped.groups, grouped.top_groups, alone.groups, alone.top_groups) == (4, 2, 1, 1)


@pytest.mark.parametrize(
    ("name", "variant"), [("kimi_linear", KIMI_LINEAR), ("kimi_k3", KIMI_K3), ("kimi_k3_mxfp4", KIMI_K3)]
)
def test_a_variant_is_told_by_the_outer_configuration(name: str, variant: Any) -> None:
    assert Kimi().variant_for(open_checkpoint(DATA / name)) == variant


BAD: list[tuple[str, Any]] = [
    ("vocab_size", None),
    ("num_hidden_layers", 0),
    ("num_hidden_layers", 1 << 40),
    ("num_hidden_layers", 6),
    ("rms_norm_eps", None),
    ("rms_norm_eps", "small"),
    ("rms_norm_eps", float("nan")),
    ("tie_word_embeddings", 1),
    ("max_position_embeddings", -1),
    ("hidden_act", "gelu"),
    ("activation_situ_beta", 0),
    ("activation_situ_linear_beta", None),
    ("mla_use_nope", False),
    ("mla_use_output_gate", "yes"),
    ("attention_bias", True),
    ("num_attention_heads", 1 << 20),
    ("kv_lora_rank", 0),
    ("qk_nope_head_dim", True),
    ("qk_rope_head_dim", -1),
    ("v_head_dim", None),
    ("num_experts", 0),
    ("num_experts_per_token", 9),
    ("num_expert_group", 3),
    ("topk_group", 2),
    ("moe_router_activation_func", "softmax"),
    ("topk_method", "greedy"),
    ("moe_renormalize", 0),
    ("moe_layer_freq", [0, 1]),
    ("first_k_dense_replace", -1),
    ("num_shared_experts", 1.5),
    ("attn_res_block_size", "12"),
    ("latent_moe_use_norm", "no"),
    ("mlp_layer_types", ["dense", "sparse"]),
    ("mlp_layer_types", ["dense", "sparse", "sparse", "sparse", "spare"]),
    ("linear_attn_config", []),
    ("linear_attn_config.num_heads", 0),
    ("linear_attn_config.head_dim", "16"),
    ("linear_attn_config.short_conv_kernel_size", 257),
    ("linear_attn_config.gate_lower_bound", 5.0),
    ("linear_attn_config.gate_lower_bound", float("-inf")),
    ("linear_attn_config.use_full_rank_gate", 1),
    ("linear_attn_config.kda_layers", None),
    ("linear_attn_config.kda_layers", [1, 2]),
    ("linear_attn_config.kda_layers", [0, 1, 2, 4]),
    ("linear_attn_config.kda_layers", [1, 2, 4, 4]),
    ("linear_attn_config.kda_layers", [1, 2, "4"]),
    ("linear_attn_config.full_attn_layers", [3, 5, 6]),
    ("linear_attn_config.full_attn_layers", [2, 3, 5]),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_a_bad_value_is_named(tmp_path: Path, key: str, value: object) -> None:
    config = config_of("kimi_k3")
    part, _, last = key.rpartition(".")
    (config["text_config"][part] if part else config["text_config"])[last] = value
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, config)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: text_config.")
    assert ("kda_layers" if (key, value) == ("num_hidden_layers", 6) else last) in message
    assert "\n" not in message
