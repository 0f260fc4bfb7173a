"""Qwen2 and Qwen2.5 as they lie on disk: the configuration, and GGUF's names for the published tensors."""

from __future__ import annotations

import re

from msgspec import Struct

from colibri.compute.checkpoint import Checkpoint, Tensor
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
        """Read config.json or GGUF metadata. Raises CheckpointError naming the file and the key."""
        config = Config.of(checkpoint)
        return _from_gguf(config, checkpoint) if checkpoint.format == "gguf" else _from_json(config)


def _from_json(config: Config) -> QwenConfig:
    layers = config.size("num_hidden_layers", most=4096)
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", heads)
    config.split("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    hidden = config.size("hidden_size")
    own = config.size("head_dim", 0, least=0)
    head_dim = own or config.split("num_attention_heads", heads, "hidden_size", hidden)
    config.only("hidden_act", "silu")
    context = config.size("max_position_embeddings", 32768)
    return QwenConfig(
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
    kinds = config.get("layer_types")
    if kinds is None:
        full = config.size("max_window_layers", 28, least=0)
        return tuple(0 if i < full else window for i in range(layers))
    names = {"full_attention": 0, "sliding_attention": window}
    if not isinstance(kinds, list) or len(kinds) != layers or not all(isinstance(k, str) and k in names for k in kinds):
        raise config.error("layer_types", f"must name full_attention or sliding_attention for each of {layers} layers")
    return tuple(names[kind] for kind in kinds)


def _from_gguf(config: Config, checkpoint: Checkpoint) -> QwenConfig:
    layers = config.size("block_count", most=4096)
    heads = config.size("attention.head_count")
    kv_heads = config.size("attention.head_count_kv", heads)
    config.split("attention.head_count_kv", kv_heads, "attention.head_count", heads)
    hidden = config.size("embedding_length")
    own = config.size("attention.key_length", 0, least=0)
    head_dim = own or config.split("attention.head_count", heads, "embedding_length", hidden)
    context = config.size("context_length", 32768)
    return QwenConfig(
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=checkpoint.tensor("token_embd.weight").shape[0],
        eps=config.number("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in checkpoint.tensors,
        context=context,
        rope=rope_for(config, head_dim, context),
        windows=(0,) * layers,
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
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")


def gguf_name(name: str) -> str:
    """What a GGUF file calls the tensor that the published checkpoint calls `name`."""
    layer = _LAYER.fullmatch(name)
    return _GGUF_WHOLE[name] if layer is None else f"blk.{layer[1]}.{_GGUF_LAYER[layer[2]]}.{layer[3]}"


def find_gguf(checkpoint: Checkpoint, name: str) -> Tensor:
    """The tensor of a GGUF file by its published name. Raises CheckpointError if there is none."""
    return checkpoint.tensor(gguf_name(name))
