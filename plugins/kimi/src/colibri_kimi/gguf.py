"""What GGUF files say in other words than the published ones."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.gguf_names import layers_of

#: `general.architecture` -> the published `model_type`.
ARCHITECTURES = {"kimi-linear": "kimi_linear", "kimi-k3": "kimi_k3"}

_KEYS = {
    "moe_router_activation_func": "expert_gating_func",
    "moe_renormalize": "expert_weights_norm",
    "activation_situ_beta": "activation.situ_beta",
    "activation_situ_linear_beta": "activation.situ_linear_beta",
    "attn_res_block_size": "attn_res.block_size",
}

_NAMES = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
    **{
        f"block_sparse_moe.experts.{name}": f"ffn_{theirs}_exps"
        for name, theirs in (("w1", "gate"), ("w2", "down"), ("w3", "up"))
    },
    **{f"block_sparse_moe.shared_experts.{name}_proj": f"ffn_{name}_shexp" for name in ("gate", "up", "down")},
    **{f"block_sparse_moe.routed_expert_{name}_proj": f"ffn_routed_{name}" for name in ("down", "up")},
    "block_sparse_moe.routed_expert_norm": "ffn_routed_norm",
    "self_attention_res_proj": "attn_res_score",
    "mlp_res_proj": "ffn_res_score",
    "model.output_attn_res_proj.weight": "output_res_score.weight",
}


def names_of(delta_layers: tuple[bool, ...]) -> dict[str, str]:
    """What tensors are called besides what all families' are (see find_gguf). The gates of both kinds of attention have one
    published name."""
    gates = {True: "ssm_g", False: "attn_gate"}
    named = {
        f"model.layers.{i}.self_attn.g_proj.weight": f"blk.{i}.{gates[one]}.weight" for i, one in enumerate(delta_layers)
    }
    return {**_NAMES, **named}


def as_published(checkpoint: Checkpoint) -> Config:
    """The configuration by the keys of config.json."""
    config = Config.of(checkpoint, _KEYS)
    if checkpoint.format != "gguf":
        return config
    heads = layers_of(config, "num_key_value_heads", int, config.size("num_hidden_layers", most=4096))
    stored = {name.partition(".")[2].partition(".")[2] for name in checkpoint.tensors}
    linear = config.given(
        num_heads=config.get("num_attention_heads"),
        head_dim=config.get("linear_head_dim"),
        short_conv_kernel_size=config.get("linear_conv_kernel_dim"),
        gate_lower_bound=config.get("linear_lower_bound"),
        use_full_rank_gate="ssm_g.weight" in stored,
    )
    return config.given(
        moe_router_activation_func=config.get("scoring_func"),
        layer_types=["full_attention" if one else "linear_attention" for one in heads],
        linear_attn_config=linear,
        mla_use_output_gate="attn_gate.weight" in stored,
        latent_moe_use_norm="ffn_routed_norm.weight" in stored,
        hidden_act="silu" if config.get("activation_situ_beta") is None else "situ",
    )
