"""Layers that mix positions by the delta rule (https://arxiv.org/abs/2406.06484): a memory of each head, which decays and is
corrected by every position."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .graph import Graph, Scope
from .operations import Value


class Delta(Struct, frozen=True):
    """The sizes of a delta attention: `kernel` taps of its convolutions, and the `bound` of its decay, 0 for none. `log`:
    its rates are stored as logarithms."""

    heads: int
    head_dim: int
    kernel: int
    eps: float
    bound: float = 0.0
    log: bool = True


def channel_delta(g: Graph, x: Value, w: Scope, c: Delta, *, gate: Value, layer: object) -> Value:
    """Delta attention with a decay of its own for each channel (https://arxiv.org/abs/2510.26692),
    without its last projection: -> [rows, heads * head_dim].

    `w` holds {q,k,v}_proj, {q,k,v}_conv1d, f_a_proj, f_b_proj, A_log, dt_bias, b_proj and o_norm. The result is normed per
    head and multiplied by sigmoid(gate).
    """
    width = c.heads * c.head_dim

    def convolved(name: str) -> Value:
        state = g.rows((layer, name), width, window=c.kernel)
        taps = w.w(f"{name}_conv1d.weight", width, c.kernel)
        return g.silu(g.conv(g.linear(x, w[f"{name}_proj.weight"]), taps, state=state))

    q, k, v = (convolved(name) for name in "qkv")
    f = g.linear(g.linear(x, w["f_a_proj.weight"]), w["f_b_proj.weight"])
    a = w.tensor("A_log")
    decay = g.decay(f, g.weight(a.reshaped(a.values)), w["dt_bias"], c.heads, bound=c.bound, log=c.log)
    beta = g.sigmoid(g.linear(x, w["b_proj.weight"]))
    y = g.delta(q, k, v, decay, beta, heads=c.heads, state=g.memory((layer, "delta"), width * c.head_dim))
    return g.rms_norm(y, w["o_norm.weight"], c.eps, group=c.head_dim) * g.sigmoid(gate)


class GatedDelta(Struct, frozen=True):
    """The sizes of a gated delta network: `kernel` taps of its convolution, and the activation of its output `gate`.

    `grouped`: the rows of queries, keys, values and gate lie together by key head, and `joint` those of betas and decays.
    Value heads share key heads in runs, or by turns (`turns`). `log`: decays are stored as logarithms of rates.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    eps: float
    gate: Literal["silu", "sigmoid"] = "silu"
    grouped: bool = False
    joint: bool = False
    turns: bool = False
    log: bool = True

    @property
    def keys(self) -> int:
        """Values of a position's keys, and of its queries."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Values of what a position gives."""
        return self.value_heads * self.value_dim


def gated_delta(g: Graph, x: Value, w: Scope, c: GatedDelta, *, layer: object) -> Value:
    """A gated delta network (https://arxiv.org/abs/2412.06464), whose decay is one number a head, with its last projection.

    `w` holds in_proj_qkv and in_proj_z, or in_proj_qkvz if `c.grouped`; in_proj_b and in_proj_a, or in_proj_ba if `c.joint`;
    conv1d, A_log, dt_bias, norm and out_proj.
    """
    mixed, z = _mixed(g, x, w, c)
    b, a = _rates(g, x, w, c)
    width = 2 * c.keys + c.values
    state = g.rows((layer, "conv"), width, window=c.kernel)
    mixed = g.silu(g.conv(mixed, w.w("conv1d.weight", width, c.kernel), state=state))
    q, k, v = g.slice(mixed, 0, c.keys), g.slice(mixed, c.keys, c.keys), g.slice(mixed, 2 * c.keys, c.values)
    if c.turns:
        share = c.value_heads // c.key_heads
        q, k = g.tile(q, share), g.tile(k, share)
    decay = g.decay(a, w["A_log"], w["dt_bias"], c.value_heads, log=c.log)
    memory = g.memory((layer, "delta"), c.key_dim * c.values)
    y = g.delta(q, k, v, decay, g.sigmoid(b), heads=c.value_heads, state=memory)
    y = g.rms_norm(y, w["norm.weight"], c.eps, group=c.value_dim)
    return g.linear(y * g.activate(z, c.gate), w["out_proj.weight"])


def _mixed(g: Graph, x: Value, w: Scope, c: GatedDelta) -> tuple[Value, Value]:
    """Queries, keys and values side by side, and the gate. Where the projection's rows lie by key head, each has its query,
    its key, and its value heads' values and gates."""
    if not c.grouped:
        qkv = g.linear(x, w.matrix("in_proj_qkv.weight", 2 * c.keys + c.values))
        return qkv, g.linear(x, w.matrix("in_proj_z.weight", c.values))
    values = c.values // c.key_heads
    run = 2 * (c.key_dim + values)
    qkvz = g.linear(x, w.matrix("in_proj_qkvz.weight", c.key_heads * run))
    q, k = (g.slice(qkvz, at, c.key_dim, group=run) for at in (0, c.key_dim))
    v, z = (g.slice(qkvz, at, values, group=run) for at in (2 * c.key_dim, 2 * c.key_dim + values))
    return g.concat(q, k, v), z


def _rates(g: Graph, x: Value, w: Scope, c: GatedDelta) -> tuple[Value, Value]:
    """What beta and decay are made of."""
    if not c.joint:
        b, a = (g.linear(x, w.matrix(f"in_proj_{name}.weight", c.value_heads)) for name in "ba")
        return b, a
    share = c.value_heads // c.key_heads
    ba = g.linear(x, w.matrix("in_proj_ba.weight", 2 * c.value_heads))
    b, a = (g.slice(ba, at, share, group=2 * share) for at in (0, share))
    return b, a
