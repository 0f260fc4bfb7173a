"""OLMoE as it lies on disk: the configuration, and GGUF's names for the published tensors."""

from __future__ import annotations

import re

from msgspec import Struct

from colibri.compute.checkpoint import Checkpoint, Tensor
from colibri.compute.config import Config
from colibri.compute.rope import Rope, rope_for

MODEL_TYPE = "olmoe"


class OlmoeConfig(Struct, frozen=True):
    """The numbers of the forward pass. `clip` limits q, k and v to -clip..clip; 0 is no limit."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    norm_topk: bool
    clip: float
    vocab: int
    eps: float
    tied: bool
    context: int
    rope: Rope

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> OlmoeConfig:
        """Read config.json or GGUF metadata. Raises CheckpointError naming the file and the key."""
        config = Config.of(checkpoint)
        return _from_gguf(config, checkpoint) if checkpoint.format == "gguf" else _from_json(config)


def matches(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint is an OLMoE."""
    return checkpoint.model_type == MODEL_TYPE


def _from_json(config: Config) -> OlmoeConfig:
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", heads)
    config.split("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    head_dim = config.split("num_attention_heads", heads, "hidden_size", config.size("hidden_size"))
    experts = config.size("num_experts", 64, most=65536)
    config.only("hidden_act", "silu")
    config.without("attention_bias")
    context = config.size("max_position_embeddings", 4096)
    return OlmoeConfig(
        layers=config.size("num_hidden_layers", most=4096),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        experts=experts,
        top_k=config.size("num_experts_per_tok", 8, most=experts),
        norm_topk=config.flag("norm_topk_prob", False),
        clip=config.number("clip_qkv") if config.get("clip_qkv") is not None else 0.0,
        vocab=config.size("vocab_size"),
        eps=config.number("rms_norm_eps", 1e-5),
        tied=config.flag("tie_word_embeddings", False),
        context=context,
        rope=rope_for(config, head_dim, context),
    )


def _from_gguf(config: Config, checkpoint: Checkpoint) -> OlmoeConfig:
    heads = config.size("attention.head_count")
    kv_heads = config.size("attention.head_count_kv", heads)
    config.split("attention.head_count_kv", kv_heads, "attention.head_count", heads)
    head_dim = config.split("attention.head_count", heads, "embedding_length", config.size("embedding_length"))
    experts = config.size("expert_count", most=65536)
    context = config.size("context_length", 4096)
    return OlmoeConfig(
        layers=config.size("block_count", most=4096),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        experts=experts,
        top_k=config.size("expert_used_count", most=experts),
        norm_topk=config.flag("expert_weights_norm", False),
        clip=config.number("attention.clamp_kqv") if config.get("attention.clamp_kqv") else 0.0,
        vocab=checkpoint.tensor("token_embd.weight").shape[0],
        eps=config.number("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in checkpoint.tensors,
        context=context,
        rope=rope_for(config, head_dim, context),
    )


_GGUF_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_GGUF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "gate_proj": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(?:mlp\.experts\.(\d+)\.)?(.+)\.weight")


def gguf_name(name: str) -> tuple[str, int | None]:
    """What a GGUF file calls the tensor that the published checkpoint calls `name`. All experts of a layer lie in one
    tensor there: with it comes the expert's number."""
    layer = _LAYER.fullmatch(name)
    if layer is None:
        return _GGUF_WHOLE[name], None
    return f"blk.{layer[1]}.{_GGUF_LAYER[layer[3]]}.weight", int(layer[2]) if layer[2] else None


def find_gguf(checkpoint: Checkpoint, name: str) -> Tensor:
    """The tensor of a GGUF file by its published name. Raises CheckpointError if there is none."""
    stored, expert = gguf_name(name)
    tensor = checkpoint.tensor(stored)
    return tensor if expert is None else tensor.part(expert)
