"""What GGUF files say in other words than the published ones."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.gguf_names import layers_of, limit_of, model_type

#: `general.architecture` -> the published `model_type`.
ARCHITECTURES = {"glm-dsa": "glm_moe_dsa", "glm5-next": "glm5_next"}

_KEYS = {
    "indexers": "attention.indexer.types",
    "linear_num_heads": "attention.head_count",
}


def as_published(checkpoint: Checkpoint) -> Config:
    """The configuration by the keys of config.json."""
    config = Config.of(checkpoint, _KEYS)
    if checkpoint.format != "gguf":
        return config
    layers = config.size("num_hidden_layers", most=4096)
    config = config.given(norm_topk_prob=config.flag("norm_topk_prob", False))
    if config.get("indexers") is not None:
        own = layers_of(config, "indexers", bool, layers)
        config = config.given(indexer_types=["full" if one else "shared" for one in own])
    if model_type(checkpoint, ARCHITECTURES) != "glm5_next":
        return config
    limit = limit_of(config, layers)
    heads = layers_of(config, "num_key_value_heads", int, layers)  # none in layers that keep a memory
    kinds = ["full_attention" if one else "linear_attention" for one in heads]
    return config.given(swiglu_limit=limit, layer_types=kinds)
