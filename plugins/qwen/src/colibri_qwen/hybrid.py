"""The forward pass of Qwen3-Next and of Qwen3.5 to Qwen3.8: gated delta networks (https://arxiv.org/abs/2412.06464), and
gated attention in every fourth layer or so, with experts or without."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from colibri.compute.blocks import draft_input, gated_mlp
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.delta import gated_delta
from colibri.compute.gguf_names import find_gguf
from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Value

from .gguf import NAMES, draft_scopes
from .hybrid_checkpoint import HybridConfig


def build_hybrid(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    c = HybridConfig.of(checkpoint)
    read(checkpoint, g)
    g.context(c.context)
    embedding = g.w(f"{c.root}.embed_tokens.weight", rows=c.vocab)
    x = g.embed(g.tokens, embedding)
    for i in range(len(c.linear)):
        x = _layer(g, x, g.scope(f"{c.root}.layers.{i}"), c, i)
    x = g.hidden(g.rms_norm(x, g.w(f"{c.root}.norm.weight"), c.eps, unit=c.unit))
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))


def build_hybrid_draft(checkpoint: Checkpoint, g: Graph) -> bool:
    """Declare the draft head of `checkpoint`, a layer with attention; false where there is none."""
    scopes = draft_scopes(checkpoint)
    if scopes is None:
        return False
    c, w = HybridConfig.draft(checkpoint), g.scope(scopes[0])
    read(checkpoint, g)
    g.context(c.context)
    embedding = g.w(f"{c.root}.embed_tokens.weight", rows=c.vocab)
    token_norm, hidden_norm = w["pre_fc_norm_embedding.weight"], w["pre_fc_norm_hidden.weight"]
    x = draft_input(g, embedding, token_norm, hidden_norm, w["fc.weight"], c.eps, unit=c.unit)
    x = g.hidden(g.rms_norm(_layer(g, x, g.scope(scopes[1]), c, 0), w["norm.weight"], c.eps, unit=c.unit))
    g.logits(g.linear(x, embedding if c.tied else g.w("lm_head.weight")))
    return True


def read(checkpoint: Checkpoint, g: Graph, names: Mapping[str, str] = NAMES) -> None:
    """Let `g` find the weights of a GGUF file, where they are called by `names` too."""
    if checkpoint.format == "gguf":
        g.find = partial(find_gguf, checkpoint, {**NAMES, **names})


def _layer(g: Graph, x: Value, w: Scope, c: HybridConfig, i: int) -> Value:
    """The residual behind layer i."""
    h = g.rms_norm(x, w["input_layernorm.weight"], c.eps, unit=c.unit)
    x = x + (gated_delta(g, h, w.scope("linear_attn"), c.delta, layer=i) if c.linear[i] else gated_attention(g, h, w, c, i))
    h = g.rms_norm(x, w["post_attention_layernorm.weight"], c.eps, unit=c.unit)
    return x + feed_forward(g, h, w, c, i)


def gated_attention(g: Graph, x: Value, layer: Scope, c: HybridConfig, i: int, select: Value | None = None) -> Value:
    """Layer i's attention over x, its result times sigmoid of a gate, which each head's query brings along."""
    w = layer.scope("self_attn")
    both = g.linear(x, w.matrix("q_proj.weight", 2 * c.heads * c.head_dim))
    q, gate = (g.slice(both, at, c.head_dim, group=2 * c.head_dim) for at in (0, c.head_dim))
    k, v = (g.linear(x, w.matrix(f"{name}_proj.weight", c.kv_heads * c.head_dim)) for name in "kv")
    q = g.rope(g.rms_norm(q, w["q_norm.weight"], c.eps, group=c.head_dim, unit=c.unit), c.rope)
    k = g.rope(g.rms_norm(k, w["k_norm.weight"], c.eps, group=c.head_dim, unit=c.unit), c.rope)
    y = g.attention(q, k, v, state=g.kv(i, c.kv_heads, c.head_dim), select=select)
    return g.linear(y * g.sigmoid(gate), w["o_proj.weight"])


def feed_forward(g: Graph, x: Value, layer: Scope, c: HybridConfig, i: int) -> Value:
    """Layer i's gated block, or its routed experts and a gated one for all."""
    w = layer.scope("mlp")
    if not c.sparse[i]:
        return gated_mlp(g, x, w)
    if c.fused:
        experts = w.fused_experts("experts.gate_up_proj", "experts.down_proj", c.experts)
    else:
        experts = w.experts("experts.{e}", c.experts)
    routed = g.moe(x, router=w["gate.weight"], experts=experts, top_k=c.top_k, norm=c.norm_topk)
    share = g.sigmoid(g.linear(x, w.matrix("shared_expert_gate.weight", 1)))
    return routed + gated_mlp(g, x, w.scope("shared_expert")) * share
