"""The forward pass of dense Qwen2 and Qwen2.5 models (https://arxiv.org/abs/2407.10671, section 2.2)."""

from __future__ import annotations

from colibri.compute.blocks import gated_mlp
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.graph import Graph

from .checkpoint import QwenConfig


def build_dense(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = QwenConfig.of(checkpoint)
    g.context(c.context)
    embedding = g.w("model.embed_tokens.weight", rows=c.vocab)
    x = g.embed(g.tokens, embedding)
    for i in range(c.layers):
        w = g.scope(f"model.layers.{i}")
        h = g.rms_norm(x, w["input_layernorm.weight"], c.eps)
        q, k, v = (g.linear(h, w[f"self_attn.{n}_proj.weight"], w[f"self_attn.{n}_proj.bias"]) for n in "qkv")
        state = g.kv(i, c.kv_heads, c.head_dim, window=c.windows[i])
        a = g.attention(g.rope(q, c.rope), g.rope(k, c.rope), v, state=state)
        x = x + g.linear(a, w["self_attn.o_proj.weight"])
        h = g.rms_norm(x, w["post_attention_layernorm.weight"], c.eps)
        x = x + gated_mlp(g, h, w.scope("mlp"))
    x = g.rms_norm(x, g.w("model.norm.weight"), c.eps)
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))
