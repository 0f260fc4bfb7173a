"""The forward pass of Inkling-2: layers read back earlier states of the residual, and some may run several times, told by
messages what the pass before came to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from colibri.compute.blocks import attend_residuals
from colibri.compute.checkpoint import Tensor
from colibri.compute.graph import Graph, Scope
from colibri.compute.operations import Value

from .blocks import convolve, embed, unembed
from .checkpoint import Heads, Inkling2Config

#: Under the root when states of the residual are normed to be read back, whatever the configuration says.
_EPS = 1e-6


class Residual(Struct, frozen=True):
    """The sum so far, and the earlier states of it that can be read back, normed."""

    sum: Value
    earlier: tuple[Value, ...] = ()


class Messages(Struct, frozen=True):
    """What a layer hears of the pass before: for the inputs of q, k, v and of the experts."""

    q: Value
    k: Value
    v: Value
    mlp: Value


def declare(g: Graph, c: Inkling2Config) -> None:
    """Declare the forward pass on `g`. Raises CheckpointError for a file that does not fit its configuration."""
    x = Residual(embed(g, c))
    for i in range(c.loop.start):
        x = _layer(g, x, c, i)
    x = _looped(g, x, c)
    for i in range(c.loop.end, len(c.layers)):
        x = _layer(g, x, c, i)
    h = _attend(g, _states(g, x), g.find("model.llm.attn_res.output_query"))
    h = g.rms_norm(h, g.w("model.llm.norm.weight"), c.eps)
    g.logits(g.activate(unembed(g, h, c), "softcap", c.cap))


def _looped(g: Graph, start: Residual, c: Inkling2Config) -> Residual:
    """Every pass sets out from the same residual; all but the first hear of the states that the one before came to."""
    x = start
    for turn in range(c.loop.passes):
        heard = _states(g, x)[len(start.earlier) + 1 :] if turn else ()
        x = start
        for i in range(c.loop.start, c.loop.end):
            x = _layer(g, x, c, i, turn, _messages(g, heard, c, i) if turn else None)
    return x


def _layer(g: Graph, x: Residual, c: Inkling2Config, i: int, turn: int = 0, heard: Messages | None = None) -> Residual:
    w, heads, key = g.scope(f"model.llm.layers.{i}"), c.layers[i], (turn, i)
    states = _states(g, x)
    inputs = _read(g, states, heads, i) if i else [x.sum] * (1 if heads.window else 3)
    if heard is not None:
        told = zip(inputs * (3 // len(inputs)), (heard.q, heard.k, heard.v), ("attn", "k", "v"), strict=True)
        inputs = [_tell(g, h, message, w.scope(f"controllers.{name}"), c.eps) for h, message, name in told]
    norms = ("attn_norm",) * len(inputs) if heads.window else ("q_input_norm", "k_input_norm", "v_input_norm")
    normed = [g.rms_norm(h, w[f"{name}.weight"], c.eps) for h, name in zip(inputs, norms, strict=True)]
    q, k, v = normed * (3 // len(normed))
    y = _attention(g, q, k, v, w.scope("attn"), c, heads, key)
    y = _shrunk(convolve(g, y, w, "attn_sconv", c, key), c.kernel + 1)
    x = Residual(x.sum + y, x.earlier) if i % c.block else Residual(y, states)
    h = _attend(g, _states(g, x), g.find(f"model.llm.attn_res.mlp_queries.{i}"))
    if heard is not None:
        h = _tell(g, h, heard.mlp, w.scope("controllers.mlp"), c.eps)
    y = _experts(g, g.rms_norm(h, w["mlp_norm.weight"], c.eps), w.scope("mlp"), c)
    return Residual(x.sum + _shrunk(convolve(g, y, w, "mlp_sconv", c, key), c.kernel + 1), x.earlier)


def _read(g: Graph, states: Sequence[Value], heads: Heads, i: int) -> list[Value]:
    """What a layer's q, k and v are made of: one value each, or one for all in layers with a window."""
    queries = g.find(f"model.llm.attn_res.attn_queries.{i - 1}")
    if heads.window:
        return [_attend(g, states, queries)]
    return [_attend(g, states, query) for query in _queries(queries, 3)]


def _attention(
    g: Graph, x_q: Value, x_k: Value, x_v: Value, w: Scope, c: Inkling2Config, heads: Heads, key: object
) -> Value:
    def clipped(name: str, size: int, scale: str, limit: float) -> Value:
        y = g.linear(x_q, w[f"{name}.weight"])
        y = g.l2_clip(g.mul_weight(y, w.w(f"{scale}.scale", heads.heads * size)), size, limit)
        return y if heads.window else g.log_scale(y, c.floor, c.alpha)

    def convolved(x: Value, name: str, conv: str) -> Value:
        y = g.linear(x, w[f"{name}.weight"])
        if heads.window:
            return _shrunk(convolve(g, y, w, conv, c, key), c.kernel + 1)
        # The taps are the sum of a column's own and of those that the token has for a head.
        taps = g.linear(x, g.w(f"{w.prefix}.{conv}.weight_proj", rows=heads.kv_heads * c.kernel))
        state = g.rows((key, conv), y.width, window=c.kernel)
        y = y + g.conv(y, w[f"{conv}.static_w"], state=state, lags=True, taps=taps)
        return _shrunk(y, 2 * c.kernel + 1)

    q = clipped("wq_du", heads.head_dim, "q_l2_clip", c.clip)
    r = clipped("wr_du", c.d_rel, "rel_l2_clip", c.rel_clip)
    k = g.l2_clip(convolved(x_k, "wk_dv", "k_sconv"), heads.head_dim, c.clip)
    v = g.rms_norm(convolved(x_v, "wv_dv", "v_sconv"), None, c.eps, group=heads.head_dim)
    state = g.kv(key, heads.kv_heads, heads.head_dim, window=heads.window)
    profile = w.w("rel_logits_proj.proj", c.d_rel, heads.extent)
    sink = g.linear(x_q, w["attn_sink_proj.weight"])
    y = g.attention(q, k, v, state=state, distance=r, profile=profile, sink=sink)
    return g.linear(y * g.sigmoid(g.linear(x_q, w["gate_attn.weight"])), w["wo_ud.weight"])


def _experts(g: Graph, x: Value, w: Scope, c: Inkling2Config) -> Value:
    scores = g.linear(x, w["gate.weight"])
    routes = g.route(scores, c.top_k, score="sigmoid", norm=True, factor=c.route_scale, bias=w["gate.bias"])
    experts = w.fused_experts("experts.w13_weight", "experts.w2_weight", c.experts, interleaved=True)
    return g.experts(x, routes, experts, c.glu)


def _shrunk(x: Value, terms: int) -> Value:
    """A sum of so many terms, as long as one of them would be."""
    return x * (1 / math.sqrt(terms))


def _states(g: Graph, x: Residual) -> tuple[Value, ...]:
    """All that can be read back, the sum so far included."""
    return (*x.earlier, g.rms_norm(x.sum, None, _EPS))


def _attend(g: Graph, states: Sequence[Value], query: Tensor) -> Value:
    """The mean of the states by how well each meets a learned query [width]."""
    width = states[0].width
    weight = g.weight(query.reshaped(1, width))
    return attend_residuals(g, states, lambda state: g.linear(state, weight) * (1 / math.sqrt(width)))


def _queries(table: Tensor, count: int) -> list[Tensor]:
    """The queries [width] of a table of so many."""
    if len(table.shape) != 2 or table.shape[0] != count:
        raise table.error(f"has shape {list(table.shape)}, [{count}, width] is needed")
    return [table.part(n) for n in range(count)]


def _messages(g: Graph, states: Sequence[Value], c: Inkling2Config, i: int) -> Messages:
    """What layer i hears of the states of the pass before."""
    count, first = 2 * (c.loop.end - c.loop.start), 2 * (i - c.loop.start)
    stem = "model.llm.middle_cycle_cross_pass"
    tables = (_queries(g.find(f"{stem}_{name}"), count)[first : first + 2] for name in ("queries", "kv_queries"))
    q, mlp, k, v = (_attend(g, states, query) for table in tables for query in table)
    return Messages(q, k, v, mlp)


def _tell(g: Graph, x: Value, message: Value, w: Scope, eps: float) -> Value:
    """x with a part of it forgotten and a part of the message gained."""
    both = g.concat(g.rms_norm(x, None, eps), g.rms_norm(message, None, eps))
    both = g.linear(both, w["down_weight"])
    forget, gain = (g.activate(g.linear(both, w[f"{name}_weight"]), "tanh") for name in ("forget", "gain"))
    return x * (forget * -1.0 + 1.0) + message * gain
