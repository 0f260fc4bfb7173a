"""OLMoE as it lies on disk: the configuration."""

from __future__ import annotations

from msgspec import Struct

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.rope import Rope, rope_for

MODEL_TYPE = "olmoe"


class OlmoeConfig(Struct, frozen=True):
    """The numbers of the forward pass. `clip` limits q, k and v to -clip..clip; 0 is no limit."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    norm_topk: bool
    clip: float
    vocab: int
    eps: float
    tied: bool
    context: int
    rope: Rope

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> OlmoeConfig:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        config = Config.of(checkpoint)
        heads = config.size("num_attention_heads")
        kv_heads = config.size("num_key_value_heads", heads)
        config.split("num_key_value_heads", kv_heads, "num_attention_heads", heads)
        head_dim = config.split("num_attention_heads", heads, "hidden_size", config.size("hidden_size"))
        experts = config.size("num_experts", 64, most=65536)
        config.only("hidden_act", "silu")
        config.without("attention_bias")
        context = config.size("max_position_embeddings", 4096)
        return cls(
            layers=config.size("num_hidden_layers", most=4096),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            experts=experts,
            top_k=config.size("num_experts_per_tok", 8, most=experts),
            norm_topk=config.flag("norm_topk_prob", False),
            clip=config.number("clip_qkv") if config.get("clip_qkv") else 0.0,
            vocab=config.size("vocab_size"),
            eps=config.number("rms_norm_eps", 1e-5),
            tied=config.flag("tie_word_embeddings", False),
            context=context,
            rope=rope_for(config, head_dim, context),
        )


def matches(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is an OLMoE."""
    return checkpoint.model_type == MODEL_TYPE
