"""What GGUF files call the keys and tensors that published checkpoints have.

A family is written in the published names; most of what differs follows from these tables, which are those of
https://github.com/ggml-org/llama.cpp (gguf-py/gguf/constants.py and tensor_mapping.py) the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import CheckpointError
from .checkpoint import Checkpoint, Tensor
from .config import Config
from .quantised import find_tensor

#: Keys of config.json -> keys of the metadata, below the architecture's name.
KEYS = {
    "num_hidden_layers": "block_count",
    "num_nextn_predict_layers": "nextn_predict_layers",
    "hidden_size": "embedding_length",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "clip_qkv": "attention.clamp_kqv",
    "v_head_dim": "attention.value_length",
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "sliding_window": "attention.sliding_window",
    "attention_value_scale": "attention.value_scale",
    "index_n_heads": "attention.indexer.head_count",
    "index_head_dim": "attention.indexer.key_length",
    "index_topk": "attention.indexer.top_k",
    "index_kpool": "attention.indexer.kpool",
    "index_kpool_always_select_tail": "attention.indexer.kpool_select_tail",
    "first_k_dense_replace": "leading_dense_block_count",
    "num_experts": "expert_count",
    "n_routed_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "n_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "norm_topk_prob": "expert_weights_norm",
    "routed_scaling_factor": "expert_weights_scale",
    "routed_expert_hidden_size": "expert_latent_length",
    "swiglu_limits": "swiglu_clamp_exp",
    "shared_swiglu_limits": "swiglu_clamp_shexp",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "linear_key_head_dim": "ssm.state_size",
    "linear_head_dim": "kda.head_dim",
    "linear_lower_bound": "kda.gate_lower_bound",
    "hc_mult": "hyper_connection.count",
    "hc_count": "hyper_connection.count",
    "hc_sinkhorn_iters": "hyper_connection.sinkhorn_iterations",
    "hc_eps": "hyper_connection.epsilon",
    "rope_theta": "rope.freq_base",
    "swa_rope_theta": "rope.freq_base_swa",
    "rotary_dim": "rope.dimension_count",
    "qk_head_dim": "attention.key_length_mla",
    "latent_v_head_dim": "attention.value_length_mla",
    "scoring_func": "expert_gating_func",
}

#: Keys of rope_scaling -> keys of the metadata, below "rope.scaling".
SCALING_KEYS = {
    "type": "type",
    "factor": "factor",
    "original_max_position_embeddings": "original_context_length",
    "attention_factor": "attn_factor",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}

#: Tensors outside the layers.
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}

_INDEXER = {"wq_b": "attn_q_b", "wk": "attn_k", "k_norm": "k_norm", "weights_proj": "proj"}
_DELTA = {
    "A_log": "ssm_a",
    "dt_bias": "ssm_dt.bias",
    **{f"{name}_conv1d": f"ssm_conv1d_{name}" for name in "qkv"},
    **{f"{name}_proj": f"ssm_{name}" for name in ("f_a", "f_b", "g_a", "g_b")},
    "b_proj": "ssm_beta",
    "o_norm": "ssm_norm",
}
_LINEAR = {
    "in_proj_qkv": "attn_qkv",
    "in_proj_qkvz": "ssm_in",
    "in_proj_z": "attn_gate",
    "in_proj_a": "ssm_alpha",
    "in_proj_b": "ssm_beta",
    "in_proj_ba": "ssm_ba",
    "A_log": "ssm_a",
    "dt_bias": "ssm_dt.bias",
    "conv1d": "ssm_conv1d",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}

#: What stands behind "model.layers.N." -> behind "blk.N.". A last "weight" or "bias" stays, unless it is written here.
LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{name}_proj": f"attn_{name}" for name in ("q", "k", "v", "qkv", "q_a", "q_b", "k_b", "v_b")},
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.attention_sink_bias": "attn_sinks.weight",
    **{f"self_attn.indexer.{name}": f"indexer.{theirs}" for name, theirs in _INDEXER.items()},
    **{f"self_attn.indexer.index_kpool_compress_{name}": f"indexer_compressor_{name}.weight" for name in ("ape", "gate")},
    **{f"self_attn.{name}": theirs for name, theirs in _DELTA.items()},
    **{f"linear_attn.{name}": theirs for name, theirs in _LINEAR.items()},
    **{f"{block}_{part}": f"{block}_{part}.weight" for block in ("hc_attn", "hc_ffn") for part in ("fn", "base", "scale")},
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    **{f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")},
    **{f"mlp.experts.{name}_proj": f"ffn_{name}_exps" for name in ("gate", "up", "down")},
    **{f"mlp.shared_experts.{name}_proj": f"ffn_{name}_shexp" for name in ("gate", "up", "down")},
    **{f"mlp.shared_expert.{name}_proj": f"ffn_{name}_shexp" for name in ("gate", "up", "down")},
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{name: f"nextn.{name}" for name in ("eh_proj", "enorm", "hnorm")},
    "shared_head.norm": "nextn.shared_head_norm",
}

#: `expert_gating_func` -> config.json's word for how a router scores.
_SCORES = {1: "softmax", 2: "sigmoid", 4: "sqrtsoftplus"}

_NAME = re.compile(r"(?:model\.)?layers\.(?P<layer>\d+)\.(?P<rest>.+)")
_EXPERT = re.compile(r"(?<=\.experts\.)(\d+)\.")


def model_type(checkpoint: Checkpoint, architectures: Mapping[str, str]) -> str:
    """config.json's `model_type`, or what `architectures` says of a GGUF file's `general.architecture`; "" for none."""
    kind = checkpoint.model_type or ""
    return architectures.get(kind, "") if checkpoint.format == "gguf" else kind


def chat_template(checkpoint: Checkpoint) -> str:
    """The chat template that a GGUF file brings along, "" if there is none."""
    found = checkpoint.metadata.get("tokenizer.chat_template")
    return found if isinstance(found, str) else ""


def gguf_config(checkpoint: Checkpoint, own: Mapping[str, str]) -> Config:
    """A GGUF file's metadata by the keys of config.json, those of `own` besides KEYS. Layers that only draft are not
    counted."""
    prefix = f"{checkpoint.model_type}."
    scaling = f"{prefix}rope.scaling."
    steps = checkpoint.metadata.get(f"{scaling}yarn_log_multiplier")
    mscale = 10 * steps if isinstance(steps, float) else None
    made: dict[str, Any] = {
        "tie_word_embeddings": WHOLE["lm_head.weight"] not in checkpoint.tensors,
        "rope_scaling": Config(
            checkpoint.metadata, checkpoint.path, scaling, SCALING_KEYS, {"mscale": mscale, "mscale_all_dim": mscale}
        ),
    }
    embedding = checkpoint.tensors.get(WHOLE["model.embed_tokens.weight"])
    if embedding is not None:
        made["vocab_size"] = embedding.shape[0]
    config = Config(checkpoint.metadata, checkpoint.path, prefix, {**KEYS, **own}, made)
    if config.get("scoring_func") is not None:
        kind = config.size("scoring_func", least=0)
        config = config.given(scoring_func=_SCORES.get(kind, f"expert_gating_func {kind}"))
    if config.get("num_nextn_predict_layers") is not None:
        blocks = config.size("num_hidden_layers", most=1 << 20)
        drafting = config.size("num_nextn_predict_layers", least=0, most=blocks - 1)
        config = config.given(num_hidden_layers=blocks - drafting)
    return config if config.get("qk_head_dim") is None else _latent(config)


def _latent(config: Config) -> Config:
    """Attention over latents is stored for one key head, as wide as a latent: other keys say what its heads are."""
    turned, width = config.size("rotary_dim", 0, least=0, most=65536), config.size("qk_head_dim", most=65536)
    if turned > width:
        raise config.error("rotary_dim", f"is {turned}, more than a head's {width} values")
    return config.given(
        qk_rope_head_dim=turned, qk_nope_head_dim=width - turned, v_head_dim=config.size("latent_v_head_dim", most=65536)
    )


def layers_of(config: Config, key: str, kind: type, count: int) -> list[Any]:
    """The list that a key gives, one item of `kind` for each of `count` layers; layers that only draft, at its end, are
    left out. Raises CheckpointError."""
    given = config.get(key)
    if not isinstance(given, list) or len(given) < count or not all(isinstance(one, kind) for one in given):
        raise config.error(key, f"must be a list with a {kind.__name__} for each of {count} layers")
    return given[:count]


def limit_of(config: Config, count: int) -> float:
    """`swiglu_limit`, which GGUF files give for each of `count` layers, and for shared experts apart. Raises CheckpointError
    unless it is the same for all."""
    keys = "swiglu_limits", "shared_swiglu_limits"
    limits = {limit for key in keys for limit in layers_of(config, key, float, count)}
    if len(limits) != 1:
        raise config.error(keys[0], "and those of shared experts must all be the same")
    return float(limits.pop())


def gguf_name(name: str, own: Mapping[str, str]) -> tuple[str, int | None]:
    """What a GGUF file calls the published tensor `name`, which may be one of its experts' slices: the name, and the
    expert's number. `own` holds what a family has besides: whole names, and what stands behind "model.layers.N.".
    Raises KeyError for a name that no table has."""
    match = _NAME.fullmatch(name)
    if name in own or match is None:
        return own[name] if name in own else WHOLE[name], None
    expert = _EXPERT.search(match["rest"])
    rest = _EXPERT.sub("", match["rest"])
    names = {**LAYER, **own}
    stem, _, last = rest.rpartition(".")
    stored = names[rest] if rest in names else f"{names[stem]}.{last}"
    return f"blk.{match['layer']}.{stored}", int(expert[1]) if expert else None


def find_gguf(checkpoint: Checkpoint, own: Mapping[str, str], name: str) -> Tensor:
    """The tensor of a GGUF file by its published name (see gguf_name), or by its own. Raises CheckpointError if there is
    none."""
    if name in checkpoint.tensors:
        return find_tensor(checkpoint, name)
    try:
        stored, expert = gguf_name(name, own)
    except KeyError:
        raise CheckpointError("has no name in GGUF files", file=checkpoint.path, tensor=name) from None
    if expert is None:
        return find_tensor(checkpoint, stored)
    both = re.sub("ffn_(gate|up)_exps", "ffn_gate_up_exps", stored)
    if both != stored and stored not in checkpoint.tensors and both in checkpoint.tensors:
        pair = find_tensor(checkpoint, both).part(expert)
        half = pair.shape[0] // 2
        return pair.rows(0, half) if "gate_exps" in stored else pair.rows(half, 2 * half)
    return find_tensor(checkpoint, stored).part(expert)


def has_layer(checkpoint: Checkpoint, layer: int, prefix: str = "") -> bool:
    """Whether the file has tensors of a layer, whose published names begin with `prefix`."""
    return checkpoint.has(f"blk.{layer}." if checkpoint.format == "gguf" else f"{prefix}.")
