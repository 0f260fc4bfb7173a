"""DeepSeek V3.2 as it lies on disk: the configuration, in the hub's spelling and in that of transformers."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from colibri.compute.blocks import Index, Latent, Routing
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.gguf_names import model_type
from colibri.compute.rope import rope_for
from colibri.compute.sizes import MOST, dense_layers, index_of, latent_of, routing_of

from .gguf import ARCHITECTURES, as_published


class V32Config(Struct, frozen=True):
    """The numbers of the forward pass. `dense` says which layers have no experts; without `index` (V3) attention is to all
    positions."""

    dense: tuple[bool, ...]
    latent: Latent
    index: Index | None
    routing: Routing
    vocab: int
    eps: float
    tied: bool
    context: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> V32Config:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        config = as_published(checkpoint)
        _check(config)
        context = config.size("max_position_embeddings")
        rope = rope_for(config, config.size("qk_rope_head_dim", most=MOST), context)
        return cls(
            dense=dense_layers(config, config.size("num_hidden_layers", most=4096), 3),
            latent=latent_of(
                config,
                replace(rope, interleaved=config.flag("rope_interleave", True)),
                split=checkpoint.format == "gguf",
                sharpness=_sharpness(config),
            ),
            index=index_of(config, replace(rope, interleaved=config.flag("indexer_rope_interleave", False)))
            if model_type(checkpoint, ARCHITECTURES) == "deepseek_v32"
            else None,
            routing=routing_of(config),
            vocab=config.size("vocab_size"),
            eps=config.number("rms_norm_eps", 1e-6),
            tied=config.flag("tie_word_embeddings", False),
            context=context,
        )


def _check(config: Config) -> None:
    """Refuse what no published model of this family has."""
    config.only("hidden_act", "silu")
    for key in ("attention_bias", "mlp_bias"):
        config.without(key)
    if config.size("moe_layer_freq", 1) != 1:
        raise config.error("moe_layer_freq", "is not 1: experts in every layer behind the dense ones can be computed")
    config.size("q_lora_rank", most=1 << 20)  # null: a model whose queries have no latent


def _sharpness(config: Config) -> float:
    """What a stretched rotation multiplies attention's scale with."""
    rules = config.part("rope_parameters") or config.part("rope_scaling")
    if (
        rules is None
        or not rules.get("mscale_all_dim")
        or rules.word(rules.spelling("rope_type", "type"), "default") == "default"
    ):
        return 1.0
    stretch = rules.number("factor")
    return (0.1 * rules.number("mscale_all_dim") * math.log(stretch) + 1) ** 2 if stretch > 1 else 1.0
