"""What GGUF files say in other words than the published ones."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.config import Config
from colibri.compute.gguf_names import limit_of

#: `general.architecture` -> the published `model_type`.
ARCHITECTURES = {"deepseek32": "deepseek_v32", "deepseek4": "deepseek_v4"}

_KEYS = {
    "qk_rope_head_dim": "rope.dimension_count",
    "o_groups": "attention.output_group_count",
    "o_lora_rank": "attention.output_lora_rank",
    "compress_ratios": "attention.compress_ratios",
    "compress_rope_theta": "attention.compress_rope_freq_base",
    "num_hash_layers": "hash_layer_count",
}

_EXPERT = {"w1": "gate", "w2": "down", "w3": "up"}
_COMPRESSOR = {"ape": "ape.weight", "norm": "norm", "wkv": "kv", "wgate": "gate"}

#: V4's tensors, which are published by other names than those that most families share (see find_gguf).
NAMES = {
    "embed.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "head.weight": "output.weight",
    **{f"hc_head_{name}": f"output_hc_{name}.weight" for name in ("fn", "base", "scale")},
    "attn_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    **{f"attn.w{name}": f"attn_{name}" for name in ("q_a", "q_b", "kv")},
    **{f"attn.wo_{name}": f"attn_output_{name}" for name in "ab"},
    "attn.q_norm": "attn_q_a_norm",
    "attn.kv_norm": "attn_kv_a_norm",
    "attn.attn_sink": "attn_sinks.weight",
    **{f"attn.compressor.{name}": f"attn_compressor_{theirs}" for name, theirs in _COMPRESSOR.items()},
    **{f"attn.indexer.compressor.{name}": f"indexer_compressor_{theirs}" for name, theirs in _COMPRESSOR.items()},
    "attn.indexer.wq_b": "indexer.attn_q_b",
    "attn.indexer.weights_proj": "indexer.proj",
    "ffn.gate": "ffn_gate_inp",
    "ffn.gate.bias": "exp_probs_b.bias",
    "ffn.gate.tid2eid": "ffn_gate_tid2eid.weight",
    **{f"ffn.experts.{name}": f"ffn_{theirs}_exps" for name, theirs in _EXPERT.items()},
    **{f"ffn.shared_experts.{name}": f"ffn_{theirs}_shexp" for name, theirs in _EXPERT.items()},
}


def as_published(checkpoint: Checkpoint) -> Config:
    """The configuration by the keys of config.json."""
    config = Config.of(checkpoint, _KEYS)
    if checkpoint.format != "gguf":
        return config
    config = config.given(norm_topk_prob=config.flag("norm_topk_prob", False))
    if config.get("swiglu_limits") is None:
        return config
    return config.given(swiglu_limit=limit_of(config, config.size("num_hidden_layers", most=4096)))
