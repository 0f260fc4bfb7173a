"""What several families put together from operations, each named for its mechanism."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from .graph import Graph, Scope
from .operations import SWIGLU, Glu, Value, W
from .rope import Rope

#: The names of a gated block's three matrices, as most checkpoints have them.
GATED = ("gate_proj", "up_proj", "down_proj")


def gated_mlp(g: Graph, x: Value, w: Scope, how: Glu = SWIGLU, names: tuple[str, str, str] = GATED) -> Value:
    """down(glu(gate(x), up(x))), by default SwiGLU (https://arxiv.org/abs/2002.05202)."""
    gate, up, down = (w[f"{name}.weight"] for name in names)
    return g.linear(g.glu(g.linear(x, gate), g.linear(x, up), how), down)


def draft_input(g: Graph, embedding: W, token_norm: W, hidden_norm: W, joint: W, eps: float, *, unit: bool = False) -> Value:
    """What a head of multi-token prediction (https://arxiv.org/abs/2412.19437, section 2.2) begins with: the embedded token
    and the hidden row of the position before it, each with its norm (`unit`: as what is added to 1), brought into one row
    by `joint` [width, 2 * width]."""
    token = g.rms_norm(g.embed(g.tokens, embedding), token_norm, eps, unit=unit)
    hidden = g.rms_norm(g.given(embedding.shape[1]), hidden_norm, eps, unit=unit)
    return g.linear(g.concat(token, hidden), joint)


def draft_streams(g: Graph, token: Value, hidden: Value, token_w: W, hidden_w: W, n: int) -> Value:
    """The same where the model has n residual streams: each of them, and `hidden` [rows, n * width] holds all, gets what
    `token_w` makes of the token beside what `hidden_w` makes of itself."""
    width = hidden.width // n
    streams = (g.linear(g.slice(hidden, i * width, width), hidden_w) for i in range(n))
    return g.concat(*streams) + g.tile(g.linear(token, token_w), n)


class Latent(Struct, frozen=True):
    """The sizes of an attention over latents: `rank` numbers stand for all heads' keys and values of a position; `nope` of a
    head's query values meet them, `rope` meet a rotated key that heads share. `rotation` None leaves that key as it is.
    `compressed`: queries are made from a latent of their own. `split`: the up-projections of keys, transposed, and of values
    are stored apart."""

    heads: int
    nope: int
    rope: int
    v_dim: int
    rank: int
    scale: float
    rotation: Rope | None = None
    compressed: bool = True
    split: bool = False


def latent_attention(
    g: Graph, q: Value, latent: Value, key: Value | None, w: Scope, c: Latent, *, layer: object, select: Value | None = None
) -> Value:
    """Multi-head latent attention (https://arxiv.org/abs/2405.04434, section 2.1) in its absorbed form: keys and values
    are never expanded, their up-projections are applied to queries and results instead.

    q [rows, heads * (nope + rope)], latent [rows, rank], key [rows, rope] (None where rope is 0) -> [rows, heads * v_dim].
    `w` holds kv_b_proj [heads * (nope + v_dim), rank], or k_b_proj [heads * rank, nope] and v_b_proj [heads * v_dim, rank].
    """
    width, stride = c.nope + c.rope, c.nope + c.v_dim
    plain = g.slice(q, 0, c.nope, group=width) if c.rope else q
    if c.split:
        query = g.linear_groups(plain, w.w("k_b_proj.weight", c.heads * c.rank, c.nope), c.heads, rows=c.rank)
    else:
        kv_b = w.matrix("kv_b_proj.weight", c.heads * stride)
        query = g.linear_groups(plain, kv_b, c.heads, rows=c.nope, stride=stride, transposed=True)
    if key is not None:
        turned = g.slice(q, c.nope, c.rope, group=width)
        if c.rotation is not None:
            turned, key = g.rope(turned, c.rotation), g.rope(key, c.rotation)
        query, latent = g.concat(query, turned, groups=c.heads), g.concat(latent, key)
    state = g.kv(layer, 1, c.rank + c.rope, 0)
    mixed = g.attention(query, latent, state=state, scale=c.scale, v_dim=c.rank, select=select)
    if c.split:
        return g.linear_groups(mixed, w.w("v_b_proj.weight", c.heads * c.v_dim, c.rank), c.heads, rows=c.v_dim)
    return g.linear_groups(mixed, kv_b, c.heads, rows=c.v_dim, first=c.nope, stride=stride)


def latent_projections(g: Graph, x: Value, w: Scope, c: Latent, eps: float) -> tuple[Value, Value, Value, Value | None]:
    """What latent attention works on: the latent that queries are made of (x itself without `c.compressed`), the queries,
    each position's latent, and the key that heads share (None where c.rope is 0). `w` holds q_a_proj and q_b_proj, or
    q_proj, then kv_a_proj_with_mqa and the latents' norms."""
    hidden = g.rms_norm(g.linear(x, w["q_a_proj.weight"]), w["q_a_layernorm.weight"], eps) if c.compressed else x
    q = g.linear(hidden, w["q_b_proj.weight" if c.compressed else "q_proj.weight"])
    both = g.linear(x, g.w(f"{w.prefix}.kv_a_proj_with_mqa.weight", rows=c.rank + c.rope))
    latent = g.rms_norm(g.slice(both, 0, c.rank), w["kv_a_layernorm.weight"], eps)
    key = g.slice(both, c.rank, c.rope) if c.rope else None
    return hidden, q, latent, key


class Index(Struct, frozen=True):
    """The sizes of a lightning indexer, which chooses the positions that an attention looks at: the best `budget` of them by
    `heads` heads of `head_dim` values. `rotation` None leaves these as they are."""

    heads: int
    head_dim: int
    budget: int
    rotation: Rope | None = None


def lightning_index(g: Graph, x: Value, hidden: Value, w: Scope, c: Index) -> tuple[Value, Value, Value]:
    """The queries, keys and head weights of a lightning indexer (https://arxiv.org/abs/2512.02556, section 2.1), for
    `select`; `hidden` is the latent of queries. `w` holds wq_b, wk, k_norm and weights_proj."""
    q = g.linear(hidden, w["wq_b.weight"])
    k = g.layer_norm(g.linear(x, w["wk.weight"]), w["k_norm.weight"], w["k_norm.bias"], 1e-6)
    if c.rotation is not None:
        q, k = g.rope(q, c.rotation), g.rope(k, c.rotation)
    return q, k, g.linear(x, g.w(f"{w.prefix}.weights_proj.weight", rows=c.heads)) * c.heads**-0.5


class Routing(Struct, frozen=True):
    """How a layer's experts are chosen: `top_k` of `experts`, from the best `top_groups` of `groups`. `norm`: their weights
    are made to sum to 1; `factor` multiplies them. `shared`: besides, there is a block that every token takes."""

    experts: int
    top_k: int
    norm: bool
    factor: float
    groups: int = 1
    top_groups: int = 1
    shared: bool = True


def balanced_routes(g: Graph, x: Value, w: Scope, c: Routing) -> Value:
    """The choice of a sigmoid router whose bias balances the experts' load and only chooses
    (https://arxiv.org/abs/2408.15664). `w` holds gate and gate.e_score_correction_bias."""
    scores = g.linear(x, g.w(f"{w.prefix}.gate.weight", rows=c.experts))
    bias = w["gate.e_score_correction_bias"]
    return g.route(
        scores, c.top_k, score="sigmoid", norm=c.norm, factor=c.factor, bias=bias, groups=c.groups, top_groups=c.top_groups
    )


def balanced_moe(g: Graph, x: Value, w: Scope, c: Routing, how: Glu = SWIGLU) -> Value:
    """Experts by `balanced_routes`. `w` holds besides experts.{e} and shared_experts."""
    y = g.experts(x, balanced_routes(g, x, w, c), w.experts("experts.{e}", c.experts), how)
    return y + gated_mlp(g, x, w.scope("shared_experts"), how) if c.shared else y


class Streams(Struct, frozen=True):
    """The sizes of hyper-connections: `n` residual streams, mixed by a matrix made doubly stochastic in `iterations`."""

    n: int
    iterations: int
    eps: float
    norm_eps: float


def hyper_connection(
    g: Graph, streams: Value, mixing: W, base: W, scale: W, c: Streams
) -> tuple[Value, Callable[[Value], Value]]:
    """Manifold-constrained hyper-connection (https://arxiv.org/abs/2512.24880): what a block reads of the streams
    [rows, n * width], and how its answer is written back to them."""
    logits = g.linear(g.rms_norm(streams, None, c.norm_eps), mixing)
    coefficients = g.sinkhorn(logits, base, scale, c.n, iterations=c.iterations, eps=c.eps)
    read = g.mix(streams, c.n, g.slice(coefficients, 0, c.n))
    return read, lambda answer: g.spread(streams, answer, coefficients, c.n)


class GatedStreams(Struct, frozen=True):
    """The sizes of residual streams with gates: `n` of them. `unit`: their norm multiplies by 1 + weight."""

    n: int
    eps: float
    unit: bool = False


def gated_streams(g: Graph, streams: Value, w: Scope, c: GatedStreams) -> tuple[Value, Callable[[Value], Value]]:
    """What a block reads of the streams [rows, n * width], their mean after a gate for each value, and how its answer is
    written back: every stream gets a share of it, from 0 to 2 times the whole. `w` holds hc_norm, the gates' matrices
    input_mix_weight_down and input_mix_weight_up, and block_inject_weight."""
    normed = g.rms_norm(streams, w["hc_norm.weight"], c.eps, group=streams.width // c.n, unit=c.unit)
    down = g.silu(g.linear(normed, w["input_mix_weight_down.weight"]) * (1 / c.n))
    gates = g.sigmoid(g.linear(down, w.matrix("input_mix_weight_up.weight", streams.width)))

    def write(answer: Value) -> Value:
        shares = g.sigmoid(g.linear(normed, w.matrix("block_inject_weight.weight", c.n)) * (1 / c.n))
        return streams + g.tile(answer, c.n) * (shares * 2.0)

    return g.mix(normed * gates, c.n), write


def attend_residuals(g: Graph, rows: Sequence[Value], score: Callable[[Value], Value]) -> Value:
    """Attention over earlier states of the residual: the rows' mean by the softmax of their scores [rows, 1]."""
    if len(rows) == 1:
        return rows[0]
    shares = g.softmax(g.concat(*(score(row) for row in rows)))
    return g.mix(g.concat(*rows), len(rows), shares)
