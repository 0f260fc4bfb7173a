"""Qwen2 and Qwen2.5 as they lie on disk: the configuration."""

from __future__ import annotations

from msgspec import Struct

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.rope import Rope, rope_for


class QwenConfig(Struct, frozen=True):
    """The numbers of the forward pass. `windows` holds each layer's attention window in tokens, 0 for none."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    eps: float
    tied: bool
    context: int
    rope: Rope
    windows: tuple[int, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> QwenConfig:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        config = Config.of(checkpoint)
        layers = config.size("num_hidden_layers", most=4096)
        heads = config.size("num_attention_heads")
        kv_heads = config.size("num_key_value_heads", heads)
        config.split("num_key_value_heads", kv_heads, "num_attention_heads", heads)
        hidden = config.size("hidden_size")
        own = config.size("head_dim", 0, least=0)
        head_dim = own or config.split("num_attention_heads", heads, "hidden_size", hidden)
        config.only("hidden_act", "silu")
        context = config.size("max_position_embeddings", 32768)
        return cls(
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocab=config.size("vocab_size"),
            eps=config.number("rms_norm_eps", 1e-6),
            tied=config.flag("tie_word_embeddings", False),
            context=context,
            rope=rope_for(config, head_dim, context),
            windows=_windows(config, layers),
        )


def _windows(config: Config, layers: int) -> tuple[int, ...]:
    """The first `max_window_layers` layers see everything, the others a window, if windows are in use at all."""
    if not config.flag("use_sliding_window", False) or config.get("sliding_window") is None:
        return (0,) * layers
    window = config.size("sliding_window")
    found = config.choices("layer_types", layers, {"full_attention": 0, "sliding_attention": window})
    if found is not None:
        return found
    full = config.size("max_window_layers", 28, least=0)
    return tuple(0 if i < full else window for i in range(layers))
