"""What GGUF files say in other words than the published ones."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.gguf_names import layers_of

#: `general.architecture` -> the published `model_type`: one for all models of this family.
ARCHITECTURES = {"mimo2": "mimo_v2"}

#: A draft head's tensors besides those that all families share (see find_gguf).
HEAD = {"pre_mlp_layernorm": "ffn_norm", "final_layernorm": "layer_output_norm"}

_KEYS = {"hybrid_layer_pattern": "attention.sliding_window_pattern"}


def as_published(checkpoint: Checkpoint) -> Config:
    """The configuration by the keys of config.json."""
    config = Config.of(checkpoint, _KEYS)
    if checkpoint.format != "gguf":
        return config
    layers = config.size("num_hidden_layers", most=4096)
    windowed = layers_of(config, "hybrid_layer_pattern", int, layers)
    heads = {
        (bool(kind), count)
        for kind, count in zip(windowed, layers_of(config, "num_key_value_heads", int, layers), strict=True)
    }
    if len(heads) != len(dict(heads)):
        raise config.error("num_key_value_heads", "must be the same in all layers with a window, and in all without")
    sinks = {windowed[i] for i in range(layers) if f"blk.{i}.attn_sinks.weight" in checkpoint.tensors}
    return config.given(
        hybrid_layer_pattern=[int(one) for one in windowed],
        moe_layer_freq=[int(f"blk.{i}.ffn_gate_inp.weight" in checkpoint.tensors) for i in range(layers)],
        num_key_value_heads=dict(heads).get(False),
        swa_num_key_value_heads=dict(heads).get(True, dict(heads).get(False)),
        add_swa_attention_sink_bias=1 in sinks,
        add_full_attention_sink_bias=0 in sinks,
    )
