"""Sizes of blocks, by the keys that several families' configurations share. Each raises CheckpointError naming the key."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from .blocks import Index, Latent, Routing, Streams
from .config import Config
from .delta import GatedDelta
from .rope import Rope

#: Most heads, experts, and values of a head that a file may claim.
MOST = 65536

_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
_TOP_K = ("num_experts_per_tok", "num_experts_per_token")
_GROUPS = ("n_group", "num_expert_group")
_SHARED = ("n_shared_experts", "num_shared_experts")
_NORM = ("norm_topk_prob", "moe_renormalize")
_GATES: dict[str, Literal["silu", "sigmoid"]] = {"silu": "silu", "sigmoid": "sigmoid"}


def routing_of(config: Config, *, shared: int = 0) -> Routing:
    """How experts are chosen by a sigmoid router whose bias balances them. `shared`: how many experts every token takes,
    where the file does not say."""
    for key, word in {"scoring_func": "sigmoid", "moe_router_activation_func": "sigmoid", "topk_method": "noaux_tc"}.items():
        config.only(key, word)
    count, grouped = config.spelling(*_EXPERTS), config.spelling(*_GROUPS)
    experts = config.size(count, most=MOST)
    in_groups = config.flag("use_grouped_topk", True)
    groups = config.size(grouped, 1, most=experts) if in_groups else 1
    config.split(grouped, groups, count, experts)
    return Routing(
        experts=experts,
        top_k=config.size(config.spelling(*_TOP_K), most=experts),
        norm=config.flag(config.spelling(*_NORM), True),
        factor=config.number("routed_scaling_factor", 1.0),
        groups=groups,
        top_groups=config.size("topk_group", groups, most=groups) if in_groups else 1,
        shared=config.size(config.spelling(*_SHARED), shared, least=0) > 0,
    )


def dense_layers(config: Config, layers: int, first: int) -> tuple[bool, ...]:
    """Which layers have no experts: by a word for each, or the first so many (`first` where the file does not say)."""
    found = config.choices("mlp_layer_types", layers, {"dense": True, "sparse": False})
    count, every = config.size("first_k_dense_replace", first, least=0), config.size("moe_layer_freq", 1)
    return found or tuple(i < count or i % every > 0 for i in range(layers))


def latent_of(config: Config, rotation: Rope | None, *, split: bool, sharpness: float = 1.0) -> Latent:
    """Attention over latents, whose scale is that of a head's width times `sharpness`. Queries have a latent of their own
    unless the file gives it no rank."""
    nope, turned = config.size("qk_nope_head_dim", most=MOST), config.size("qk_rope_head_dim", least=0, most=MOST)
    compressed = config.get("q_lora_rank") is not None and config.size("q_lora_rank", most=1 << 20) > 0
    return Latent(
        heads=config.size("num_attention_heads", most=MOST),
        nope=nope,
        rope=turned,
        v_dim=config.size("v_head_dim", most=MOST),
        rank=config.size("kv_lora_rank", most=1 << 20),
        scale=float((nope + turned) ** -0.5 * sharpness),
        rotation=rotation,
        compressed=compressed,
        split=split,
    )


def index_of(config: Config, rotation: Rope | None, *, pool: int = 1) -> Index:
    """An indexer, which chooses runs of `pool` positions. `rotation` is that of its heads' first values."""
    head_dim, budget = config.size("index_head_dim", most=MOST), config.size("index_topk", most=MOST)
    if budget % pool:
        raise config.error("index_topk", f"is {budget}, not a multiple of index_kpool, {pool}")
    if rotation is not None:
        if rotation.head_dim > head_dim:
            raise config.error("index_head_dim", f"is {head_dim}, less than qk_rope_head_dim, {rotation.head_dim}")
        rotation = replace(rotation, head_dim=head_dim)
    return Index(config.size("index_n_heads", most=MOST), head_dim, budget // pool, rotation)


def streams_of(config: Config, norm_eps: float) -> Streams:
    """Residual streams with hyper-connections."""
    return Streams(
        n=config.size("hc_mult", most=64),
        iterations=config.size("hc_sinkhorn_iters", most=1000),
        eps=config.number("hc_eps"),
        norm_eps=norm_eps,
    )


def gated_delta_of(config: Config, eps: float, *, grouped: bool, joint: bool, turns: bool, log: bool) -> GatedDelta:
    """A gated delta network. How its weights are stored is not in the configuration."""
    key_heads, value_heads = config.size("linear_num_key_heads"), config.size("linear_num_value_heads")
    config.split("linear_num_key_heads", key_heads, "linear_num_value_heads", value_heads)
    gate = config.word("output_gate_type", "silu")
    if gate not in _GATES:
        raise config.error("output_gate_type", f"is {gate[:32]!r}; {' and '.join(_GATES)} can be computed")
    return GatedDelta(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=config.size("linear_key_head_dim"),
        value_dim=config.size("linear_value_head_dim"),
        kernel=config.size("linear_conv_kernel_dim", 4, most=64),
        eps=eps,
        gate=_GATES[gate],
        grouped=grouped,
        joint=joint,
        turns=turns,
        log=log,
    )
