"""The forward pass: a dense decoder. Each layer adds attention and then a gated block to the residual, both to its norm."""

from __future__ import annotations

from colibri.compute.blocks import gated_mlp
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.graph import Graph

from .checkpoint import HeronConfig


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = HeronConfig.of(checkpoint)
    g.context(c.context)
    embedding = g.w("model.embed_tokens.weight", rows=c.vocab)
    x = g.embed(g.tokens, embedding)
    for i in range(c.layers):
        w = g.scope(f"model.layers.{i}")
        h = g.rms_norm(x, w["input_layernorm.weight"], c.eps)
        q = g.linear(h, w.matrix("self_attn.q_proj.weight", c.heads * c.head_dim))
        k, v = (g.linear(h, w[f"self_attn.{n}_proj.weight"]) for n in "kv")
        state = g.kv(i, c.kv_heads, c.head_dim)  # what a slot keeps of each position
        a = g.attention(g.rope(q, c.rope), g.rope(k, c.rope), v, state=state)
        x = x + g.linear(a, w["self_attn.o_proj.weight"])
        h = g.rms_norm(x, w["post_attention_layernorm.weight"], c.eps)
        x = x + gated_mlp(g, h, w.scope("mlp"))
    x = g.rms_norm(x, g.w("model.norm.weight"), c.eps)
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight", rows=c.vocab)))
