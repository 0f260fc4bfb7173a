"""The operations a forward pass is written in; what each computes is said in plan.py. Here their shapes are checked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from ..errors import CheckpointError, PluginError
from .plan import Attr, Bank
from .rope import Rope

Kind = Literal["silu", "sigmoid", "softplus", "tanh", "softcap", "root"]


class W(Struct, frozen=True):
    """A weight of the graph: its index in the plan, its name there and its shape."""

    index: int
    name: str
    shape: tuple[int, ...]


class Experts(Struct, frozen=True):
    """The weights of a layer's experts, one of each kind per expert."""

    name: str
    gate: tuple[W, ...]
    up: tuple[W, ...]
    down: tuple[W, ...]


class Glu(Struct, frozen=True):
    """How gate and up are joined: `silu`, with a `limit` for both or 0, or `situ`, with the caps of gate and up."""

    kind: Literal["silu", "situ"] = "silu"
    limit: float = 0.0
    beta: float = 0.0
    linear_beta: float = 0.0

    def attrs(self) -> dict[str, Attr]:
        """As attributes of a node."""
        if self.kind == "silu":
            return {"kind": "silu", "limit": float(self.limit)}
        return {"kind": "situ", "beta": float(self.beta), "linear_beta": float(self.linear_beta)}


SWIGLU = Glu()


class KV(Struct, frozen=True):
    """A state that keeps keys and values. v_dim 0: a key's first values are its value."""

    index: int
    heads: int
    k_dim: int
    v_dim: int
    window: int


class Rows(Struct, frozen=True):
    """A state that keeps a row for every `every` positions."""

    index: int
    width: int
    window: int
    every: int


class Memory(Struct, frozen=True):
    """A state of `size` numbers that every position changes."""

    index: int
    size: int


class Value:
    """A matrix [rows, width] the graph computes; `a + b` and `a * b` are elementwise, `a * 0.5` scales, `a + 0.5` shifts."""

    def __init__(self, graph: Operations, index: int, width: int, tensor: str) -> None:
        self.graph, self.index, self.width = graph, index, width
        self.tensor = tensor  # the weight it was made with, for errors

    def __add__(self, other: Value | float) -> Value:
        return self.graph.add(self, other) if isinstance(other, Value) else self.graph.scale(self, 1.0, shift=other)

    def __mul__(self, other: Value | float) -> Value:
        return self.graph.mul(self, other) if isinstance(other, Value) else self.graph.scale(self, other)


class Tokens:
    """The token ids of the step."""


class Operations:
    """What a graph can compute."""

    tokens = Tokens()
    _embedded: W | None = None

    # Values

    def embed(self, tokens: Tokens, weight: W) -> Value:
        """[rows] token ids, [vocab, width] -> [rows, width]: the row of `weight` of each token."""
        _, width = self._matrix("embed", weight)
        self._embedded = weight
        return self._add("embed", (), width, weights=(weight,))

    def codes(self, weight: W, each: int) -> Value:
        """[each * stride, width] -> [rows, width]: of rows that have `each` codes below `stride` in place of a token, the
        sum of one row of `weight` from each run of `stride`; 0 for other rows, as `embed` gives 0 for these."""
        height, width = self._matrix("codes", weight)
        if each < 1 or height % each:
            raise self._misfit("codes", weight.name, f"has {height} rows, no whole number for each of {each} codes")
        return self._add("codes", (), width, weights=(weight,), attrs={"each": each, "stride": height // each})

    def given(self, width: int) -> Value:
        """[rows, width]: the numbers that each row of the step brings along (`Row.given`), such as the hidden row from
        which a draft head goes on."""
        if width < 1:
            raise PluginError(f"graph: given: {width} numbers a row")
        return self._add("given", (), width)

    def slice(self, x: Value, offset: int, width: int, *, group: int = 0) -> Value:
        """`width` values from `offset` on, of the row or of every run of `group` values."""
        group = group or x.width
        runs = self._runs("slice", x, group)
        if offset < 0 or width < 1 or offset + width > group:
            raise self._misfit("slice", x.tensor, f"gives runs of {group} values, there are no {width} from {offset} on")
        return self._add("slice", (x,), runs * width, attrs={"group": group, "offset": offset, "width": width})

    def concat(self, *values: Value, groups: int = 1) -> Value:
        """The values side by side: the rows whole, or run by run of `groups`."""
        if not values:
            raise PluginError("graph: concat of nothing")
        for x in values:
            if groups < 1 or x.width % groups:
                raise self._misfit("concat", x.tensor, f"gives {x.width} values a row, no {groups} equal runs")
        return self._add("concat", values, sum(x.width for x in values), attrs={"groups": groups})

    def tile(self, x: Value, times: int) -> Value:
        """The row, `times` times."""
        if times < 1:
            raise PluginError(f"graph: tile: {times} times")
        return self._add("tile", (x,), x.width * times, attrs={"times": times})

    def sum(self, x: Value, group: int) -> Value:
        """The sum of every run of `group` values."""
        return self._add("sum", (x,), self._runs("sum", x, group), attrs={"group": group})

    def mix(self, x: Value, n: int, shares: Value | None = None) -> Value:
        """Of n equal runs the sum, each times its share [rows, n]; their mean without shares."""
        if n < 1 or x.width % n:
            raise self._misfit("mix", x.tensor, f"gives {x.width} values a row, no {n} equal runs")
        if shares is not None and shares.width != n:
            raise self._misfit("mix", shares.tensor, f"gives {shares.width} values a row, {n} are needed")
        return self._add("mix", (x, shares), x.width // n, attrs={"n": n})

    # Elementwise

    def add(self, a: Value, b: Value) -> Value:
        """a + b, elementwise; each value of a narrower b is added to a run of a's."""
        return self._add("add", (a, b), self._meets("add", a, b))

    def mul(self, a: Value, b: Value) -> Value:
        """a * b, elementwise; each value of a narrower b multiplies a run of a's."""
        return self._add("mul", (a, b), self._meets("mul", a, b))

    def scale(self, x: Value, factor: float, *, shift: float = 0.0) -> Value:
        """x * factor + shift."""
        return self._add("scale", (x,), x.width, attrs={"factor": float(factor), "shift": float(shift)})

    def clamp(self, x: Value, low: float, high: float) -> Value:
        """x limited to low..high."""
        if not low <= high:
            raise PluginError(f"graph: clamp: {low} to {high} is no range")
        return self._add("clamp", (x,), x.width, attrs={"low": float(low), "high": float(high)})

    def add_weight(self, x: Value, weight: W) -> Value:
        """x plus the vector, as often as it fits into a row."""
        return self._add("add_weight", (x,), self._tiled("add_weight", x, weight), weights=(weight,))

    def mul_weight(self, x: Value, weight: W) -> Value:
        """x times the vector, as often as it fits into a row."""
        return self._add("mul_weight", (x,), self._tiled("mul_weight", x, weight), weights=(weight,))

    def activate(self, x: Value, kind: Kind, limit: float = 0.0) -> Value:
        """A function of every value: see plan.py."""
        if kind in ("softcap", "root") and not limit > 0:
            raise PluginError(f"graph: activate: {kind} needs a limit above 0")
        return self._add("activate", (x,), x.width, attrs={"kind": kind, "limit": float(limit)})

    def silu(self, x: Value) -> Value:
        """x * sigmoid(x)."""
        return self.activate(x, "silu")

    def sigmoid(self, x: Value) -> Value:
        """1 / (1 + exp(-x))."""
        return self.activate(x, "sigmoid")

    def glu(self, gate: Value, up: Value, how: Glu = SWIGLU) -> Value:
        """gate and up joined; by default silu(gate) * up."""
        return self._add("glu", (gate, up), self._same("glu", gate, up), attrs=how.attrs())

    def swiglu(self, gate: Value, up: Value) -> Value:
        """silu(gate) * up."""
        return self.glu(gate, up)

    def log_scale(self, x: Value, floor: float, alpha: float) -> Value:
        """x * (1 + alpha * ln(max((position + 1) / floor, 1)))."""
        return self._add("log_scale", (x,), x.width, attrs={"floor": float(floor), "alpha": float(alpha)})

    # Norms

    def rms_norm(self, x: Value, weight: W | None, eps: float, *, group: int = 0, unit: bool = False) -> Value:
        """weight * x / sqrt(mean(x^2) + eps), the mean over the whole row or over every run of `group` values. The weight
        is a run's or the row's, with `unit` as what is added to 1."""
        width = group or x.width
        if weight is not None and (weight.shape not in ((width,), (x.width,)) or x.width % width):
            reason = f"has shape {list(weight.shape)}, [{width}] is needed for {x.width} values"
            raise self._misfit("rms_norm", weight.name, reason)
        self._runs("rms_norm", x, width)
        attrs: dict[str, Attr] = {"eps": float(eps), "group": group, "unit": unit}
        return self._add("rms_norm", (x,), x.width, weights=(weight,), attrs=attrs)

    def layer_norm(self, x: Value, weight: W, bias: W, eps: float) -> Value:
        """weight * (x - mean) / sqrt(variance + eps) + bias, over the row."""
        for w in (weight, bias):
            if w.shape != (x.width,):
                raise self._misfit("layer_norm", w.name, f"has shape {list(w.shape)}, [{x.width}] is needed")
        return self._add("layer_norm", (x,), x.width, weights=(weight, bias), attrs={"eps": float(eps)})

    def l2_clip(self, x: Value, group: int, limit: float) -> Value:
        """Every run of `group` values shortened to the length `limit`."""
        self._runs("l2_clip", x, group)
        return self._add("l2_clip", (x,), x.width, attrs={"group": group, "limit": float(limit)})

    def softmax(self, x: Value, group: int = 0) -> Value:
        """Over the row, or every run of `group` values."""
        self._runs("softmax", x, group or x.width)
        return self._add("softmax", (x,), x.width, attrs={"group": group or x.width})

    # Products

    def linear(self, x: Value, weight: W, bias: W | None = None) -> Value:
        """[rows, in] -> [rows, out]: x @ weight.T + bias, weight [out, in], bias [out]."""
        out, width = self._matrix("linear", weight)
        if width != x.width:
            raise self._misfit("linear", weight.name, f"takes {width} values a row, it is given {x.width}")
        if bias is not None and bias.shape != (out,):
            raise self._misfit("linear", bias.name, f"has shape {list(bias.shape)}, [{out}] is needed")
        return self._add("linear", (x,), out, weights=(weight, bias))

    def linear_groups(
        self, x: Value, weight: W, groups: int, *, rows: int, first: int = 0, stride: int = 0, transposed: bool = False
    ) -> Value:
        """Each of `groups` runs of x times its own `rows` rows of the weight, from first + run * stride (default: rows) on;
        `transposed`: run @ rows in place of run @ rows.T."""
        height, width = self._matrix("linear_groups", weight)
        stride = stride or rows
        if min(groups, rows) < 1 or first < 0 or stride < 1 or first + (groups - 1) * stride + rows > height:
            reason = f"has {height} rows, no {groups} runs of {rows} from {first} on, {stride} apart"
            raise self._misfit("linear_groups", weight.name, reason)
        taken, made = (rows, width) if transposed else (width, rows)
        if x.width != groups * taken:
            reason = f"takes {groups} runs of {taken} values a row, it is given {x.width}"
            raise self._misfit("linear_groups", weight.name, reason)
        attrs: dict[str, Attr] = {"groups": groups, "first": first, "stride": stride, "transposed": transposed}
        return self._add("linear_groups", (x,), groups * made, weights=(weight,), attrs=attrs)

    def rope(self, x: Value, rope: Rope, *, inverse: bool = False) -> Value:
        """x's heads rotated by their row's position, or back."""
        heads = self._heads("rope", x, rope.head_dim)
        attrs: dict[str, Attr] = {"heads": heads, "head_dim": rope.head_dim, "inverse": inverse, **self._turn("rope", rope)}
        return self._add("rope", (x,), x.width, attrs=attrs)

    # Sequences

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value | None = None,
        *,
        state: KV,
        scale: float | None = None,
        v_dim: int = 0,
        select: Value | None = None,
        pooled: Rows | None = None,
        sinks: W | None = None,
        sink: Value | None = None,
        distance: Value | None = None,
        profile: W | None = None,
    ) -> Value:
        """Causal attention of q [rows, heads*k_dim] over the slot, k and v appended -> [rows, heads*v_dim].

        `scale` defaults to k_dim**-0.5. Without v, the value of a key is its first `v_dim` (default: all) numbers.
        """
        heads = self._heads("attention", q, state.k_dim)
        if (v is None) != (state.v_dim == 0):
            raise PluginError("graph: attention: v is given where the state has values of their own, and only there")
        given = ((k, state.heads * state.k_dim), *([(v, state.heads * state.v_dim)] if v is not None else []))
        for x, width in given:
            if x.width != width:
                raise self._misfit("attention", x.tensor, f"gives {x.width} values a row, {width} are needed")
        if heads % state.heads:
            raise self._misfit("attention", q.tensor, f"gives {heads} heads, {state.heads} key heads cannot serve them")
        out = state.v_dim or v_dim or state.k_dim
        if out > max(state.k_dim, state.v_dim):
            raise PluginError(f"graph: attention: values of {out} from keys of {state.k_dim} numbers")
        if pooled is not None and (state.heads != 1 or v is not None or pooled.width != state.k_dim):
            raise PluginError("graph: attention: pooled rows go with one key head, whose keys are its values and as wide")
        if sinks is not None and sinks.shape != (heads,):
            raise self._misfit("attention", sinks.name, f"has shape {list(sinks.shape)}, [{heads}] is needed")
        if sink is not None and sink.width != heads:
            raise self._misfit("attention", sink.tensor, f"gives {sink.width} values a row, {heads} are needed")
        if (distance is None) != (profile is None):
            raise PluginError("graph: attention: distance and profile go together")
        if distance is not None and profile is not None:
            values, _ = self._matrix("attention", profile)
            if distance.width != heads * values:
                reason = f"is for {values} values a head, {distance.width} are given for {heads} heads"
                raise self._misfit("attention", profile.name, reason)
        attrs: dict[str, Attr] = {
            "heads": heads,
            "kv_heads": state.heads,
            "scale": float(state.k_dim**-0.5 if scale is None else scale),
            "window": state.window,
            "every": pooled.every if pooled is not None else 1,
        }
        states = (state.index,) if pooled is None else (state.index, pooled.index)
        inputs = (q, k, v, select, sink, distance)
        return self._add("attention", inputs, heads * out, weights=(sinks, profile), states=states, attrs=attrs)

    def select(
        self,
        q: Value,
        k: Value | None = None,
        weights: Value | None = None,
        *,
        state: Rows,
        budget: int,
        scale: float | None = None,
        expand: bool = False,
    ) -> Value:
        """The `budget` best rows of `state`, by the sum over q's heads of weight * max(0, q.row * scale); `scale` defaults
        to width**-0.5. k is appended to the state first; without, `pool` fills it. `expand`: the positions they stand
        for, and those of the run that is not complete yet."""
        heads = self._heads("select", q, state.width)
        if k is not None and (k.width != state.width or state.every != 1):
            raise self._misfit("select", k.tensor, f"gives {k.width} values a row, {state.width} are needed")
        if weights is not None and weights.width != heads:
            raise self._misfit("select", weights.tensor, f"gives {weights.width} values a row, {heads} are needed")
        if budget < 1:
            raise PluginError(f"graph: select: a budget of {budget}")
        attrs: dict[str, Attr] = {
            "heads": heads,
            "scale": float(state.width**-0.5 if scale is None else scale),
            "budget": budget,
            "every": state.every,
            "expand": expand,
        }
        width = budget * state.every + state.every - 1 if expand else budget
        return self._add("select", (q, k, weights), width, states=(state.index,), attrs=attrs)

    def pool(
        self,
        x: Value,
        gate: Value | None = None,
        *,
        raw: Rows,
        pooled: Rows,
        ape: W | None = None,
        norm: W | None = None,
        eps: float = 0.0,
        unit: bool = False,
        rope: Rope | None = None,
    ) -> None:
        """Fill `pooled` from runs of x; see plan.py. `raw` keeps what a run needs until it is complete: [x | gate]. They
        overlap if x is twice as wide as a pooled row."""
        every, width = pooled.every, x.width
        overlap = width == 2 * pooled.width
        if width != pooled.width and not overlap:
            raise self._misfit("pool", x.tensor, f"gives {width} values a row, {pooled.width} or twice as many are needed")
        if gate is not None and gate.width != width:
            raise self._misfit("pool", gate.tensor, f"gives {gate.width} values a row, {width} are needed")
        if ape is not None and ape.shape != (every, width):
            raise self._misfit("pool", ape.name, f"has shape {list(ape.shape)}, [{every}, {width}] is needed")
        if norm is not None and norm.shape != (pooled.width,):
            raise self._misfit("pool", norm.name, f"has shape {list(norm.shape)}, [{pooled.width}] is needed")
        needed = width * (2 if gate is not None else 1), every * (2 if overlap else 1)
        if (raw.width, raw.window) != needed or raw.every != 1 or (gate is None and (ape is not None or overlap)):
            raise PluginError(f"graph: pool: its raw rows are {needed[0]} wide, the last {needed[1]} of them")
        if rope is not None and rope.head_dim != pooled.width:
            raise PluginError(f"graph: pool: a rotation of {rope.head_dim} for rows of {pooled.width}")
        attrs: dict[str, Attr] = {"every": every, "overlap": overlap, "eps": float(eps), "unit": unit}
        attrs |= self._turn("pool", rope) if rope is not None else {}
        self._add("pool", (x, gate), 0, weights=(ape, norm), states=(raw.index, pooled.index), attrs=attrs)

    def conv(
        self, x: Value, weight: W, *, state: Rows, dilation: int = 1, lags: bool = False, taps: Value | None = None
    ) -> Value:
        """Causal convolution of every column with its own taps: weight [width, kernel], the last tap for the row itself, or
        [kernel, width], the first for it, with `lags`. `state` keeps the last (kernel-1)*dilation + 1 rows."""
        height, width = self._matrix("conv", weight)
        kernel, columns = (height, width) if lags else (width, height)
        if columns != x.width:
            raise self._misfit("conv", weight.name, f"has taps for {columns} values a row, it is given {x.width}")
        if state.width != x.width or state.window != (kernel - 1) * dilation + 1 or state.every != 1:
            raise PluginError(f"graph: conv: its state keeps {(kernel - 1) * dilation + 1} rows of {x.width}")
        if taps is not None and (taps.width % kernel or x.width % (taps.width // kernel or 1)):
            raise self._misfit("conv", taps.tensor, f"gives {taps.width} values a row, runs of {kernel} taps are needed")
        attrs: dict[str, Attr] = {"kernel": kernel, "dilation": dilation, "lags": lags}
        return self._add("conv", (x, taps), x.width, weights=(weight,), states=(state.index,), attrs=attrs)

    def delta(self, q: Value, k: Value, v: Value, decay: Value, beta: Value, *, heads: int, state: Memory) -> Value:
        """Gated delta rule: q, k [rows, key_heads*dk], v [rows, heads*dv], decay [rows, heads] or [rows, heads*dk],
        beta [rows, heads] -> [rows, heads*dv]."""
        self._heads("delta", v, v.width // heads if heads > 0 else 0)
        if beta.width != heads:
            raise self._misfit("delta", beta.tensor, f"gives {beta.width} values a row, {heads} are needed")
        self._same("delta", q, k)
        if v.width % heads or state.size % v.width:
            raise PluginError(f"graph: delta: a memory of {state.size} for {heads} heads that give {v.width} values")
        dk = state.size // v.width
        key_heads = self._heads("delta", k, dk)
        if heads % key_heads:
            raise self._misfit("delta", k.tensor, f"gives {key_heads} heads, {heads} can't share them")
        if decay.width not in (heads, heads * dk):
            reason = f"gives {decay.width} values a row, {heads} or {heads * dk} are needed"
            raise self._misfit("delta", decay.tensor, reason)
        attrs: dict[str, Attr] = {"heads": heads, "key_heads": key_heads}
        return self._add("delta", (q, k, v, decay, beta), v.width, states=(state.index,), attrs=attrs)

    def decay(self, x: Value, a: W, bias: W, heads: int, *, bound: float = 0.0, log: bool = True) -> Value:
        """The log of a decay: -r * softplus(x + bias), or bound * sigmoid(r * (x + bias)), where a head's rate r is exp(a),
        without `log` -a."""
        if heads < 1 or x.width % heads or len(a.shape) != 1 or a.shape[0] < heads:
            raise self._misfit("decay", a.name, f"has shape {list(a.shape)}, [{heads}] or more is needed")
        if bias.shape != (x.width,):
            raise self._misfit("decay", bias.name, f"has shape {list(bias.shape)}, [{x.width}] is needed")
        attrs: dict[str, Attr] = {"heads": heads, "bound": float(bound), "log": log}
        return self._add("decay", (x,), x.width, weights=(a, bias), attrs=attrs)

    def ngram(
        self,
        tables: Sequence[W],
        *,
        state: Rows,
        heads: int,
        eos: int,
        multipliers: Sequence[int],
        sizes: Sequence[int],
        offsets: Sequence[int],
    ) -> Value:
        """Rows of the tables (parts of one, one below the other) by hashes of the last 2, 3, … tokens, `heads` rows each
        -> [rows, all of them side by side]. `state` keeps the last tokens."""
        orders, count = len(multipliers), heads * (len(multipliers) - 1)
        if not tables or orders < 2 or len(sizes) != count or len(offsets) != count:
            raise PluginError(f"graph: ngram: {count} sizes and offsets go with {orders} multipliers, {heads} heads")
        height = 0
        for table in tables:
            rows, width = self._matrix("ngram", table)
            if width != tables[0].shape[1]:
                raise self._misfit("ngram", table.name, f"has rows of {width}, the first part of {tables[0].shape[1]}")
            height += rows
        if any(size < 1 or offset < 0 or offset + size > height for size, offset in zip(sizes, offsets, strict=True)):
            raise self._misfit("ngram", tables[0].name, f"has {height} rows with all parts, its sizes and offsets need more")
        if (state.width, state.window) != (1, orders):
            raise PluginError(f"graph: ngram: its state keeps the last {orders} tokens")
        attrs: dict[str, Attr] = {
            "heads": heads,
            "eos": eos,
            "multipliers": tuple(multipliers),
            "sizes": tuple(sizes),
            "offsets": tuple(offsets),
        }
        return self._add("ngram", (), count * tables[0].shape[1], weights=tuple(tables), states=(state.index,), attrs=attrs)

    # Streams

    def sinkhorn(self, x: Value, base: W, scale: W, n: int, *, iterations: int, eps: float) -> Value:
        """Coefficients of n streams from mixing logits [rows, (2+n)*n]: pre n, post n, joint n*n."""
        width = (2 + n) * n
        if x.width != width or base.shape != (width,):
            raise self._misfit("sinkhorn", base.name, f"has shape {list(base.shape)}, [{width}] is needed")
        if scale.shape != (3,):
            raise self._misfit("sinkhorn", scale.name, f"has shape {list(scale.shape)}, [3] is needed")
        attrs: dict[str, Attr] = {"n": n, "iterations": iterations, "eps": float(eps)}
        return self._add("sinkhorn", (x,), width, weights=(base, scale), attrs=attrs)

    def spread(self, x: Value, y: Value, coefficients: Value, n: int) -> Value:
        """Streams x [rows, n*width] with y [rows, width] written into them by `sinkhorn`'s coefficients."""
        if x.width != n * y.width:
            raise self._misfit("spread", y.tensor, f"gives {y.width} values a row, {x.width} are {n} streams")
        if coefficients.width != (2 + n) * n:
            raise self._misfit("spread", coefficients.tensor, f"gives {coefficients.width} coefficients for {n} streams")
        return self._add("spread", (x, y, coefficients), x.width, attrs={"n": n})

    # Experts

    def route(
        self,
        scores: Value,
        top_k: int,
        *,
        score: Literal["softmax", "sigmoid", "root_softplus"] = "softmax",
        norm: bool = False,
        factor: float = 1.0,
        bias: W | None = None,
        table: W | None = None,
        groups: int = 1,
        top_groups: int = 1,
        shared: int = 0,
    ) -> Value:
        """Experts for every row: see plan.py. The value is read by `experts`, and holds 2*top_k + shared numbers."""
        count = scores.width - shared
        if not 1 <= top_k <= count:
            raise self._misfit("moe", scores.tensor, f"scores {count} experts, {top_k} cannot be chosen")
        if bias is not None and bias.shape != (count,):
            raise self._misfit("moe", bias.name, f"has shape {list(bias.shape)}, [{count}] is needed")
        if table is not None and table.shape[1:] != (top_k,):
            raise self._misfit("moe", table.name, f"has shape {list(table.shape)}, [vocabulary, {top_k}] is needed")
        if groups < 1 or count % groups or not 1 <= top_groups <= groups or top_groups * (count // groups) < top_k:
            reason = f"scores {count} experts, {top_k} cannot be chosen from {top_groups} of {groups} groups"
            raise self._misfit("moe", scores.tensor, reason)
        attrs: dict[str, Attr] = {
            "top_k": top_k,
            "score": score,
            "normalise": norm,
            "factor": float(factor),
            "groups": groups,
            "top_groups": top_groups,
            "shared": shared,
        }
        return self._add("route", (scores,), 2 * top_k + shared, weights=(bias, table), attrs=attrs)

    def experts(self, x: Value, routes: Value, experts: Experts, how: Glu = SWIGLU) -> Value:
        """The sum of the routed experts' answers to x, by their weights."""
        inner, width = self._matrix("experts", experts.gate[0])
        if width != x.width:
            raise self._misfit("experts", experts.gate[0].name, f"takes {width} values a row, it is given {x.width}")
        for kind, shape in ((experts.gate, (inner, width)), (experts.up, (inner, width)), (experts.down, (width, inner))):
            for weight in kind:
                if weight.shape != shape:
                    raise self._misfit("experts", weight.name, f"has shape {list(weight.shape)}, {list(shape)} is needed")
        gate, up, down = (tuple(w.index for w in kind) for kind in (experts.gate, experts.up, experts.down))
        bank = self._bank(Bank(experts.name, width, inner, gate, up, down))
        return self._add("experts", (x, routes), width, bank=bank, attrs=how.attrs())

    def moe(
        self, x: Value, *, router: W, experts: Experts, top_k: int, norm: bool, factor: float = 1.0, how: Glu = SWIGLU
    ) -> Value:
        """The weighted sum of the `top_k` experts that a softmax router scores highest. `norm`: their weights are made to
        sum to 1; `factor` multiplies them afterwards."""
        count = len(experts.gate)
        scores = self.linear(x, router)
        if scores.width != count:
            raise self._misfit("moe", router.name, f"scores {scores.width} experts, there are {count}")
        return self.experts(x, self.route(scores, top_k, norm=norm, factor=factor), experts, how)

    # What they share

    def _add(
        self,
        op: str,
        inputs: tuple[Value | None, ...],
        width: int,
        *,
        weights: tuple[W | None, ...] = (),
        bank: int = -1,
        states: tuple[int, ...] = (),
        attrs: dict[str, Attr] | None = None,
    ) -> Value:
        out = self._node(op, inputs, width, weights, bank, states, attrs or {})
        named = next((w.name for w in weights if w is not None), None)
        tensor = named or next((x.tensor for x in inputs if x is not None), "")
        return Value(self, out, width, tensor)

    def _turn(self, op: str, rope: Rope) -> dict[str, Attr]:
        if not rope.inv_freq or rope.offset < 0 or rope.offset + 2 * len(rope.inv_freq) > rope.head_dim:
            raise PluginError(f"graph: {op}: {2 * len(rope.inv_freq)} values from {rope.offset} on of {rope.head_dim}")
        return {
            "offset": rope.offset,
            "inv_freq": rope.inv_freq,
            "factor": float(rope.factor),
            "interleaved": rope.interleaved,
        }

    def _matrix(self, op: str, weight: W) -> tuple[int, int]:
        if len(weight.shape) != 2:
            raise self._misfit(op, weight.name, f"has shape {list(weight.shape)}, a matrix is needed")
        return weight.shape[0], weight.shape[1]

    def _same(self, op: str, a: Value, b: Value) -> int:
        if a.width != b.width:
            raise self._misfit(op, b.tensor, f"gives {b.width} values a row, {a.width} are needed")
        return a.width

    def _meets(self, op: str, a: Value, b: Value) -> int:
        if a.width % b.width:
            raise self._misfit(op, b.tensor, f"gives {b.width} values a row, {a.width} are needed")
        return a.width

    def _tiled(self, op: str, x: Value, weight: W) -> int:
        if len(weight.shape) != 1 or x.width % weight.shape[0]:
            raise self._misfit(op, weight.name, f"has shape {list(weight.shape)}, [{x.width}] or a part of it is needed")
        return x.width

    def _runs(self, op: str, x: Value, group: int) -> int:
        if group < 1 or x.width % group:
            raise self._misfit(op, x.tensor, f"gives {x.width} values a row, no whole runs of {group}")
        return x.width // group

    def _heads(self, op: str, x: Value, head_dim: int) -> int:
        if head_dim < 1 or x.width % head_dim:
            raise self._misfit(op, x.tensor, f"gives {x.width} values a row, no whole heads of {head_dim}")
        return x.width // head_dim

    @abstractmethod
    def _node(
        self,
        op: str,
        inputs: tuple[Value | None, ...],
        width: int,
        weights: tuple[W | None, ...],
        bank: int,
        states: tuple[int, ...],
        attrs: dict[str, Attr],
    ) -> int:
        """Add a node and return the index of its value."""

    @abstractmethod
    def _bank(self, bank: Bank) -> int:
        """Add a bank and return its index."""

    @abstractmethod
    def _misfit(self, op: str, name: str, reason: str) -> CheckpointError:
        """An error about the weight called `name`."""
