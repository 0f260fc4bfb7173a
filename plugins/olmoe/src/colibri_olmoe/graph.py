"""The forward pass of OLMoE (https://arxiv.org/abs/2409.02060): a softmax router, no shared expert, normed q and k."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.graph import Graph
from colibri.compute.operations import Value

from .checkpoint import OlmoeConfig


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = OlmoeConfig.of(checkpoint)
    g.context(c.context)

    def clip(x: Value) -> Value:
        return g.clamp(x, -c.clip, c.clip) if c.clip else x

    embedding = g.w("model.embed_tokens.weight", rows=c.vocab)
    x = g.embed(g.tokens, embedding)
    for i in range(c.layers):
        w = g.scope(f"model.layers.{i}")
        h = g.rms_norm(x, w["input_layernorm.weight"], c.eps)
        # The norms of q and k run over whole rows, all heads together, and the limits hold after them.
        q, k, v = (g.linear(h, w[f"self_attn.{n}_proj.weight"]) for n in "qkv")
        q = g.rms_norm(q, w["self_attn.q_norm.weight"], c.eps)
        k = g.rms_norm(k, w["self_attn.k_norm.weight"], c.eps)
        state = g.kv(i, c.kv_heads, c.head_dim)
        a = g.attention(g.rope(clip(q), c.rope), g.rope(clip(k), c.rope), clip(v), state=state)
        x = x + g.linear(a, w["self_attn.o_proj.weight"])
        h = g.rms_norm(x, w["post_attention_layernorm.weight"], c.eps)
        experts = w.experts("mlp.experts.{e}", c.experts)
        x = x + g.moe(h, router=w["mlp.gate.weight"], experts=experts, top_k=c.top_k, norm=c.norm_topk)
    x = g.rms_norm(x, g.w("model.norm.weight"), c.eps)
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))
