"""Inkling and Inkling-2 as they lie on disk: the configuration, checked as it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.operations import Glu

from .variants import AUDIO_TABLE

#: What a layer that looks at all positions is called, and one that looks at the last ones.
_FULL, _LOCAL = "hybrid", "hybrid_sliding"

#: Every sixth layer looks at all positions where nothing else is said.
_PERIOD = 6

#: Floors of Inkling-2's logarithmic scaling where the configuration has none.
_FLOORS = {"inkling2": 128000, "inkling2_text": 128000, "inkling2_loop": 8192, "inkling2_loop_text": 8192}


def is_second(checkpoint: Checkpoint) -> bool:
    """Whether it is an Inkling-2."""
    return (checkpoint.model_type or "").startswith("inkling2")


class Heads(Struct, frozen=True):
    """A layer's attention. `window`: how many positions it looks at, 0 for all. Keys up to `extent` positions back have a
    bias that depends on their distance."""

    heads: int
    kv_heads: int
    head_dim: int
    extent: int
    window: int = 0


class Trunk(Struct, frozen=True, kw_only=True):
    """The numbers that both forward passes need: `layers` has the attention of each layer, `d_rel` numbers a head say how
    distance counts, `kernel` taps have the convolutions. With a `floor` logits grow by `alpha` with the logarithm of the
    position. Of `vocab` tokens the first `used` have logits."""

    layers: tuple[Heads, ...]
    d_rel: int
    kernel: int
    floor: float
    alpha: float
    experts: int
    top_k: int
    route_scale: float
    vocab: int
    used: int
    eps: float
    context: int


class Hearing(Struct, frozen=True):
    """How sounds come: as one of so many levels for each of so many bands."""

    bands: int
    levels: int


class InklingConfig(Trunk, frozen=True, kw_only=True):
    """Inkling. `dense` says which layers have no experts, `shared` experts are chosen for every token, and `mup` divides
    what the logits are made of. With `hearing` it takes sounds."""

    dense: tuple[bool, ...]
    shared: int
    mup: float
    hearing: Hearing | None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> InklingConfig:
        """Read config.json. Raises CheckpointError naming the file and the key."""
        config = Config.of(checkpoint).text()
        trunk = _trunk(config, floor=None)
        if not config.flag("shared_expert_sink", True):
            raise config.error("shared_expert_sink", "is false, this family scores shared experts with the others")
        return cls(
            **trunk,
            dense=_dense(config, len(trunk["layers"])),
            shared=config.size("n_shared_experts", most=65536),
            mup=config.number(config.spelling("logits_mup_width_multiplier", "embedding_multiplier")),
            hearing=_hearing(checkpoint),
        )

    @classmethod
    def draft(cls, checkpoint: Checkpoint) -> tuple[InklingConfig, bool]:
        """The numbers of the first draft head, those of a model with one layer, which has no experts; and whether a norm
        follows it that all heads share."""
        text = Config.of(checkpoint).text()
        own = Config.of(checkpoint).part("mtp_config") or text
        key = "mtp_local_layer_ids" if own is text else "local_layer_ids"
        local = [] if own.get(key) is None else own.get(key)
        if not isinstance(local, list) or not all(type(i) is int and i >= 0 for i in local):
            raise own.error(key, "must be a list of draft heads, counted from 0")
        if not own.flag("mtp_hidden_states_first", True):
            raise own.error("mtp_hidden_states_first", "is false, heads that take the hidden row first can be computed")
        full, windowed = _kinds(text)
        config = replace(cls.of(checkpoint), layers=(windowed if 0 in local else full,), dense=(True,))
        return config, own.flag("chain_hidden_post_norm", False)


class Loop(Struct, frozen=True):
    """Layers `start` to `end` - 1, which run `passes` times; none where they are equal."""

    start: int
    end: int
    passes: int


class Inkling2Config(Trunk, frozen=True, kw_only=True):
    """Inkling-2. Queries and keys are at most `clip` long, what says how distance counts at most `rel_clip`. The residual is
    read back by `block` layers; `cap` bounds the logits."""

    clip: float
    rel_clip: float
    block: int
    glu: Glu
    cap: float
    loop: Loop

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Inkling2Config:
        """Read config.json. Raises CheckpointError naming the file and the key."""
        config = Config.of(checkpoint).text()
        kind = checkpoint.model_type or ""
        config.only("scoring_func", "sigmoid")
        trunk = _trunk(config, floor=_FLOORS.get(kind))
        block, count = config.size("n_layers_per_attn_res_block", 6, most=4096), len(trunk["layers"])
        return cls(
            **trunk,
            clip=config.number("qk_l2_clip_threshold", 512**0.5),
            rel_clip=config.number("rel_l2_clip_threshold", 8.0),
            block=block,
            glu=Glu("situ", beta=config.number("mlp_gate_softcap", 4.0), linear_beta=config.number("mlp_up_softcap", 25.0)),
            cap=config.number("final_logit_softcapping", 30.0),
            loop=_loop(config, count, block) if kind.startswith("inkling2_loop") else Loop(count, count, 1),
        )


def _hearing(checkpoint: Checkpoint) -> Hearing | None:
    """Checkpoints that were cut down to their text may still describe what they no longer hold."""
    config = Config.of(checkpoint).part("audio_config")
    if config is None or AUDIO_TABLE not in checkpoint.tensors:
        return None
    return Hearing(config.size("n_mel_bins", 80, most=65536), config.size("mel_vocab_size", 256, most=65536))


def _trunk(config: Config, *, floor: int | None) -> dict[str, Any]:
    config.only("hidden_act", "silu")
    scaled = floor is not None or config.get("log_scaling_n_floor") is not None
    experts = config.size(config.spelling("n_routed_experts", "num_local_experts"), most=65536)
    vocab = config.size("vocab_size")
    return {
        "layers": _layers(config),
        "d_rel": config.size("d_rel", most=65536),
        "kernel": config.size(config.spelling("conv_kernel_size", "sconv_kernel_size"), 4, most=64),
        "floor": float(config.size("log_scaling_n_floor", floor)) if scaled else 0.0,
        "alpha": config.number("log_scaling_alpha", 0.1),
        "experts": experts,
        "top_k": config.size("num_experts_per_tok", most=experts),
        "route_scale": config.number(config.spelling("route_scale", "routed_scaling_factor"), 8.0),
        "vocab": vocab,
        "used": config.size("unpadded_vocab_size", vocab, most=vocab),
        "eps": config.number("rms_norm_eps", 1e-6),
        "context": config.size(config.spelling("max_position_embeddings", "model_max_length")),
    }


def _layers(config: Config) -> tuple[Heads, ...]:
    count = config.size("num_hidden_layers", most=4096)
    full, local = _kinds(config)
    return tuple(local if is_local else full for is_local in _local(config, count))


def _kinds(config: Config) -> tuple[Heads, Heads]:
    """The attention to all positions, and that to the last ones."""
    window = config.size(config.spelling("sliding_window_size", "sliding_window"))
    return _heads(config, "", config.size("rel_extent")), _heads(config, "swa_", window, window=window)


def _heads(config: Config, prefix: str, extent: int, *, window: int = 0) -> Heads:
    heads_key, kv_key = f"{prefix}num_attention_heads", f"{prefix}num_key_value_heads"
    heads = config.size(heads_key, config.size("num_attention_heads"), most=65536)
    kv_heads = config.size(kv_key, most=65536)
    config.split(kv_key, kv_heads, heads_key, heads)
    head_dim = config.size(f"{prefix}head_dim", config.size("head_dim", most=65536), most=65536)
    return Heads(heads, kv_heads, head_dim, extent, window)


def _local(config: Config, count: int) -> Sequence[bool]:
    """Which layers look at a window only."""
    words = config.choices("layer_types", count, {_LOCAL: True, _FULL: False})
    if words is not None:
        return words
    ids = config.get("local_layer_ids")
    if ids is None:
        return [(i + 1) % _PERIOD != 0 for i in range(count)]
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < count for i in ids):
        raise config.error("local_layer_ids", f"must be a list of layers, from 0 to {count - 1}")
    return [i in set(ids) for i in range(count)]


def _dense(config: Config, count: int) -> tuple[bool, ...]:
    """Which layers have one feed-forward block in place of experts."""
    words = config.choices("mlp_layer_types", count, {"dense": True, "sparse": False})
    if words is not None:
        return words
    leading = config.size("dense_mlp_idx", 0, least=0, most=count)
    return tuple(i < leading for i in range(count))


def _loop(config: Config, count: int, block: int) -> Loop:
    """The looped layers, which published configurations describe in an object of their own."""
    own = config.part("loop_config")
    names = ("core_start", "core_end", "num_passes")
    if own is None:
        own, names = config, ("loop_layer_index_start", "loop_layer_index_end", "loop_num_passes")
    start = own.size(names[0], 6, most=count)
    end = own.size(names[1], 18, least=start + 1, most=count)
    for name, value in zip(names, (start, end), strict=False):
        if value % block:
            raise own.error(name, f"is {value}, which is no multiple of n_layers_per_attn_res_block, {block}")
    return Loop(start, end, own.size(names[2], 3, most=64))
