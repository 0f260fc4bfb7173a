"""What GGUF files of the models with delta networks say in other words than the published files."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.gguf_names import has_layer, layers_of, model_type

#: `general.architecture` -> the published `model_type`.
ARCHITECTURES = {
    "qwen2": "qwen2",
    "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5",
    "qwen35moe": "qwen3_5_moe",
    "qwen4exp": "qwen4_exp",
}

#: Keys besides those that all families share.
_KEYS = {
    "linear_inner_size": "ssm.inner_size",
    "recurrent_layers": "attention.recurrent_layers",
    "full_attention_interval": "full_attention_interval",
    "indexer_n_heads": "attention.indexer.head_count",
    "indexer_head_dim": "attention.indexer.key_length",
    "indexer_budget": "attention.indexer.top_k",
    "compress_ratios": "attention.compress_ratios",
    "ngram_layers": "ple.layers",
    "ngram_size": "ple.ngram_size",
    "heads_per_ngram": "ple.heads_per_ngram",
    "ple_conv_kernel_size": "ple.conv_kernel",
    "eos_token_id": "ple.eos_token_id",
    "layer_multipliers": "ple.layer_multipliers",
    "ngram_heads_vocab_sizes": "ple.head_vocab_sizes",
    "ngram_heads_offsets": "ple.head_offsets",
}

_STREAMS = {
    "hc_norm": "norm",
    "input_mix_weight_down": "down",
    "input_mix_weight_up": "up",
    "block_inject_weight": "inject",
}
_NGRAMS = {
    "key_proj": "key",
    "value_proj": "value",
    **{name: name for name in ("conv1d", "norm_key", "norm_query", "norm_conv")},
}
_HEAD = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}

#: Tensors besides those that all families share (see find_gguf).
NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    **{f"attn_hyper_connection.{name}": f"hc_attn_{theirs}" for name, theirs in _STREAMS.items()},
    **{f"mlp_hyper_connection.{name}": f"hc_ffn_{theirs}" for name, theirs in _STREAMS.items()},
    **{f"model.hyper_connection_mixer.{name}.weight": f"output_hc_{theirs}.weight" for name, theirs in _STREAMS.items()},
    **{f"self_attn.indexer.{name}_proj": f"indexer.{name}_proj" for name in "qk"},
    **{f"self_attn.indexer.{name}_layernorm": f"indexer.{name}_norm" for name in "qk"},
    **{f"ple.{name}": f"ple_{theirs}" for name, theirs in _NGRAMS.items()},
    **{name: f"nextn.{theirs}" for name, theirs in _HEAD.items()},
}


def as_published(checkpoint: Checkpoint) -> Config:
    """The configuration by the keys of config.json."""
    config = Config.of(checkpoint, _KEYS)
    if checkpoint.format != "gguf":
        return config
    layers, heads = config.size("num_hidden_layers", most=4096), config.size("linear_num_value_heads")
    inner = config.size("linear_inner_size")
    ratios = config.get("compress_ratios")
    return config.given(
        layer_types=_layer_types(config, layers),
        linear_value_head_dim=config.split("linear_num_value_heads", heads, "linear_inner_size", inner),
        output_gate_type="sigmoid" if model_type(checkpoint, ARCHITECTURES) == "qwen4_exp" else "silu",
        indexer_compress_ratio=max(ratios) if isinstance(ratios, list) and ratios else None,
        ple_layer_ids=_counted_from_one(config, layers),
        split_ngram_parts=1,
    )


def draft_scopes(checkpoint: Checkpoint) -> tuple[str, str] | None:
    """Where the names of the draft head's own tensors begin, and those of its layer; None where there is no head."""
    if checkpoint.format != "gguf":
        return ("mtp", "mtp.layers.0") if checkpoint.has("mtp.") else None
    last = Config.of(checkpoint).size("num_hidden_layers", most=4096)
    return (f"model.layers.{last}",) * 2 if has_layer(checkpoint, last) else None


def _layer_types(config: Config, layers: int) -> list[str] | None:
    """What the interval between layers with attention says, where the file does not tell each layer."""
    if config.get("recurrent_layers") is None:
        return None
    recurrent = layers_of(config, "recurrent_layers", bool, layers)
    return ["linear_attention" if one else "full_attention" for one in recurrent]


def _counted_from_one(config: Config, layers: int) -> list[int] | None:
    given = config.get("ngram_layers")
    if given is None:
        return None
    if not isinstance(given, list) or len(given) > 1 or not all(type(one) is int and 0 <= one < layers for one in given):
        raise config.error("ngram_layers", f"must list one layer, from 0 to {layers - 1}: there is one table")
    return [one + 1 for one in given]
