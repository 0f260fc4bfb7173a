"""Declaring a forward pass: what a family writes with, reading like the paper. The result is a Plan.

The operations stand in operations.py, what is put together from them in blocks.py, delta.py and ngrams.py. Shapes are
checked as each operation is declared, against the shapes the file gives its tensors, so that a file which does not fit its
configuration is refused by the name of the tensor at fault before any of its weights are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..errors import CheckpointError, PluginError
from .checkpoint import BLOCKS, Checkpoint, Tensor
from .gguf_names import find_gguf
from .operations import KV, Experts, Memory, Operations, Rows, Value, W
from .plan import Attr, Bank, Node, Plan, State, Weight
from .quantised import find_tensor


class Scope:
    """The weights below a prefix: `g.scope("model.layers.0")["mlp.up_proj.weight"]`."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        self.graph, self.prefix = graph, prefix

    def __getitem__(self, name: str) -> W:
        return self.graph.w(f"{self.prefix}.{name}")

    def matrix(self, name: str, rows: int) -> W:
        """The weight `name`, which must have exactly `rows` rows."""
        return self.graph.w(f"{self.prefix}.{name}", rows=rows)

    def w(self, name: str, *shape: int) -> W:
        """The weight `name` in another shape: a matrix [channels, 1, taps] as [channels, taps], say."""
        return self.graph.weight(self.tensor(name).reshaped(*shape))

    def tensor(self, name: str) -> Tensor:
        """Where the weight lies, to take a part of it or some rows: `g.weight(w.tensor(name).rows(0, 64))`."""
        return self.graph.find(f"{self.prefix}.{name}")

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

        bank = f"{self.prefix}.{pattern.replace('.{e}', '')}"
        if bank in self.graph.banks:
            return self._stored(bank, count)

        def all_of(name: str) -> tuple[W, ...]:
            return tuple(self[f"{pattern.replace('{e}', str(e))}.{name}"] for e in range(count))

        return Experts(bank, all_of(gate), all_of(up), all_of(down))

    def fused_experts(self, gate_up: str, down: str, count: int, *, interleaved: bool = False) -> Experts:
        """Experts that lie in two tensors, one slice an expert: [count, 2*inner, width], first the rows of gate and then
        those of up, or by turns if `interleaved`, and [count, width, inner]."""
        if f"{self.prefix}.{gate_up}" in self.graph.banks:
            return self._stored(f"{self.prefix}.{gate_up}", count)
        both, last = self.tensor(gate_up), self.tensor(down)
        if len(both.shape) != 3 or both.shape[0] != count or both.shape[1] % 2:
            raise both.error(f"has shape {list(both.shape)}, [{count}, 2 * inner, width] is needed")
        if len(last.shape) != 3 or last.shape[0] != count:
            raise last.error(f"has shape {list(last.shape)}, [{count}, width, inner] is needed")
        rows = both.shape[1]
        gates, ups = ((0, rows, 2), (1, rows, 2)) if interleaved else ((0, rows // 2, 1), (rows // 2, rows, 1))
        parts = [both.part(e) for e in range(count)]
        gate, up = (tuple(self.graph.weight(part.rows(*which)) for part in parts) for which in (gates, ups))
        return Experts(f"{self.prefix}.{gate_up}", gate, up, tuple(self.graph.weight(last.part(e)) for e in range(count)))

    def _stored(self, name: str, count: int) -> Experts:
        """The experts of a bank that a converted model has in records."""
        bank = self.graph.banks[name]
        if len(bank.gate) != count:
            raise bank.gate[0].error(f"is of a bank of {len(bank.gate)} experts, {count} are needed")
        gate, up, down = (tuple(map(self.graph.weight, part)) for part in (bank.gate, bank.up, bank.down))
        return Experts(name, gate, up, down)


class Graph(Operations):
    """A forward pass under construction. `find` says where a weight lies: by default, under its name in the checkpoint,
    quantised or not, or in a GGUF file under what that is called there; a family that reads files with other names sets
    its own."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        gguf = checkpoint.format == "gguf"
        self.find: Callable[[str], Tensor] = partial(find_gguf, checkpoint, {}) if gguf else partial(find_tensor, checkpoint)
        self.banks = checkpoint.banks
        self._file = checkpoint.path
        self._tensors: dict[str, Tensor] = {}
        self._weights: dict[str, W] = {}
        self._widths: list[int] = []
        self._nodes: list[Node] = []
        self._banks: list[Bank] = []
        self._states: dict[object, State] = {}
        self._context = 0
        self._logits: Value | None = None
        self._hidden: Value | None = None

    # Weights and states

    def context(self, positions: int) -> None:
        """The most positions the model was made for."""
        self._context = positions

    def w(self, name: str, *, rows: int | None = None) -> W:
        """The weight called `name`, with exactly `rows` rows if given. Raises CheckpointError if it is missing or
        stored in a type that cannot be computed with."""
        known = self._weights.get(name) or self.weight(self.find(name), name)
        if rows is not None and known.shape[0] != rows:
            raise self._misfit("weight", known.name, f"has shape {list(known.shape)}, {rows} rows are needed")
        return known

    def weight(self, tensor: Tensor, name: str | None = None) -> W:
        """A tensor, or a view of one, as a weight. Raises CheckpointError if it can't be computed with."""
        name = name or tensor.name
        known = self._weights.get(name)
        if known is not None:
            return known
        if tensor.dtype not in BLOCKS:
            raise tensor.error(f"is stored as {tensor.dtype[:32]}; {', '.join(BLOCKS)} can be computed with")
        if len(tensor.shape) not in (1, 2) or 0 in tensor.shape:
            raise tensor.error(f"has shape {list(tensor.shape)}; a vector or a matrix is needed")
        known = self._weights[name] = W(len(self._weights), name, tensor.shape)
        self._tensors[name] = tensor
        return known

    def scope(self, prefix: str) -> Scope:
        """The weights below `prefix`."""
        return Scope(self, prefix)

    def kv(self, key: object, heads: int, k_dim: int, v_dim: int | None = None, *, window: int = 0) -> KV:
        """A state for keys of heads*k_dim and values of heads*v_dim numbers a position; with v_dim 0 a key's first numbers
        are its value. `window` n: no more than the last n positions are ever looked at. `key` (the layer, say) tells
        states apart; each is used by one operation."""
        v_dim = k_dim if v_dim is None else v_dim
        planes = (k_dim,) * heads + ((v_dim,) * heads if v_dim else ())
        return KV(self._state(key, State("rows", planes, window)), heads, k_dim, v_dim, window)

    def rows(self, key: object, width: int, *, window: int = 0, every: int = 1) -> Rows:
        """A state for a row of `width` numbers for each position, or for every `every` positions."""
        return Rows(self._state(key, State("rows", (width,), window, every)), width, window, every)

    def memory(self, key: object, size: int) -> Memory:
        """A state of `size` numbers that every position changes."""
        return Memory(self._state(key, State("recurrent", (size,))), size)

    def logits(self, x: Value) -> None:
        """The forward pass ends in x [rows, vocab]."""
        if self._logits is not None:
            raise PluginError("graph: logits is declared twice")
        if self._embedded is not None and x.width > self._embedded.shape[0]:
            reason = f"gives {x.width} logits for {self._embedded.shape[0]} tokens of {self._embedded.name}"
            raise self._misfit("logits", x.tensor, reason)
        self._logits = x

    def hidden(self, x: Value) -> Value:
        """x [rows, width] is what a draft head takes of this forward pass: the row behind the last norm, or the residual
        streams where there are several. In a head's own pass it is what the head can take in place of that, to draft a token
        further. Returns x."""
        if self._hidden is not None:
            raise PluginError("graph: hidden is declared twice")
        self._hidden = x
        return x

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
            hidden=-1 if self._hidden is None else self._hidden.index,
        )

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Where each weight of the plan lies."""
        return self._tensors

    # What the operations build on

    def _state(self, key: object, state: State) -> int:
        if key in self._states:
            raise PluginError(f"graph: state {key!r} is declared twice")
        self._states[key] = state
        return len(self._states) - 1

    def _bank(self, bank: Bank) -> int:
        if bank not in self._banks:  # layers that run several times use one
            self._banks.append(bank)
        return self._banks.index(bank)

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
        """Add a node; returns the index of its value, -1 for an operation without one (width 0)."""
        for x in inputs:
            if x is not None and x.graph is not self:
                raise PluginError(f"graph: {op} is given a value of another graph")
        out = -1
        if width:
            out = len(self._widths)
            self._widths.append(width)
        given = tuple(-1 if x is None else x.index for x in inputs)
        named = tuple(-1 if w is None else w.index for w in weights)
        self._nodes.append(Node(op, given, out, named, bank, states, attrs))
        return out

    def _misfit(self, op: str, name: str, reason: str) -> CheckpointError:
        tensor = self._tensors.get(name)
        file = self._file if tensor is None else tensor.file
        return CheckpointError(f"{op}: {reason}", file=file, tensor=name if tensor is None else tensor.name)
