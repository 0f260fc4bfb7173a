"""What the configurations of Qwen3-Next and its successors say, in all the words that they use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.blocks import GatedStreams
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.delta import GatedDelta
from colibri.compute.ngrams import Ngrams
from colibri.errors import CheckpointError
from colibri_qwen.hybrid_checkpoint import FlashNextConfig, HybridConfig, Indexer

DATA = Path(__file__).parent / "data"


def config_of(name: str) -> dict[str, Any]:
    return json.loads((DATA / name / "config.json").read_text())


def opened(config: dict[str, Any]) -> Checkpoint:
    return Checkpoint(Path("model"), "safetensors", config, {}, {})


def edited(name: str, edit: dict[str, Any]) -> Checkpoint:
    """The checkpoint `name` with other values for what its configuration says of the language model."""
    config = config_of(name)
    config.get("text_config", config).update(edit)
    return opened(config)


def read(checkpoint: Checkpoint) -> HybridConfig | FlashNextConfig:
    flash = str(checkpoint.model_type).startswith("qwen4")
    return FlashNextConfig.of(checkpoint) if flash else HybridConfig.of(checkpoint)


def test_the_configuration_of_a_mixture() -> None:
    c = HybridConfig.of(opened(config_of("qwen3_5_moe")))
    assert (c.linear, c.sparse) == ((True, True, True, False), (True,) * 4)
    assert (c.heads, c.kv_heads, c.head_dim, c.rope.head_dim, len(c.rope.inv_freq)) == (4, 2, 32, 32, 4)
    assert (c.experts, c.top_k, c.norm_topk, c.vocab, c.eps, c.tied, c.context) == (8, 2, True, 256, 1e-6, False, 4096)
    assert c.delta == GatedDelta(2, 4, 16, 16, 4, 1e-6, "silu", grouped=False, joint=False, turns=False, log=True)
    assert HybridConfig.of(opened(config_of("qwen3_next"))).delta.grouped


def test_a_dense_model_has_no_experts() -> None:
    c = HybridConfig.of(opened(config_of("qwen3_5")))
    assert (c.experts, c.sparse) == (0, (False,) * 4)


def test_the_configuration_of_flash_next() -> None:
    c = FlashNextConfig.of(opened(config_of("qwen4_exp")))
    assert c.streams == GatedStreams(4, 1e-6, unit=True)
    assert c.indexer == Indexer(heads=12, dim=16, budget=2, every=4, apart=False)
    assert c.ngrams == Ngrams(orders=3, heads=2, parts=4, vocab=256, eos=3, kernel=4, numbers={})
    assert c.ngram_layers == {1}
    assert c.base.delta.gate == "sigmoid"


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("qwen3_next", {"layer_types": None}),
        ("qwen3_next", {"layer_types": None, "full_attention_interval": 4}),
        ("qwen3_5", {"layer_types": ["mamba", "mamba", "mamba", "attention"]}),
        ("qwen4_exp", {"layer_types": [*["linear_attention"] * 3, "indexed_attention"]}),
        ("qwen4_exp", {"layer_types": [*["linear_attention"] * 3, "qwen_sparse_attention"]}),
        ("qwen3_next", {"rope_parameters": None, "rope_theta": 1e7, "partial_rotary_factor": 0.25, "rope_scaling": None}),
        ("qwen3_next", {"rope_parameters": {"rope_theta": 1e7}}),
        ("qwen3_next", {"decoder_sparse_step": None, "mlp_only_layers": None, "norm_topk_prob": None}),
        ("qwen4_exp", {"eos_token_id": [3, 4]}),
        ("qwen4_exp", {"indexer_kv_heads": None, "hc_count": None, "ngram_size": None, "ple_conv_kernel_size": None}),
    ],
)
def test_other_words_for_the_same(name: str, edit: dict[str, Any]) -> None:
    assert read(edited(name, edit)) == read(opened(config_of(name)))


def test_which_layers_are_what() -> None:
    c = HybridConfig.of(edited("qwen3_next", {"layer_types": None, "full_attention_interval": 2}))
    assert c.linear == (True, False, True, False)
    assert HybridConfig.of(edited("qwen3_next", {"mlp_only_layers": [0, 2]})).sparse == (False, True, False, True)
    assert HybridConfig.of(edited("qwen3_next", {"decoder_sparse_step": 2})).sparse == (False, True, False, True)


def test_whether_embeddings_are_tied_is_said_by_the_whole_before_the_part() -> None:
    part = edited("qwen3_5", {"tie_word_embeddings": True})
    assert not HybridConfig.of(part).tied
    del part.config["tie_word_embeddings"]
    assert HybridConfig.of(part).tied


BAD: list[tuple[str, str, object]] = [
    ("qwen3_next", "num_hidden_layers", 0),
    ("qwen3_next", "num_hidden_layers", 5),
    ("qwen3_next", "num_attention_heads", 3),
    ("qwen3_next", "num_attention_heads", None),
    ("qwen3_next", "num_key_value_heads", 8),
    ("qwen3_next", "head_dim", "32"),
    ("qwen3_next", "hidden_act", "gelu"),
    ("qwen3_next", "attention_bias", True),
    ("qwen3_next", "attn_output_gate", False),
    ("qwen3_next", "layer_types", ["linear_attention"] * 3),
    ("qwen3_next", "layer_types", [*["linear_attention"] * 3, "sliding_attention"]),
    ("qwen3_next", "layer_types", [*["linear_attention"] * 3, "indexed_attention"]),
    ("qwen3_next", "layer_types", [*["linear_attention"] * 3, ["full_attention"]]),
    ("qwen3_next", "num_experts", None),
    ("qwen3_next", "num_experts", 0),
    ("qwen3_next", "num_experts_per_tok", 9),
    ("qwen3_next", "norm_topk_prob", 1),
    ("qwen3_next", "mlp_only_layers", [4]),
    ("qwen3_next", "mlp_only_layers", [True]),
    ("qwen3_next", "mlp_only_layers", "none"),
    ("qwen3_next", "decoder_sparse_step", 0),
    ("qwen3_next", "linear_num_key_heads", 3),
    ("qwen3_next", "linear_key_head_dim", None),
    ("qwen3_next", "linear_conv_kernel_dim", 1 << 20),
    ("qwen3_next", "rope_parameters", {"rope_theta": 0}),
    ("qwen3_next", "rope_parameters", {"rope_type": "spiral", "rope_theta": 1e4}),
    ("qwen3_next", "tie_word_embeddings", "no"),
    ("qwen3_next", "vocab_size", None),
    ("qwen3_5", "num_hidden_layers", True),
    ("qwen3_5", "rms_norm_eps", float("inf")),
    ("qwen3_5", "rope_parameters", {"partial_rotary_factor": 2.0}),
    ("qwen3_5_moe", "num_experts_per_tok", 0),
    ("qwen4_exp", "output_gate_type", "tanh"),
    ("qwen4_exp", "hc_count", 1),
    ("qwen4_exp", "indexer_kv_heads", 2),
    ("qwen4_exp", "indexer_head_dim", 6),
    ("qwen4_exp", "indexer_budget", 9),
    ("qwen4_exp", "indexer_n_heads", None),
    ("qwen4_exp", "indexer_compress_ratio", 0),
    ("qwen4_exp", "ple_layer_ids", [0]),
    ("qwen4_exp", "ple_layer_ids", [5]),
    ("qwen4_exp", "ple_layer_ids", 2),
    ("qwen4_exp", "ngram_size", 1),
    ("qwen4_exp", "heads_per_ngram", 0),
    ("qwen4_exp", "split_ngram_parts", -1),
    ("qwen4_exp", "eos_token_id", None),
    ("qwen4_exp", "eos_token_id", 256),
    ("qwen4_exp", "eos_token_id", []),
]


@pytest.mark.parametrize(("name", "key", "value"), BAD)
def test_a_bad_value_is_named(name: str, key: str, value: object) -> None:
    checkpoint = edited(name, {key: value})
    with pytest.raises(CheckpointError) as caught:
        read(checkpoint)
    message = str(caught.value)
    prefix = "text_config." if "text_config" in checkpoint.config else ""
    named = {"num_attention_heads": "num_key_value_heads"} if value == 3 else {}
    named |= {"num_hidden_layers": "layer_types"} if value == 5 and key == "num_hidden_layers" else {}
    named |= {"indexer_budget": "indexer_compress_ratio", "rope_parameters": "rope"}
    assert message.startswith(f"model/config.json: {prefix}{named.get(key, key)}")
    assert "\n" not in message


def test_a_language_model_that_is_no_object_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: text_config must be an object"):
        HybridConfig.of(opened({**config_of("qwen3_5"), "text_config": []}))
