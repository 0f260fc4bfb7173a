"""The configuration: what config.json says, checked before anything is computed with it."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.rope import Rope, rope_for
from msgspec import Struct


class HeronConfig(Struct, frozen=True):
    """The numbers of the forward pass. `tied`: the embedding is the output matrix as well."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    eps: float
    tied: bool
    context: int
    rope: Rope

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> HeronConfig:
        """Read config.json. Raises CheckpointError naming the file and the key."""
        config = Config.of(checkpoint)
        heads = config.size("num_attention_heads")
        kv_heads = config.size("num_key_value_heads", heads)
        config.split("num_key_value_heads", kv_heads, "num_attention_heads", heads)
        own = config.size("head_dim", 0, least=0)
        head_dim = own or config.split("num_attention_heads", heads, "hidden_size", config.size("hidden_size"))
        # What the graph does not compute is refused here: a model that says so would give wrong answers.
        config.only("hidden_act", "silu")
        context = config.size("max_position_embeddings")
        return cls(
            layers=config.size("num_hidden_layers", most=4096),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocab=config.size("vocab_size"),
            eps=config.number("rms_norm_eps", 1e-6),
            tied=config.flag("tie_word_embeddings", False),
            context=context,
            rope=rope_for(config, head_dim, context),
        )
