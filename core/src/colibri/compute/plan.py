"""A model's forward pass as data: what a family's `graph` declares and the runtime, the planner and the tests read.

Every value is a matrix [rows, width] of float32, one row per token of the step. Which rows those are, which slot a
row belongs to and at which position it stands is the step's business, not the plan's. The operations, with their inputs,
weights and states (`?`: may be absent, which an index of -1 says) and their attributes:

Values
    embed(; table [vocab, width])                       the row of `table` of each token; 0 for a row with codes
    codes(; table [each*stride, width]) each, stride    the sum over i of the row i*stride + code i of `table`, for rows
                                                        that have `each` codes below `stride`; 0 for others
    given()                                             numbers that each row brings along, all ops the same
    slice(x) group, offset, width                       of every run of `group` values, the `width` from `offset` on
    concat(a, b, …) groups                              run i of `groups` of the result is run i of every input in turn
    tile(x) times                                       the whole row, `times` times
    sum(x) group                                        the sum of every run of `group` values
    mix(x, shares?) n                                   of n equal runs the sum, each times its share; without, the mean

Elementwise
    add(a, b)  mul(a, b)                                b may be narrower by a whole factor: each of its values then
                                                        meets a run of a's
    scale(x) factor, shift                              x * factor + shift
    clamp(x) low, high                                  elementwise limits
    add_weight(x; w [n])  mul_weight(x; w [n])          w, as often as it fits into the row
    activate(x) kind, limit                             silu, sigmoid, softplus, tanh; softcap: limit * tanh(x / limit);
                                                        root: sign(x) * sqrt(max(|x|, limit))
    glu(gate, up) kind, limit, beta, linear_beta        silu: silu(gate) * up; with a limit, gate is at most it and up lies
                                                        in -limit..limit
                                                        situ: beta * tanh(gate / beta) * sigmoid(gate)
                                                        * linear_beta * tanh(up / linear_beta)
    log_scale(x) floor, alpha                           x * (1 + alpha * ln(max((position + 1) / floor, 1)))

Norms
    rms_norm(x; w?) eps, group, unit                    w * x / sqrt(mean(x^2) + eps), the mean over the row, or over every
                                                        run of `group` > 0 values; w has a run's width or the row's;
                                                        `unit`: 1 + w in place of w
    layer_norm(x; w, b) eps                             w * (x - mean) / sqrt(variance + eps) + b
    l2_clip(x) group, limit                             every run times min(1, limit / (its length + 1e-6))
    softmax(x) group                                    over every run

Products
    linear(x; w [out, in], bias [out]?)                 x @ w.T + bias
    linear_groups(x; w) groups, first, stride, transposed
                                                        run i of `groups` of x times the rows of w from first + i * stride
                                                        on: as many rows as a run of the result has values, or, if
                                                        `transposed`, as a run of x has: run @ rows
    rope(x) heads, head_dim, offset, inv_freq, factor, interleaved, inverse
                                                        rotates 2*len(inv_freq) values of each head from `offset` on by
                                                        the row's position, or back; half-split pairs (j, j+n) or
                                                        interleaved pairs (2j, 2j+1); cos and sin are multiplied by `factor`

Sequences. Each appends to its own state at the row's position, then looks at what stands there up to that position.
    attention(q, k, v?, select?, sink?, distance?; sinks [heads]?, profile [d, extent]?) states: kv, pooled?
                heads, kv_heads, scale, window, every
                                                        causal softmax attention. Without v a key's first values are its
                                                        value, as many as a head of the result has. window n: the last n
                                                        rows. select: only those (see `select`). pooled: besides, the rows
                                                        of that state, one for every `every` positions, that are complete,
                                                        or those of them that are selected. sink (per row and head) or
                                                        sinks (per head): one more logit, that has no value. distance
                                                        [rows, heads*d]: a logit gains the head's d values times the
                                                        profile's column of how far back the key stands, up to `extent`.
                                                        What does not go together: sink and sinks, distance and pooled, a
                                                        window and select without pooled
    select(q, k?, weights?) states: keys heads, scale, budget, every, expand
                                                        the best rows of `keys` (one for every `every` positions, complete
                                                        ones only; k is appended first) by
                                                        sum over heads of weight * max(0, q.key * scale): row numbers,
                                                        rising, then -1. `expand`: the positions of those rows, and of the
                                                        rows' incomplete last one. Ties go to the lower row
    pool(x, gate?; ape [every, width]?, norm [d]?) states: raw, pooled
                every, overlap, eps, unit, offset, inv_freq, factor, interleaved
                                                        makes no value. A complete run of `every` positions gives one row
                                                        of `pooled`: the sum of x by softmax(gate + ape) over the run's
                                                        positions for each column, or without gate the mean; then rms_norm
                                                        with norm, then rope at the run's first position. `overlap`: x, gate
                                                        and ape are twice as wide, and the run's second halves are joined
                                                        by the first halves of the run before
    conv(x, taps?; w) states: raw  kernel, dilation, lags
                                                        y_t = sum over lag of w[c, kernel-1-lag] * x_{t - lag*dilation}.
                                                        `lags`: w is [kernel, width], by lag; taps [rows, runs*kernel],
                                                        in w's order, are added to every column's of their run
    delta(q, k, v, decay, beta) states: memory  heads, key_heads
                                                        gated delta rule, a memory S [dk, dv] per head: q, k are brought to
                                                        length 1 (x / sqrt(sum(x^2) + 1e-6)), q is divided by sqrt(dk);
                                                        S *= exp(decay) (per head, or per head and row of S);
                                                        S += k (beta (v - S.T k)).T; y = S.T q. Heads share keys in runs
    decay(x; a [>= heads], bias [width]) heads, bound, log
                                                        -r * softplus(x + bias) with one rate r a head, or with a bound
                                                        bound * sigmoid(r * (x + bias)); r is -a, with `log` exp(a)
    ngram(; table, …) states: tokens  heads, eos, multipliers, sizes, offsets
                                                        hashed n-grams of the last tokens, `heads` rows of the table (its
                                                        parts one below the other) for each n from 2 to as many as there
                                                        are multipliers; `eos` stands for tokens from the last `eos`
                                                        before the own one back
    hash: xor of token_{t-s} * multipliers[s] over s < n; row: hash mod sizes[i] + offsets[i]

Streams: a row holds n streams
    sinkhorn(x; base [(2+n)n], scale [3]) n, iterations, eps
                                                        from mixing logits [pre n | post n | joint n*n]: sigmoid + eps,
                                                        2 * sigmoid, and a doubly stochastic matrix
    spread(x, y, coefficients) n                        stream k becomes post_k * y + sum over j of joint[j, k] * x_j

Experts
    route(scores; bias [experts]?, table [vocab, top_k]?) top_k, score, groups, top_groups, normalise, factor, shared
                                                        expert choice per row. `score`: softmax, sigmoid or root_softplus
                                                        (sqrt of softplus) of the scores. The best by score + bias, of the
                                                        `top_groups` of `groups` runs whose two best are best together; or
                                                        those that the table names for the token. Ties go to the lower
                                                        index. Value: indices, then weights (the scores, made to sum to 1
                                                        if `normalise`, times `factor`), then those of the `shared` last
                                                        scores, which are always chosen and share in the sum
    experts(x, routes) bank, kind, limit, beta, linear_beta
                                                        sum over the chosen e of weight_e * down_e(glu(gate_e x, up_e x))

Weights, banks and states are referred to by their index in the plan.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Literal

import msgspec
from msgspec import Struct

Attr = int | float | bool | str | tuple[float, ...] | tuple[int, ...]


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
    """Memory that a slot keeps between steps, float32.

    `rows`: for each of `planes` a row of so many values per position, or one per `every` positions. With a `window` only
    the last so many need to be kept. `recurrent`: `planes` values in all, which each position changes.
    """

    kind: Literal["rows", "recurrent"]
    planes: tuple[int, ...]
    window: int = 0
    every: int = 1

    @property
    def width(self) -> int:
        """Values of one row, or of all."""
        return sum(self.planes)

    def bytes(self, context: int, max_rows: int) -> int:
        """Memory for a slot of `context` tokens, where a step takes at most `max_rows` rows."""
        rows = 1 if self.kind == "recurrent" else -(-context // self.every)
        return 4 * self.width * (min(rows, 2 * (self.window + max_rows)) if self.window else rows)

    @property
    def sequential(self) -> bool:
        """Whether a slot can in general not be cut to a shorter length, only taken back to where it was remembered."""
        return self.kind == "recurrent" or self.window > 0


class Node(Struct, frozen=True):
    """One operation. `inputs` are value indices, `out` is the value it makes, -1 if it makes none."""

    op: str
    inputs: tuple[int, ...]
    out: int
    weights: tuple[int, ...] = ()
    bank: int = -1
    states: tuple[int, ...] = ()
    attrs: dict[str, Attr] = {}


class Codes(Struct, frozen=True):
    """What a row can have in place of a token: `each` numbers below `limit`."""

    each: int
    limit: int

    def fit(self, data: bytes) -> bool:
        """Whether `data` holds the codes of a row, two bytes each and the lower one first."""
        return len(data) == 2 * self.each and max(struct.unpack(f"<{self.each}H", data)) < self.limit


class Plan(Struct, frozen=True):
    """A whole forward pass. `widths[i]` is the width of value i; `logits` is the value [rows, vocab] it ends in, and
    `hidden` the last one before (-1: not said), from which a draft head goes on."""

    vocab: int
    context: int
    widths: tuple[int, ...]
    nodes: tuple[Node, ...]
    weights: tuple[Weight, ...]
    banks: tuple[Bank, ...]
    states: tuple[State, ...]
    logits: int
    hidden: int = -1

    @property
    def sequential(self) -> bool:
        """Whether slots must be remembered to be taken back (see State)."""
        return any(state.sequential for state in self.states)

    @property
    def codes(self) -> Codes | None:
        """The codes that rows can have; None where only tokens are read."""
        attrs = next((node.attrs for node in self.nodes if node.op == "codes"), None)
        return None if attrs is None else msgspec.convert({"each": attrs["each"], "limit": attrs["stride"]}, Codes)

    @property
    def given(self) -> int:
        """How many numbers each row brings along."""
        return next((self.widths[node.out] for node in self.nodes if node.op == "given"), 0)

    def hash(self) -> str:
        """A stable identity of the computation (hex), whatever file the weights come from."""
        return hashlib.sha256(msgspec.msgpack.encode(self, order="deterministic")).hexdigest()[:32]
