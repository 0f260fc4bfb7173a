"""The forward pass of Inkling: no rotation of positions but a learned bias by distance, windows in most layers, and short
convolutions of keys, values and all that is added to the residual."""

from __future__ import annotations

from colibri.compute.checkpoint import Checkpoint
from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Value

from . import graph2
from .blocks import convolve, embed, unembed
from .checkpoint import Heads, Hearing, Inkling2Config, InklingConfig, is_second
from .variants import AUDIO_TABLE


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    if is_second(checkpoint):
        graph2.declare(g, Inkling2Config.of(checkpoint))
    else:
        _declare(g, InklingConfig.of(checkpoint))


def _declare(g: Graph, c: InklingConfig) -> None:
    x = embed(g, c)
    if c.hearing is not None:
        x = x + _heard(g, c.hearing)
    for i, heads in enumerate(c.layers):
        x = layer(g, x, g.scope(f"model.llm.layers.{i}"), c, heads, i)
    x = g.hidden(g.rms_norm(x, g.w("model.llm.norm.weight"), c.eps))
    g.logits(unembed(g, x * (1 / c.mup), c))


def layer(g: Graph, x: Value, w: Scope, c: InklingConfig, heads: Heads, i: int) -> Value:
    """The residual behind layer i."""
    h = g.rms_norm(x, w["attn_norm.weight"], c.eps)
    x = x + convolve(g, _attention(g, h, w.scope("attn"), c, heads, i), w, "attn_sconv", c, i)
    h, m = g.rms_norm(x, w["mlp_norm.weight"], c.eps), w.scope("mlp")
    return x + convolve(g, _dense(g, h, m) if c.dense[i] else _experts(g, h, m, c), w, "mlp_sconv", c, i)


def _heard(g: Graph, hearing: Hearing) -> Value:
    """What stands in place of a token for a moment of sound."""
    table = g.w(AUDIO_TABLE, rows=hearing.bands * hearing.levels)
    return g.rms_norm(g.codes(table, hearing.bands), g.w("model.audio.final_norm.weight"), 1e-6)


def _attention(g: Graph, x: Value, w: Scope, c: InklingConfig, heads: Heads, i: int) -> Value:
    q = g.linear(x, g.w(f"{w.prefix}.wq_du.weight", rows=heads.heads * heads.head_dim))
    k, v, r = (g.linear(x, w[f"{name}.weight"]) for name in ("wk_dv", "wv_dv", "wr_du"))
    k, v = convolve(g, k, w, "k_sconv", c, i), convolve(g, v, w, "v_sconv", c, i)
    q = g.rms_norm(q, w["q_norm.weight"], c.eps, group=heads.head_dim)
    k = g.rms_norm(k, w["k_norm.weight"], c.eps, group=heads.head_dim)
    if c.floor and not heads.window:
        q, r = g.log_scale(q, c.floor, c.alpha), g.log_scale(r, c.floor, c.alpha)
    state = g.kv(i, heads.kv_heads, heads.head_dim, window=heads.window)
    profile = w.w("rel_logits_proj.proj", c.d_rel, heads.extent)
    # Normed q and k are as long as heads are wide allows, hence the width itself and not its root.
    y = g.attention(q, k, v, state=state, scale=1 / heads.head_dim, distance=r, profile=profile)
    return g.linear(y, w["wo_ud.weight"])


def _dense(g: Graph, x: Value, w: Scope) -> Value:
    both = w.tensor("w13_dn.weight")
    gate, up = (g.linear(x, g.weight(both.rows(first, both.shape[0], 2))) for first in (0, 1))
    return g.mul_weight(g.linear(g.swiglu(gate, up), w["w2_md.weight"]), w.matrix("global_scale", 1))


def _experts(g: Graph, x: Value, w: Scope, c: InklingConfig) -> Value:
    """Experts of which some are chosen for every token, and weighted together with the others."""
    scores = g.linear(x, w["gate.weight"])
    routes = g.route(scores, c.top_k, score="sigmoid", norm=True, factor=c.route_scale, bias=w["gate.bias"], shared=c.shared)
    y = g.experts(x, routes, w.fused_experts("experts.w13_weight", "experts.w2_weight", c.experts, interleaved=True))
    names = "shared_experts.shared_w13_weight", "shared_experts.shared_w2_weight"
    shared = w.fused_experts(*names, c.shared, interleaved=True)
    for j, (gate, up, down) in enumerate(zip(shared.gate, shared.up, shared.down, strict=True)):
        share = g.slice(routes, 2 * c.top_k + j, 1)
        y = y + g.linear(g.swiglu(g.linear(x, gate), g.linear(x, up)) * share, down)
    return g.mul_weight(y, w.matrix("gate.global_scale", 1))
