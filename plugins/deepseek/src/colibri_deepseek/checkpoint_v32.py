"""DeepSeek V3.2 as it lies on disk: the configuration, in the hub's spelling and in that of transformers."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from colibri.compute.blocks import Index, Latent, Routing
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.gguf_names import model_type
from colibri.compute.rope import Rope, rope_for

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
        nope, turned = config.size("qk_nope_head_dim", most=65536), config.size("qk_rope_head_dim", most=65536)
        rope = rope_for(config, turned, context)
        return cls(
            dense=_dense(config, config.size("num_hidden_layers", most=4096)),
            latent=Latent(
                heads=config.size("num_attention_heads", most=65536),
                nope=nope,
                rope=turned,
                v_dim=config.size("v_head_dim", most=65536),
                rank=config.size("kv_lora_rank", most=65536),
                scale=float((nope + turned) ** -0.5 * _sharpness(config)),
                rotation=replace(rope, interleaved=config.flag("rope_interleave", True)),
                split=checkpoint.format == "gguf",
            ),
            index=_index(config, rope) if model_type(checkpoint, ARCHITECTURES) == "deepseek_v32" else None,
            routing=_routing(config),
            vocab=config.size("vocab_size"),
            eps=config.number("rms_norm_eps", 1e-6),
            tied=config.flag("tie_word_embeddings", False),
            context=context,
        )


def _check(config: Config) -> None:
    """Refuse what no published model of this family has."""
    for key, word in {"hidden_act": "silu", "scoring_func": "sigmoid", "topk_method": "noaux_tc"}.items():
        config.only(key, word)
    for key in ("attention_bias", "mlp_bias"):
        config.without(key)
    if config.size("moe_layer_freq", 1) != 1:
        raise config.error("moe_layer_freq", "is not 1: experts in every layer behind the dense ones can be computed")
    config.size("q_lora_rank", most=1 << 20)  # null: a model whose queries have no latent


def _dense(config: Config, layers: int) -> tuple[bool, ...]:
    found = config.choices("mlp_layer_types", layers, {"dense": True, "sparse": False})
    first = config.size("first_k_dense_replace", 3, least=0)
    return found or tuple(i < first for i in range(layers))


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


def _index(config: Config, rope: Rope) -> Index:
    head_dim = config.size("index_head_dim", least=rope.head_dim, most=65536)
    rope = replace(rope, head_dim=head_dim, interleaved=config.flag("indexer_rope_interleave", False))
    return Index(config.size("index_n_heads", most=65536), head_dim, config.size("index_topk", most=65536), rope)


def _routing(config: Config) -> Routing:
    experts, groups = config.size("n_routed_experts", most=65536), config.size("n_group", 1)
    config.split("n_group", groups, "n_routed_experts", experts)
    return Routing(
        experts=experts,
        top_k=config.size("num_experts_per_tok", most=experts),
        norm=config.flag("norm_topk_prob", True),
        factor=config.number("routed_scaling_factor", 1.0),
        groups=groups,
        top_groups=config.size("topk_group", groups, most=groups),
        shared=config.size("n_shared_experts", 0, least=0) > 0,
    )
