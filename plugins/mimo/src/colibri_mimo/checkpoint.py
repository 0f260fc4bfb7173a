"""The configuration of a MiMo model, as published files spell it and as transformers does."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from colibri.compute.blocks import Routing
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.rope import Rope, rope_for
from colibri.compute.sizes import routing_of

from .gguf import as_published

#: What transformers' words for layers say of them: whether they have a window, and whether they have experts.
_WINDOWED = {"sliding_attention": True, "full_attention": False, "attention": False}
_EXPERTS = {"sparse": True, "dense": False}


class Attention(Struct, frozen=True):
    """The sizes of one kind of attention. `window` is in tokens, the own one counted, 0 for none; `sinks`: its heads may
    attend to nothing."""

    heads: int
    kv_heads: int
    head_dim: int
    v_dim: int
    window: int
    sinks: bool
    rope: Rope


class MimoConfig(Struct, frozen=True):
    """The numbers of the forward pass. `attention` is each layer's, `expert_layers` says of each whether it has experts.
    `shards`: how many runs of rows q, k and v have where they lie in one matrix, each with its part of all three."""

    vocab: int
    eps: float
    tied: bool
    context: int
    attention: tuple[Attention, ...]
    expert_layers: tuple[bool, ...]
    shards: int
    value_scale: float
    routing: Routing

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> MimoConfig:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        config = as_published(checkpoint).text()
        config.only("hidden_act", "silu")
        config.without("attention_bias")
        layers = config.size("num_hidden_layers", most=4096)
        context = config.size("max_position_embeddings", 131072)
        full = _full(config, context)
        windowed = _windowed(config, context, full)
        has_windows = _layers(config, layers, "hybrid_layer_pattern", "layer_types", _WINDOWED)
        return cls(
            vocab=config.size("vocab_size"),
            eps=config.number(config.spelling("layernorm_epsilon", "rms_norm_eps")),
            tied=config.flag("tie_word_embeddings", False),
            context=context,
            attention=tuple(windowed if has_window else full for has_window in has_windows),
            expert_layers=_layers(config, layers, "moe_layer_freq", "mlp_layer_types", _EXPERTS),
            shards=1 if checkpoint.format == "gguf" else full.kv_heads,
            value_scale=config.number("attention_value_scale", 1.0),
            routing=_routing(config),
        )

    @classmethod
    def draft(cls, checkpoint: Checkpoint) -> MimoConfig:
        """The numbers of a draft head: those of a model with one layer, which has a window. Raises CheckpointError naming
        the file and the key."""
        c, config = cls.of(checkpoint), as_published(checkpoint).text()
        attention = _windowed(config, c.context, _full(config, c.context))
        return replace(c, attention=(attention,), expert_layers=(False,))


def _layers(config: Config, count: int, key: str, own_key: str, words: Mapping[str, bool]) -> tuple[bool, ...]:
    """What published files say of each layer by 1 and 0, and transformers' own by words."""
    found = config.choices(key, count, {1: True, 0: False}) or config.choices(own_key, count, words)
    if found is None:
        raise config.error(key, "is missing")
    return found


def _full(config: Config, context: int) -> Attention:
    heads, head_dim = config.size("num_attention_heads", most=65536), config.size("head_dim", most=65536)
    kv_heads = config.size("num_key_value_heads")
    config.split("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_dim=config.size("v_head_dim", head_dim, most=65536),
        window=0,
        sinks=config.flag("add_full_attention_sink_bias", False),
        rope=_rope(config, head_dim, context, "full_attention", "rope_theta"),
    )


def _windowed(config: Config, context: int, full: Attention) -> Attention:
    """Published files give the sizes of these layers by keys of their own. Transformers' own say nothing of them and mean
    those of the others, but twice as many heads of keys and values."""
    heads_key = config.spelling("swa_num_attention_heads", "num_attention_heads")
    kv_key = config.spelling("swa_num_key_value_heads", "num_key_value_heads")
    heads = config.size(heads_key, most=65536)
    kv_heads = config.size(kv_key) * (2 if kv_key == "num_key_value_heads" else 1)
    config.split(kv_key, kv_heads, heads_key, heads)
    head_dim = config.size("swa_head_dim", full.head_dim, most=65536)
    # Where both are given, one counts the tokens before the own one, whatever the other says.
    before = config.get("sliding_window_size") is not None
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_dim=config.size("swa_v_head_dim", full.v_dim, most=65536),
        window=config.size("sliding_window_size" if before else "sliding_window", most=1 << 30) + before,
        sinks=config.flag("add_swa_attention_sink_bias", True),
        rope=_rope(config, head_dim, context, "sliding_attention", "swa_rope_theta"),
    )


def _rope(config: Config, head_dim: int, context: int, layers: str, theta: str) -> Rope:
    if config.get("rope_parameters") is None:
        config.number(theta)  # a base that the file does not say would be guessed
    return rope_for(config, head_dim, context, layers=layers, theta=theta)


def _routing(config: Config) -> Routing:
    routing = routing_of(config)
    if routing.shared:
        raise config.error("n_shared_experts", "is above 0, this family has none")
    return routing
