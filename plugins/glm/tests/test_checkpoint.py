"""The configuration: both spellings of it, what follows where a key is absent, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.blocks import Index, Latent, Routing, Streams
from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.delta import Delta
from colibri.compute.operations import Glu
from colibri.errors import CheckpointError
from colibri.testing.checkpoints import write_checkpoint
from colibri_glm.checkpoint import GlmConfig

DATA = Path(__file__).parent / "data"


def config_of(name: str) -> dict[str, Any]:
    config = json.loads((DATA / name / "config.json").read_text())
    return config.get("text_config", config)


def read(folder: Path, name: str, edit: dict[str, Any]) -> GlmConfig:
    """The configuration of a model with some keys set, or left out where None."""
    config = {key: value for key, value in {**config_of(name), **edit}.items() if value is not None}
    whole = {"model_type": "glm5_next", "text_config": config} if name == "glm5_next" else config
    return GlmConfig.of(open_checkpoint(write_checkpoint(folder, whole, {})))


def test_the_configuration() -> None:
    c = GlmConfig.of(open_checkpoint(DATA / "glm_moe_dsa"))
    assert c.attention == ("full", "full", "shared", "shared", "full")
    assert c.dense == (True, False, False, False, False)
    assert c.latent.rotation is not None
    inv_freq = c.latent.rotation.inv_freq
    assert inv_freq == pytest.approx([8e6 ** (-j / 4) for j in range(4)])
    assert (c.latent.heads, c.latent.nope, c.latent.rope, c.latent.v_dim, c.latent.rank) == (4, 16, 8, 16, 32)
    assert (c.latent.scale, c.latent_eps, c.eps) == (24**-0.5, 1e-6, 1e-5)
    assert c.index.rotation is not None
    assert (c.index.heads, c.index.head_dim, c.index.budget, c.pool) == (16, 16, 8, 1)
    assert c.latent.rotation.interleaved
    assert c.index.rotation.interleaved
    assert c.index.rotation.inv_freq == inv_freq
    assert c.routing == Routing(8, 2, norm=True, factor=2.5)
    assert (c.prefix, c.vocab, c.tied, c.context) == ("model", 256, False, 202752)
    assert (c.delta, c.streams, c.glu) == (None, None, Glu())


def test_the_configuration_of_flash() -> None:
    c = GlmConfig.of(open_checkpoint(DATA / "glm5_next"))
    assert c.attention == ("linear", "linear", "full", "linear", "full")
    assert c.latent == Latent(4, 16, 0, 16, 32, 0.25)
    assert (c.latent_eps, c.eps) == (1e-5, 1e-5)
    assert (c.index, c.pool) == (Index(16, 16, 2), 4)
    assert c.delta == Delta(4, 16, 4, 1e-5, -5.0)
    assert c.streams == Streams(4, 20, 1e-6, 1e-5)
    assert c.glu == Glu(limit=1.5)
    assert c.prefix == "model.language_model"


def test_the_spelling_of_transformers(tmp_path: Path) -> None:
    edit = {
        "first_k_dense_replace": 3,  # it writes both, and means the list
        "mlp_layer_types": ["dense", *["sparse"] * 4],
        "layer_types": ["indexed_attention"] * 5,
        **dict.fromkeys(("rope_interleave", "indexer_rope_interleave", "scoring_func", "topk_method", "moe_layer_freq")),
    }
    assert read(tmp_path, "glm_moe_dsa", edit) == GlmConfig.of(open_checkpoint(DATA / "glm_moe_dsa"))


def test_the_spelling_of_transformers_for_flash(tmp_path: Path) -> None:
    edit = {
        "linear_attn_config": None,
        "linear_num_heads": 4,
        "linear_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "linear_lower_bound": -5.0,
        "layer_types": [
            "linear_attention",
            "linear_attention",
            "indexed_attention",
            "linear_attention",
            "indexed_attention",
        ],
    }
    assert read(tmp_path, "glm5_next", edit) == GlmConfig.of(open_checkpoint(DATA / "glm5_next"))


@pytest.mark.parametrize("word", ["full_attention", "attention", "deepseek_sparse_attention", None])
def test_words_for_layers_of_one_kind(word: str | None, tmp_path: Path) -> None:
    words = word and ["linear_attention", "mamba", word, "linear_attention", word]
    assert read(tmp_path, "glm5_next", {"layer_types": words}).attention == ("linear", "linear", "full", "linear", "full")


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({}, "FFFFFFFF"),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, "FFFSSSFS"),
        ({"index_topk_freq": 2}, "FFSFSFSF"),
        ({"index_topk_pattern": "FSSFFSSS", "index_topk_freq": 4}, "FSSFFSSS"),
        ({"index_topk_pattern": list("FSSFFSSS")}, "FSSFFSSS"),
        ({"indexer_types": ["full"] * 6 + ["shared"] * 2, "index_topk_pattern": "FSSFFSSS"}, "FFFFFFSS"),
    ],
)
def test_which_layers_have_an_indexer(edit: dict[str, Any], expected: str, tmp_path: Path) -> None:
    found = read(tmp_path, "glm_moe_dsa", {"num_hidden_layers": 8, "indexer_types": None, **edit}).attention
    assert "".join(kind[0].upper() for kind in found) == expected


def test_the_published_sizes(tmp_path: Path) -> None:
    edit = {"num_hidden_layers": 78, "indexer_types": None, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    c = read(tmp_path / "5.2", "glm_moe_dsa", {**edit, "first_k_dense_replace": 3})
    assert (c.attention.count("full"), c.attention.count("shared"), c.dense.count(True)) == (21, 57, 3)
    kinds = ["deepseek_sparse_attention" if i % 4 == 3 else "linear_attention" for i in range(45)]
    edit = {
        "num_hidden_layers": 45,
        "layer_types": kinds,
        "indexer_types": None,
        "mlp_layer_types": None,
        "index_topk": 2048,
    }
    c = read(tmp_path / "5.3-flash", "glm5_next", edit)
    assert (c.attention.count("full"), c.attention.count("linear"), c.dense.count(True)) == (11, 34, 3)
    assert (c.index.budget, c.pool) == (512, 4)


def test_older_files_have_the_base_of_rotation_beside_the_rest(tmp_path: Path) -> None:
    c = read(tmp_path, "glm_moe_dsa", {"rope_parameters": None, "rope_theta": 1e6})
    assert c.latent.rotation is not None
    assert c.latent.rotation.inv_freq == pytest.approx([1e6 ** (-j / 4) for j in range(4)])


def test_what_may_be_absent(tmp_path: Path) -> None:
    absent = ("first_k_dense_replace", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor", "rms_norm_eps")
    c = read(tmp_path, "glm_moe_dsa", {**dict.fromkeys(absent), "n_shared_experts": 0})
    assert c.dense == (True, True, True, False, False)
    assert c.routing == Routing(8, 2, norm=True, factor=1.0, shared=False)
    assert c.eps == 1e-5


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("glm_moe_dsa", "num_hidden_layers", 0),
        ("glm_moe_dsa", "num_hidden_layers", 1 << 40),
        ("glm_moe_dsa", "num_hidden_layers", "5"),
        ("glm_moe_dsa", "num_attention_heads", None),
        ("glm_moe_dsa", "num_attention_heads", True),
        ("glm_moe_dsa", "qk_nope_head_dim", -16),
        ("glm_moe_dsa", "qk_rope_head_dim", 7),
        ("glm_moe_dsa", "v_head_dim", 1.5),
        ("glm_moe_dsa", "kv_lora_rank", 0),
        ("glm_moe_dsa", "index_topk", 0),
        ("glm_moe_dsa", "index_topk", 1 << 30),
        ("glm_moe_dsa", "index_n_heads", None),
        ("glm_moe_dsa", "index_head_dim", 4),
        ("glm_moe_dsa", "indexer_types", ["full"] * 4),
        ("glm_moe_dsa", "indexer_types", ["full", "half", "full", "full", "full"]),
        ("glm_moe_dsa", "indexer_types", ["shared", "full", "full", "full", "full"]),
        ("glm_moe_dsa", "indexer_types", "full"),
        ("glm_moe_dsa", "mlp_layer_types", ["dense", "sparse"]),
        ("glm_moe_dsa", "mlp_layer_types", ["dense", "sparse", "sparse", "sparse", []]),
        ("glm_moe_dsa", "first_k_dense_replace", -1),
        ("glm_moe_dsa", "n_routed_experts", None),
        ("glm_moe_dsa", "num_experts_per_tok", 9),
        ("glm_moe_dsa", "n_group", 3),
        ("glm_moe_dsa", "topk_group", 2),
        ("glm_moe_dsa", "norm_topk_prob", 1),
        ("glm_moe_dsa", "routed_scaling_factor", -2.5),
        ("glm_moe_dsa", "scoring_func", "softmax"),
        ("glm_moe_dsa", "topk_method", "greedy"),
        ("glm_moe_dsa", "moe_layer_freq", 2),
        ("glm_moe_dsa", "hidden_act", "gelu"),
        ("glm_moe_dsa", "attention_bias", True),
        ("glm_moe_dsa", "mlp_bias", True),
        ("glm_moe_dsa", "rms_norm_eps", "small"),
        ("glm_moe_dsa", "vocab_size", None),
        ("glm_moe_dsa", "max_position_embeddings", 0),
        ("glm_moe_dsa", "tie_word_embeddings", "no"),
        ("glm_moe_dsa", "rope_interleave", "yes"),
        ("glm_moe_dsa", "rope_parameters", []),
        ("glm_moe_dsa", "rope_parameters", {"rope_theta": 0}),
        ("glm_moe_dsa", "rope_parameters", {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}),
        ("glm5_next", "qk_rope_head_dim", 8),
        ("glm5_next", "index_kpool", None),
        ("glm5_next", "index_topk", 6),
        ("glm5_next", "index_kpool_always_select_tail", False),
        ("glm5_next", "mla_use_nope", False),
        ("glm5_next", "layer_types", ["linear_attention"] * 4),
        ("glm5_next", "layer_types", ["sliding_attention"] * 5),
        ("glm5_next", "indexer_types", ["full", "full", "shared", "full", "full"]),
        ("glm5_next", "swiglu_limit", None),
        ("glm5_next", "swiglu_limit", 0),
        ("glm5_next", "hc_mult", 0),
        ("glm5_next", "hc_eps", None),
        ("glm5_next", "hc_sinkhorn_iters", 10**9),
        ("glm5_next", "linear_attn_config", 4),
        ("glm5_next", "linear_attn_config.gate_lower_bound", 5.0),
        ("glm5_next", "linear_attn_config.num_heads", None),
        ("glm5_next", "linear_attn_config.short_conv_kernel_size", 1),
    ],
)
def test_a_bad_value_is_named(name: str, key: str, value: object, tmp_path: Path) -> None:
    outer, _, inner = key.partition(".")
    edited = {**config_of(name)[outer], inner: value} if inner else value
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path, name, {outer: edited})
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'config.json'}: {'text_config.' if name == 'glm5_next' else ''}")
    named = "rope" if key == "qk_rope_head_dim" and value == 7 else key
    assert named in message
    assert "\n" not in message


@pytest.mark.parametrize("rules", [None, {"rope_type": "default"}])
def test_the_base_of_rotation_is_not_guessed(rules: dict[str, Any] | None, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: rope_theta is missing"):
        read(tmp_path, "glm_moe_dsa", {"rope_parameters": rules})


@pytest.mark.parametrize(
    ("kda", "full"), [([1, 2, 4], [3]), ([1, 2, 4], [3, 6]), ([0, 1, 3], [2, 4]), ("all", [3, 5]), ([1, 2, True], [3, 5])]
)
def test_lists_of_layers_must_name_each(kda: object, full: object, tmp_path: Path) -> None:
    lists = {**config_of("glm5_next")["linear_attn_config"], "kda_layers": kda, "full_attn_layers": full}
    with pytest.raises(CheckpointError, match=r"linear_attn_config\.(kda_layers|full_attn_layers)"):
        read(tmp_path, "glm5_next", {"layer_types": None, "linear_attn_config": lists})
