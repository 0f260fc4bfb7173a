"""DeepSeek V4 as it lies on disk: the configuration, in the hub's spelling and in that of transformers."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from colibri.compute.blocks import Index, Streams
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.operations import Glu
from colibri.compute.rope import Rope, rope_for

from .gguf import as_published


class Compression(Struct, frozen=True):
    """What a layer sees of the past behind its window: one row for every `every` positions. `chosen`: only those rows that
    an indexer chooses, each made from two runs of positions that overlap."""

    every: int
    chosen: bool


#: What `rope_parameters` calls the rotations of layers without and with compression.
_ROPES = ("main", "compress")

#: What `layer_types` calls compressed layers, and what `compress_ratios` says of them.
_SPARSE, _HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
_RATIOS = {0: None, 4: Compression(4, True), 128: Compression(128, False)}


class V4Config(Struct, frozen=True):
    """The numbers of the forward pass. `layers` holds each layer's compression, None where there is a window only; `hashed`
    says in which layers a token's experts follow from the token. Heads are rotated by `rope`, or by `compressed_rope` in
    layers with compression."""

    layers: tuple[Compression | None, ...]
    hashed: tuple[bool, ...]
    heads: int
    head_dim: int
    window: int
    groups: int
    output_rank: int
    rope: Rope
    compressed_rope: Rope
    index: Index
    streams: Streams
    experts: int
    top_k: int
    norm_topk: bool
    factor: float
    glu: Glu
    vocab: int
    eps: float
    tied: bool
    context: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> V4Config:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        config = as_published(checkpoint)
        _check(config)
        layers = config.size("num_hidden_layers", most=4096)
        heads, head_dim = config.size("num_attention_heads", most=65536), config.size("head_dim", most=65536)
        groups = config.size("o_groups", most=heads)
        config.split("o_groups", groups, "num_attention_heads", heads)
        eps = config.number("rms_norm_eps", 1e-6)
        experts = config.size("n_routed_experts", most=65536)
        rope, compressed = _ropes(config, head_dim)
        index_dim = config.size("index_head_dim", least=2 * len(compressed.inv_freq), most=65536)
        return cls(
            layers=_layers(config, layers),
            hashed=_hashed(config, layers),
            heads=heads,
            head_dim=head_dim,
            window=config.size("sliding_window"),
            groups=groups,
            output_rank=config.size("o_lora_rank", most=1 << 20),
            rope=rope,
            compressed_rope=compressed,
            index=Index(
                heads=config.size("index_n_heads", most=65536),
                head_dim=index_dim,
                budget=config.size("index_topk", most=65536),
                rotation=_trailing(compressed, index_dim),
            ),
            streams=Streams(
                n=config.size("hc_mult", most=64),
                iterations=config.size("hc_sinkhorn_iters", most=1000),
                eps=config.number("hc_eps"),
                norm_eps=eps,
            ),
            experts=experts,
            top_k=config.size("num_experts_per_tok", most=experts),
            norm_topk=config.flag("norm_topk_prob", True),
            factor=config.number("routed_scaling_factor", 1.0),
            glu=Glu(limit=config.number("swiglu_limit")),
            vocab=config.size("vocab_size"),
            eps=eps,
            tied=config.flag("tie_word_embeddings", False),
            context=config.size("max_position_embeddings"),
        )


def _check(config: Config) -> None:
    """Refuse what no published model of this family has."""
    for key, word in {"hidden_act": "silu", "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc"}.items():
        config.only(key, word)
    for key in ("attention_bias", "mlp_bias"):
        config.without(key)
    for key in ("num_key_value_heads", "n_shared_experts"):
        if config.size(key, 1, least=0) != 1:
            raise config.error(key, "is not 1: one of them can be computed")


def _layers(config: Config, layers: int) -> tuple[Compression | None, ...]:
    ratios = config.get("compress_ratios")
    if ratios is not None:
        count = max(layers, len(ratios)) if isinstance(ratios, list) else layers  # drafting layers come last
        return (config.choices("compress_ratios", count, _RATIOS) or ())[:layers]
    rates = config.part("compress_rates") or Config({}, config.file, f"{config.prefix}compress_rates.")
    found = config.choices("layer_types", layers, {"sliding_attention": "", _SPARSE: _SPARSE, _HEAVY: _HEAVY})
    if found is None:
        raise config.error("compress_ratios", "is missing")
    return tuple(Compression(rates.size(kind, most=1 << 20), kind == _SPARSE) if kind else None for kind in found)


def _hashed(config: Config, layers: int) -> tuple[bool, ...]:
    found = config.choices("mlp_layer_types", layers, {"hash_moe": True, "moe": False})
    if found is not None:
        return found
    first = config.size("num_hash_layers", least=0)
    return tuple(i < first for i in range(layers))


def _ropes(config: Config, head_dim: int) -> tuple[Rope, Rope]:
    """The rotations of layers without and with compression, both of a head's last values."""
    context, dims = config.size("max_position_embeddings"), config.size("qk_rope_head_dim", most=head_dim)
    both = config.part("rope_parameters")
    plain = config
    if both is not None and both.get("main") is not None:
        bases = [(both.part(name) or Config({}, config.file, f"{both.prefix}{name}."), "rope_theta") for name in _ROPES]
    else:  # the hub's one scaling is for layers with compression
        bases = [(config, "rope_theta"), (config, "compress_rope_theta")]
        plain = config.given(rope_scaling=None, rope_parameters=None)
    for part, key in bases:
        part.number(key)  # no base is too well known to be written down
    main, compress = _ROPES
    rope = rope_for(plain, head_dim, context, partial=dims / head_dim, layers=main)
    compressed = rope_for(config, head_dim, context, partial=dims / head_dim, layers=compress, theta="compress_rope_theta")
    for one in (rope, compressed):
        if 2 * len(one.inv_freq) != dims:
            raise config.error("qk_rope_head_dim", f"is {dims}, {2 * len(one.inv_freq)} values are rotated by other keys")
    # Made without the factor that yarn has for attention.
    return _trailing(rope, head_dim), _trailing(replace(compressed, factor=1.0), head_dim)


def _trailing(rope: Rope, head_dim: int) -> Rope:
    return replace(rope, head_dim=head_dim, offset=head_dim - 2 * len(rope.inv_freq), interleaved=True)
