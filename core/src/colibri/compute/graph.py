"""Declaring a forward pass: what a family writes with, reading like the paper. The result is a Plan.

Shapes are checked as each operation is declared, against the shapes the file gives its tensors, so that a file which does
not fit its configuration is refused by the name of the tensor at fault before any of its weights are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from ..errors import CheckpointError, PluginError
from .checkpoint import BLOCKS, Checkpoint, Tensor
from .plan import Attr, Bank, Node, Plan, State, Weight
from .rope import Rope


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


class KV(Struct, frozen=True):
    """A state that keeps keys and values: its index in the plan and its shape."""

    index: int
    heads: int
    k_dim: int
    v_dim: int


class Value:
    """A matrix [rows, width] the graph computes; `a + b` and `a * b` are elementwise, `a * 0.5` scales."""

    def __init__(self, graph: Graph, index: int, width: int, tensor: str) -> None:
        self.graph, self.index, self.width = graph, index, width
        self.tensor = tensor  # the weight it was made with, for errors

    def __add__(self, other: Value) -> Value:
        return self.graph.add(self, other)

    def __mul__(self, other: Value | float) -> Value:
        return self.graph.mul(self, other) if isinstance(other, Value) else self.graph.scale(self, other)


class Tokens:
    """The token ids of the step."""


class Scope:
    """The weights below a prefix: `g.scope("model.layers.0")["mlp.up_proj.weight"]`."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        self.graph, self.prefix = graph, prefix

    def __getitem__(self, name: str) -> W:
        return self.graph.w(f"{self.prefix}.{name}")

    def scope(self, prefix: str) -> Scope:
        """A scope within this one."""
        return Scope(self.graph, f"{self.prefix}.{prefix}")

    def experts(
        self,
        pattern: str,
        count: int,
        *,
        gate: str = "gate_proj.weight",
        up: str = "up_proj.weight",
        down: str = "down_proj.weight",
    ) -> Experts:
        """The experts of this layer, a bank that may stream: `pattern` holds `{e}` where an expert's number stands."""

        def all_of(name: str) -> tuple[W, ...]:
            return tuple(self[f"{pattern.replace('{e}', str(e))}.{name}"] for e in range(count))

        bank = f"{self.prefix}.{pattern.replace('.{e}', '')}"
        return Experts(bank, all_of(gate), all_of(up), all_of(down))


class Graph:
    """A forward pass under construction. `find` says where a weight lies: by default, under its name in the checkpoint;
    a family that reads files with other names sets its own."""

    tokens = Tokens()

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.find: Callable[[str], Tensor] = checkpoint.tensor
        self._file = checkpoint.path
        self._tensors: dict[str, Tensor] = {}
        self._weights: dict[str, W] = {}
        self._widths: list[int] = []
        self._nodes: list[Node] = []
        self._banks: list[Bank] = []
        self._states: dict[object, State] = {}
        self._context = 0
        self._embedded: W | None = None
        self._logits: Value | None = None

    # Weights and states

    def context(self, positions: int) -> None:
        """The most positions the model was made for."""
        self._context = positions

    def w(self, name: str, *, rows: int | None = None) -> W:
        """The weight called `name`, with exactly `rows` rows if given. Raises CheckpointError if it is missing or
        stored in a type that cannot be computed with."""
        known = self._weights.get(name)
        if known is None:
            tensor = self.find(name)
            if tensor.dtype not in BLOCKS:
                reason = f"is stored as {tensor.dtype[:32]}; {', '.join(BLOCKS)} can be computed with"
                raise CheckpointError(reason, file=tensor.file, tensor=tensor.name)
            if len(tensor.shape) not in (1, 2) or 0 in tensor.shape:
                reason = f"has shape {list(tensor.shape)}; a vector or a matrix is needed"
                raise CheckpointError(reason, file=tensor.file, tensor=tensor.name)
            known = self._weights[name] = W(len(self._weights), name, tensor.shape)
            self._tensors[name] = tensor
        if rows is not None and known.shape[0] != rows:
            raise self._misfit("weight", name, f"has shape {list(known.shape)}, {rows} rows are needed")
        return known

    def scope(self, prefix: str) -> Scope:
        """The weights below `prefix`."""
        return Scope(self, prefix)

    def kv(self, key: object, heads: int, k_dim: int, v_dim: int | None = None) -> KV:
        """A state for keys of heads*k_dim and values of heads*v_dim numbers a position. `key` (the layer, say) tells
        states apart; each is used by one attention."""
        if key in self._states:
            raise PluginError(f"graph: state {key!r} is declared twice")
        v_dim = k_dim if v_dim is None else v_dim
        self._states[key] = State("kv", heads * k_dim, heads * v_dim)
        return KV(len(self._states) - 1, heads, k_dim, v_dim)

    # Operations

    def embed(self, tokens: Tokens, weight: W) -> Value:
        """[rows] token ids, [vocab, width] -> [rows, width]: the row of `weight` of each token."""
        _, width = self._matrix("embed", weight)
        self._embedded = weight
        return self._add("embed", (), width, weights=(weight,))

    def rms_norm(self, x: Value, weight: W, eps: float, *, group: int = 0) -> Value:
        """weight * x / sqrt(mean(x^2) + eps), the mean over the whole row or over every run of `group` values."""
        width = group or x.width
        if weight.shape != (width,) or x.width % width:
            reason = f"has shape {list(weight.shape)}, [{width}] is needed for {x.width} values"
            raise self._misfit("rms_norm", weight.name, reason)
        return self._add("rms_norm", (x,), x.width, weights=(weight,), attrs={"eps": float(eps), "group": group})

    def linear(self, x: Value, weight: W, bias: W | None = None) -> Value:
        """[rows, in] -> [rows, out]: x @ weight.T + bias, weight [out, in], bias [out]."""
        out, width = self._matrix("linear", weight)
        if width != x.width:
            raise self._misfit("linear", weight.name, f"takes {width} values a row, it is given {x.width}")
        if bias is not None and bias.shape != (out,):
            raise self._misfit("linear", bias.name, f"has shape {list(bias.shape)}, [{out}] is needed")
        return self._add("linear", (x,), out, weights=(weight,) if bias is None else (weight, bias))

    def add(self, a: Value, b: Value) -> Value:
        """a + b, elementwise."""
        return self._add("add", (a, b), self._same("add", a, b))

    def mul(self, a: Value, b: Value) -> Value:
        """a * b, elementwise."""
        return self._add("mul", (a, b), self._same("mul", a, b))

    def scale(self, x: Value, factor: float) -> Value:
        """x * factor."""
        return self._add("scale", (x,), x.width, attrs={"factor": float(factor)})

    def clamp(self, x: Value, low: float, high: float) -> Value:
        """x limited to low..high."""
        if not low <= high:
            raise PluginError(f"graph: clamp: {low} to {high} is no range")
        return self._add("clamp", (x,), x.width, attrs={"low": float(low), "high": float(high)})

    def swiglu(self, gate: Value, up: Value) -> Value:
        """silu(gate) * up."""
        return self._add("swiglu", (gate, up), self._same("swiglu", gate, up))

    def rope(self, x: Value, rope: Rope) -> Value:
        """x's heads rotated by their row's position."""
        heads = self._heads("rope", x, rope.head_dim)
        if not rope.inv_freq or rope.offset < 0 or rope.offset + 2 * len(rope.inv_freq) > rope.head_dim:
            raise PluginError(f"graph: rope: {2 * len(rope.inv_freq)} values from {rope.offset} on of {rope.head_dim}")
        attrs: dict[str, Attr] = {
            "heads": heads,
            "head_dim": rope.head_dim,
            "offset": rope.offset,
            "inv_freq": rope.inv_freq,
            "factor": float(rope.factor),
            "interleaved": rope.interleaved,
        }
        return self._add("rope", (x,), x.width, attrs=attrs)

    def attention(self, q: Value, k: Value, v: Value, *, state: KV, scale: float | None = None, window: int = 0) -> Value:
        """Causal attention of q [rows, heads*k_dim] over the slot, k and v appended -> [rows, heads*v_dim].

        `scale` defaults to k_dim**-0.5; `window` 0 sees every earlier position, n the last n, the own one included.
        """
        heads = self._heads("attention", q, state.k_dim)
        for x, width in ((k, state.heads * state.k_dim), (v, state.heads * state.v_dim)):
            if x.width != width:
                raise self._misfit("attention", x.tensor, f"gives {x.width} values a row, {width} are needed")
        if heads % state.heads:
            raise self._misfit("attention", q.tensor, f"gives {heads} heads, {state.heads} key heads cannot serve them")
        attrs: dict[str, Attr] = {
            "heads": heads,
            "kv_heads": state.heads,
            "scale": float(state.k_dim**-0.5 if scale is None else scale),
            "window": window,
        }
        return self._add("attention", (q, k, v), heads * state.v_dim, state=state.index, attrs=attrs)

    def moe(
        self, x: Value, *, router: W, experts: Experts, top_k: int, norm: bool, score: str = "softmax", factor: float = 1.0
    ) -> Value:
        """The weighted sum of the `top_k` experts the router scores highest. `norm`: their weights are made to sum to 1;
        `factor` multiplies them afterwards."""
        count = len(experts.gate)
        scores = self.linear(x, router)
        if scores.width != count:
            raise self._misfit("moe", router.name, f"scores {scores.width} experts, there are {count}")
        if not 1 <= top_k <= count:
            raise self._misfit("moe", router.name, f"scores {count} experts, {top_k} cannot be chosen")
        chosen: dict[str, Attr] = {"top_k": top_k, "score": score, "normalise": norm, "factor": float(factor)}
        routes = self._add("route", (scores,), 2 * top_k, attrs=chosen)
        inner, width = self._matrix("experts", experts.gate[0])
        if width != x.width:
            raise self._misfit("experts", experts.gate[0].name, f"takes {width} values a row, it is given {x.width}")
        for kind, shape in ((experts.gate, (inner, width)), (experts.up, (inner, width)), (experts.down, (width, inner))):
            for weight in kind:
                if weight.shape != shape:
                    raise self._misfit("experts", weight.name, f"has shape {list(weight.shape)}, {list(shape)} is needed")
        gate, up, down = (tuple(w.index for w in kind) for kind in (experts.gate, experts.up, experts.down))
        self._banks.append(Bank(experts.name, width, inner, gate, up, down))
        return self._add("experts", (x, routes), width, bank=len(self._banks) - 1)

    def logits(self, x: Value) -> None:
        """The forward pass ends in x [rows, vocab]."""
        if self._logits is not None:
            raise PluginError("graph: logits is declared twice")
        if self._embedded is not None and x.width != self._embedded.shape[0]:
            reason = f"gives {x.width} logits for {self._embedded.shape[0]} tokens of {self._embedded.name}"
            raise self._misfit("logits", x.tensor, reason)
        self._logits = x

    # Results

    def plan(self) -> Plan:
        """The finished plan. Raises PluginError if the declaration is incomplete."""
        if self._logits is None or self._context < 1:
            raise PluginError("graph: a forward pass declares its context and ends in logits")
        return Plan(
            vocab=self._logits.width,
            context=self._context,
            widths=tuple(self._widths),
            nodes=tuple(self._nodes),
            weights=tuple(Weight(w.name, w.shape) for w in self._weights.values()),
            banks=tuple(self._banks),
            states=tuple(self._states.values()),
            logits=self._logits.index,
        )

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Where each weight of the plan lies."""
        return self._tensors

    def _add(
        self,
        op: str,
        inputs: tuple[Value, ...],
        width: int,
        *,
        weights: tuple[W, ...] = (),
        bank: int = -1,
        state: int = -1,
        attrs: dict[str, Attr] | None = None,
    ) -> Value:
        for x in inputs:
            if x.graph is not self:
                raise PluginError(f"graph: {op} is given a value of another graph")
        out = len(self._widths)
        self._widths.append(width)
        indices = tuple(w.index for w in weights)
        self._nodes.append(Node(op, tuple(x.index for x in inputs), out, indices, bank, state, attrs or {}))
        return Value(self, out, width, weights[0].name if weights else inputs[0].tensor)

    def _matrix(self, op: str, weight: W) -> tuple[int, int]:
        if len(weight.shape) != 2:
            raise self._misfit(op, weight.name, f"has shape {list(weight.shape)}, a matrix is needed")
        return weight.shape[0], weight.shape[1]

    def _same(self, op: str, a: Value, b: Value) -> int:
        if a.width != b.width:
            raise self._misfit(op, b.tensor, f"gives {b.width} values a row, {a.width} are needed")
        return a.width

    def _heads(self, op: str, x: Value, head_dim: int) -> int:
        if head_dim < 1 or x.width % head_dim:
            raise self._misfit(op, x.tensor, f"gives {x.width} values a row, no whole heads of {head_dim}")
        return x.width // head_dim

    def _misfit(self, op: str, name: str, reason: str) -> CheckpointError:
        tensor = self._tensors.get(name)
        file = self._file if tensor is None else tensor.file
        return CheckpointError(f"{op}: {reason}", file=file, tensor=name if tensor is None else tensor.name)
