"""A model's forward pass as data: what a family's `graph` declares and the runtime, the planner and the tests read.

Every value is a matrix [rows, width] of float32, one row per token of the step. Which rows those are, which slot a
row belongs to and at which position it stands is the step's business, not the plan's. The operations:

    embed(; weight [vocab, width])                      the row of `weight` of each token
    rms_norm(x; weight [w]) eps, group                  w * x / sqrt(mean(x^2) + eps); `group` > 0: the mean is taken over
                                                        every run of `group` values and w has `group` values
    linear(x; weight [out, in], bias [out]?)            x @ weight.T + bias
    add(a, b)  mul(a, b)                                elementwise
    scale(x) factor                                     x * factor
    clamp(x) low, high                                  elementwise limits
    swiglu(gate, up)                                    silu(gate) * up
    rope(x; ) heads, head_dim, offset, inv_freq, factor, interleaved
                                                        rotates 2*len(inv_freq) values of each head from `offset` on;
                                                        half-split pairs (j, j+n) or interleaved pairs (2j, 2j+1);
                                                        cos and sin are multiplied by `factor`
    attention(q, k, v; ) state, heads, kv_heads, scale, window
                                                        appends k and v to the row's slot at the row's position, then causal
                                                        softmax attention over the slot; window 0 is unlimited
    route(scores) top_k, score, normalise, factor       expert choice per row: `score` is "softmax" over all experts; ties go
                                                        to the lower index; value [rows, 2*top_k]: indices, then weights
    experts(x, routes; ) bank                           sum over the chosen e of weight_e * down_e(silu(gate_e x) * up_e x)

Weights, banks and states are referred to by their index in the plan.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct

Attr = int | float | bool | str | tuple[float, ...]


class Weight(Struct, frozen=True):
    """A tensor by the name the checkpoint gives it. `shape` is [out, in] or [n], as the plan needs it."""

    name: str
    shape: tuple[int, ...]


class Bank(Struct, frozen=True):
    """The experts of one layer, the unit that may stream: three weight indices per expert.

    gate and up are [inner, width], down is [width, inner].
    """

    name: str
    width: int
    inner: int
    gate: tuple[int, ...]
    up: tuple[int, ...]
    down: tuple[int, ...]


class State(Struct, frozen=True):
    """Memory that a slot keeps between steps. `kv`: one row of k_width + v_width float32 per position."""

    kind: Literal["kv"]
    k_width: int
    v_width: int


class Node(Struct, frozen=True):
    """One operation. `inputs` are value indices, `out` is the value it makes."""

    op: str
    inputs: tuple[int, ...]
    out: int
    weights: tuple[int, ...] = ()
    bank: int = -1
    state: int = -1
    attrs: dict[str, Attr] = {}


class Plan(Struct, frozen=True):
    """A whole forward pass. `widths[i]` is the width of value i; `logits` is the value [rows, vocab] it ends in."""

    vocab: int
    context: int
    widths: tuple[int, ...]
    nodes: tuple[Node, ...]
    weights: tuple[Weight, ...]
    banks: tuple[Bank, ...]
    states: tuple[State, ...]
    logits: int

    def hash(self) -> str:
        """A stable identity of the computation (hex), whatever file the weights come from."""
        return hashlib.sha256(msgspec.msgpack.encode(self, order="deterministic")).hexdigest()[:32]
