"""The configuration of a Kimi model. Kimi K3 is told from Kimi Linear by what its configuration has besides."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from colibri.compute.blocks import Latent, Routing
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.delta import Delta
from colibri.compute.operations import SWIGLU, Glu
from colibri.compute.sizes import dense_layers, latent_of, routing_of

from .gguf import as_published

#: What the words for a layer's attention say of it: whether it is delta attention.
_ATTENTION = {"linear_attention": True, "mamba": True, "full_attention": False, "attention": False}


class KimiConfig(Struct, frozen=True):
    """The numbers of the forward pass, whose tensors' names begin with `prefix`.

    `delta_layers` and `expert_layers` say of each layer whether its attention is delta attention and whether it has experts.
    `full_gate`: the gate of delta attention is one matrix. `gated`: latent attention has a gate too. `latent`: experts work
    on a latent, which is normed behind them with `latent_norm`. `residual_block`: layers read, by attention, the states that
    the residual had before every so many of them besides its last; 0: only that. `joint_scores`: the weights of a state's
    norm are part of those that score it.
    """

    prefix: str
    vocab: int
    eps: float
    tied: bool
    context: int
    delta_layers: tuple[bool, ...]
    expert_layers: tuple[bool, ...]
    delta: Delta
    full_gate: bool
    attention: Latent
    gated: bool
    routing: Routing
    latent: bool
    latent_norm: bool
    glu: Glu
    residual_block: int
    joint_scores: bool

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> KimiConfig:
        """Read the configuration. Raises CheckpointError naming the file and the key."""
        whole, gguf = as_published(checkpoint), checkpoint.format == "gguf"
        config = whole.text()
        if not config.flag("mla_use_nope", True):
            raise config.error("mla_use_nope", "is false, this family rotates no keys")
        config.without("attention_bias")
        layers = config.size("num_hidden_layers", most=4096)
        eps = config.number("rms_norm_eps")
        linear = config.part("linear_attn_config") or Config({}, config.file, f"{config.prefix}linear_attn_config.")
        latent = config.get("routed_expert_hidden_size") is not None
        return cls(
            prefix="" if config is whole else "language_model.",
            vocab=config.size("vocab_size"),
            eps=eps,
            tied=config.flag("tie_word_embeddings", False),
            context=config.size(config.spelling("model_max_length", "max_position_embeddings"), 1 << 20),
            delta_layers=_delta_layers(config, linear, layers),
            expert_layers=tuple(not dense for dense in dense_layers(config, layers, 1)),
            delta=replace(_delta(config, linear, eps), log=not gguf),
            full_gate=linear.flag("use_full_rank_gate", False),
            attention=latent_of(config, None, split=gguf),
            gated=config.flag("mla_use_output_gate", False),
            routing=routing_of(config, shared=1),
            latent=latent,
            latent_norm=latent and config.flag("latent_moe_use_norm", False),
            glu=_glu(config),
            residual_block=config.size("attn_res_block_size", 0, least=0),
            joint_scores=gguf,
        )


def _delta_layers(config: Config, linear: Config, layers: int) -> tuple[bool, ...]:
    """Published files list the layers of each kind, counted from 1; transformers' own name the kind of each layer."""
    words = config.choices("layer_types", layers, _ATTENTION)
    if linear.get("kda_layers") is None and words is not None:
        return words
    found: dict[int, bool] = {}
    for key, kind in (("kda_layers", True), ("full_attn_layers", False)):
        numbers = linear.get(key)
        if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
            raise linear.error(key, "must be a list of layers' numbers")
        for number in numbers:
            if not 1 <= number <= layers or number in found:
                raise linear.error(key, f"has layer {number}, which is none of {layers} or is named twice")
            found[number] = kind
    missing = next((number for number in range(1, layers + 1) if number not in found), 0)
    if missing:
        raise linear.error("kda_layers", f"does not have layer {missing} of {layers}, and full_attn_layers neither")
    return tuple(found[number] for number in range(1, layers + 1))


def _delta(config: Config, linear: Config, eps: float) -> Delta:
    """Sizes of delta attention: published files have them in an object, transformers' own among the others."""
    if linear.get("head_dim") is not None:
        source, heads, head_dim, kernel = linear, "num_heads", "head_dim", "short_conv_kernel_size"
    else:
        source, heads, head_dim, kernel = config, "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"
    bounded = linear.get("gate_lower_bound") is not None
    return Delta(
        heads=source.size(heads, most=65536),
        head_dim=source.size(head_dim, most=65536),
        kernel=source.size(kernel, 4, most=256),
        eps=eps,
        bound=linear.number("gate_lower_bound", above=-1e4, below=0.0) if bounded else 0.0,
    )


def _glu(config: Config) -> Glu:
    kind = config.word("hidden_act", "silu")
    if kind == "silu":
        return SWIGLU
    if kind != "situ":
        raise config.error("hidden_act", f"is {kind[:32]!r}, this family computes silu and situ")
    beta, linear_beta = config.number("activation_situ_beta"), config.number("activation_situ_linear_beta")
    return Glu("situ", beta=beta, linear_beta=linear_beta)
