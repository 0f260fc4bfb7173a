"""The forward pass of DeepSeek V4: attention to a window, and to compressed rows of what lies behind it; residual streams
with hyper-connections; experts that follow from the token in the first layers, from a router in the others."""

from __future__ import annotations

from functools import partial

from colibri.compute.blocks import gated_mlp, hyper_connection
from colibri.compute.checkpoint import Checkpoint
from colibri.compute.gguf_names import find_gguf, model_type
from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Rows, Value, W
from colibri.compute.rope import Rope

from . import graph_v32
from .checkpoint import Compression, V4Config
from .gguf import ARCHITECTURES, NAMES

#: The names of a gated block's three matrices.
_GATED = ("w1", "w3", "w2")


def build_graph(checkpoint: Checkpoint, g: Graph) -> None:
    """Declare the forward pass of `checkpoint` on `g`. Raises CheckpointError for a file that does not fit its config."""
    build = _build_v4 if model_type(checkpoint, ARCHITECTURES) == "deepseek_v4" else graph_v32.build_graph
    build(checkpoint, g)


def _build_v4(checkpoint: Checkpoint, g: Graph) -> None:
    c = V4Config.of(checkpoint)
    if checkpoint.format == "gguf":
        g.find = partial(find_gguf, checkpoint, NAMES)
    g.context(c.context)
    embedding = g.w("embed.weight", rows=c.vocab)
    x = g.tile(g.embed(g.tokens, embedding), c.streams.n)
    for i, (compression, hashed) in enumerate(zip(c.layers, c.hashed, strict=True)):
        x = layer(g, x, g.scope(f"layers.{i}"), c, compression, i, hashed=hashed)
    x = collapse(g, g.hidden(x), g.w("hc_head_fn"), g.w("hc_head_scale", rows=1), g.w("hc_head_base"), c)
    x = g.rms_norm(x, g.w("norm.weight"), c.eps)
    g.logits(g.linear(x, embedding if c.tied else g.w("head.weight")))


def layer(g: Graph, x: Value, w: Scope, c: V4Config, compression: Compression | None, i: int, *, hashed: bool) -> Value:
    """The residual streams behind layer i."""
    h, write = hyper_connection(g, x, w["hc_attn_fn"], w["hc_attn_base"], w["hc_attn_scale"], c.streams)
    h = g.rms_norm(h, w["attn_norm.weight"], c.eps)
    x = write(_attention(g, h, w.scope("attn"), c, compression, layer=i))
    h, write = hyper_connection(g, x, w["hc_ffn_fn"], w["hc_ffn_base"], w["hc_ffn_scale"], c.streams)
    h = g.rms_norm(h, w["ffn_norm.weight"], c.eps)
    return write(_experts(g, h, w.scope("ffn"), c, hashed=hashed))


def collapse(g: Graph, x: Value, mixing: W, scale: W, base: W, c: V4Config) -> Value:
    """The streams' sum, each by a share between 0 and 1."""
    shares = g.add_weight(g.mul_weight(g.linear(g.rms_norm(x, None, c.eps), mixing), scale), base)
    return g.mix(x, c.streams.n, g.sigmoid(shares) + c.streams.eps)


def _attention(g: Graph, x: Value, w: Scope, c: V4Config, compression: Compression | None, *, layer: int) -> Value:
    """Attention with one row a position for all heads, which is key and value at once. As values are rotated like keys,
    results are rotated back."""
    rope = c.rope if compression is None else c.compressed_rope
    hidden = g.rms_norm(g.linear(x, w["wq_a.weight"]), w["q_norm.weight"], c.eps)
    q = g.linear(hidden, g.w(f"{w.prefix}.wq_b.weight", rows=c.heads * c.head_dim))
    q = g.rms_norm(q, None, c.eps, group=c.head_dim)
    row = g.rms_norm(g.linear(x, w["wkv.weight"]), w["kv_norm.weight"], c.eps)
    pooled = select = None
    if compression is not None:
        pooled = _compressed(g, x, w.scope("compressor"), c, compression, rope, (layer, "row"))
        if compression.chosen:
            select = _choice(g, x, hidden, w.scope("indexer"), c, compression, layer=layer)
    state = g.kv(layer, 1, c.head_dim, 0, window=c.window)
    sinks = w["attn_sink"]
    y = g.attention(g.rope(q, rope), g.rope(row, rope), state=state, pooled=pooled, select=select, sinks=sinks)
    y = g.rope(y, rope, inverse=True)
    return g.linear(g.linear_groups(y, w["wo_a.weight"], c.groups, rows=c.output_rank), w["wo_b.weight"])


def _compressed(
    g: Graph, x: Value, w: Scope, c: V4Config, compression: Compression, rope: Rope, key: tuple[int, str]
) -> Rows:
    """Rows of rope.head_dim values, one for every so many positions, by learned shares of these."""
    overlap = 2 if compression.chosen else 1
    width = overlap * rope.head_dim
    row, gate = (g.linear(x, g.w(f"{w.prefix}.{name}.weight", rows=width)) for name in ("wkv", "wgate"))
    raw = g.rows((*key, "run"), 2 * width, window=overlap * compression.every)
    pooled = g.rows(key, rope.head_dim, every=compression.every)
    g.pool(row, gate, raw=raw, pooled=pooled, ape=w["ape"], norm=w["norm.weight"], eps=c.eps, rope=rope)
    return pooled


def _choice(g: Graph, x: Value, hidden: Value, w: Scope, c: V4Config, compression: Compression, *, layer: int) -> Value:
    """The compressed rows that a layer attends to."""
    assert c.index.rotation is not None
    keys = _compressed(g, x, w.scope("compressor"), c, compression, c.index.rotation, (layer, "index"))
    q = g.rope(g.linear(hidden, w["wq_b.weight"]), c.index.rotation)
    weights = g.linear(x, g.w(f"{w.prefix}.weights_proj.weight", rows=c.index.heads)) * c.index.heads**-0.5
    return g.select(q, None, weights, state=keys, budget=c.index.budget)


def _experts(g: Graph, x: Value, w: Scope, c: V4Config, *, hashed: bool) -> Value:
    scores = g.linear(x, g.w(f"{w.prefix}.gate.weight", rows=c.experts))
    table = g.w(f"{w.prefix}.gate.tid2eid", rows=c.vocab) if hashed else None
    bias = None if hashed else w["gate.bias"]
    routes = g.route(scores, c.top_k, score="root_softplus", norm=c.norm_topk, factor=c.factor, bias=bias, table=table)
    gate, up, down = (f"{name}.weight" for name in _GATED)
    y = g.experts(x, routes, w.experts("experts.{e}", c.experts, gate=gate, up=up, down=down), c.glu)
    return y + gated_mlp(g, x, w.scope("shared_experts"), c.glu, _GATED)
