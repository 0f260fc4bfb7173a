"""Small plans with weights made from a seed, for the native runtime and its second opinion to agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colibri.compute.checkpoint import Tensor
from colibri.compute.plan import Attr, Bank, Node, Plan, State, Weight
from colibri.compute.runtime import Runtime
from colibri.testing.drive import row_of
from colibri.testing.storage import quantise


class Draft:
    """A plan in the making and the file its weights lie in, one after another with `gap` stray bytes before each."""

    def __init__(self, *, vocab: int = 40, context: int = 64, seed: int = 0, gap: int = 0) -> None:
        self.vocab, self.context, self.gap = vocab, context, gap
        self.random = np.random.default_rng(seed)
        self.widths: list[int] = []
        self.nodes: list[Node] = []
        self.weights: list[Weight] = []
        self.banks: list[Bank] = []
        self.states: list[State] = []
        self.data = bytearray()
        self.places: list[tuple[str, int, int]] = []

    def weight(self, *shape: int, dtype: str = "f32") -> int:
        """A weight of normal numbers scaled to keep values near 1; returns its index."""
        values = self.random.standard_normal(shape)
        values = 1 + values / 8 if len(shape) == 1 else values * 1.5 / np.sqrt(shape[-1])
        return self.given(values.astype(np.float32), dtype)

    def given(self, values: Any, dtype: str = "f32") -> int:
        """A weight of these values; returns its index."""
        data = quantise(dtype, values)
        self.data += b"\xa5" * self.gap
        self.places.append((dtype, len(self.data), len(data)))
        self.data += data
        self.weights.append(Weight(f"w{len(self.weights)}", values.shape))
        return len(self.weights) - 1

    def node(
        self,
        op: str,
        inputs: Sequence[int],
        width: int,
        /,
        weights: Sequence[int] = (),
        bank: int = -1,
        states: Sequence[int] = (),
        **attrs: Attr,
    ) -> int:
        """Add an operation; returns the value it makes, -1 where it makes none (width 0)."""
        out = -1
        if width:
            out = len(self.widths)
            self.widths.append(width)
        self.nodes.append(Node(op, tuple(inputs), out, tuple(weights), bank, tuple(states), attrs))
        return out

    def embed(self, width: int, dtype: str = "f32") -> int:
        return self.node("embed", [], width, [self.weight(self.vocab, width, dtype=dtype)])

    def linear(self, x: int, out: int, *, bias: bool = False, dtype: str = "f32") -> int:
        weights = [self.weight(out, self.widths[x], dtype=dtype)] + [self.weight(out)] * bias
        return self.node("linear", [x], out, weights)

    def norm(self, x: int, group: int = 0) -> int:
        width = self.widths[x]
        return self.node("rms_norm", [x], width, [self.weight(group or width)], eps=1e-5, group=group)

    def state(self, *planes: int, window: int = 0, every: int = 1, recurrent: bool = False) -> int:
        self.states.append(State("recurrent" if recurrent else "rows", planes, window, every))
        return len(self.states) - 1

    def attend(
        self,
        x: int,
        *,
        heads: int,
        kv_heads: int,
        dim: int,
        v_dim: int = 0,
        window: int = 0,
        rope: Mapping[str, Any] | None = None,
        dtype: str = "f32",
    ) -> int:
        """A whole attention on x: q, k, v, rope, attention, output, residual."""
        v_dim = v_dim or dim
        q = self.linear(x, heads * dim, dtype=dtype)
        k = self.linear(x, kv_heads * dim, dtype=dtype)
        v = self.linear(x, kv_heads * v_dim, dtype=dtype)
        if rope is not None:
            q = self.node("rope", [q], heads * dim, heads=heads, head_dim=dim, **rope)
            k = self.node("rope", [k], kv_heads * dim, heads=kv_heads, head_dim=dim, **rope)
        state = self.state(*[dim] * kv_heads, *[v_dim] * kv_heads, window=window)
        attrs = {"heads": heads, "kv_heads": kv_heads, "scale": dim**-0.5, "window": window}
        a = self.node("attention", [q, k, v], heads * v_dim, states=[state], **attrs)
        return self.node("add", [x, self.linear(a, self.widths[x], dtype=dtype)], self.widths[x])

    def pool(
        self,
        x: int,
        width: int,
        every: int,
        *,
        gated: bool = True,
        overlap: bool = False,
        ape: bool = False,
        norm: bool = False,
        unit: bool = False,
        rope: Mapping[str, Any] | None = None,
    ) -> int:
        """Runs of x pooled to rows of `width`; returns the state that keeps those."""
        wide = width * (1 + overlap)
        inputs = [self.linear(x, wide), *([self.linear(x, wide)] if gated else [])]
        weights = [self.weight(every, wide) if ape else -1, self.weight(width) if norm else -1]
        states = [self.state(wide * len(inputs), window=every * (1 + overlap)), self.state(width, every=every)]
        attrs: dict[str, Any] = {"every": every, "overlap": overlap, "eps": 1e-5, "unit": unit, **(rope or {})}
        self.node("pool", inputs, 0, weights, states=states, **attrs)
        return states[1]

    def select(
        self,
        x: int,
        budget: int,
        *,
        heads: int = 2,
        width: int = 6,
        every: int = 1,
        expand: bool = False,
        weighted: bool = True,
        pooled: int = -1,
    ) -> int:
        """The best rows of an index of x, or of the state `pooled` by x's queries."""
        q = self.linear(x, heads * width)
        k = self.linear(x, width) if pooled < 0 else -1
        weights = self.linear(x, heads) if weighted else -1
        listed = budget * every + every - 1 if expand else budget
        state = self.state(width) if pooled < 0 else pooled
        attrs: dict[str, Any] = {"heads": heads, "scale": 0.4, "budget": budget, "every": every, "expand": expand}
        return self.node("select", [q, k, weights], listed, states=[state], **attrs)

    def mixture(
        self,
        x: int,
        *,
        experts: int,
        top_k: int,
        inner: int,
        normalise: bool = False,
        factor: float = 1.0,
        dtype: str = "f32",
        down: str = "",
    ) -> int:
        """Router, experts and residual on x."""
        width = self.widths[x]
        scores = self.linear(x, experts)
        routes = self.node("route", [scores], 2 * top_k, top_k=top_k, score="softmax", normalise=normalise, factor=factor)
        bank = self.bank(experts, width, inner, dtype=dtype, down=down)
        return self.node("add", [x, self.node("experts", [x, routes], width, bank=bank)], width)

    def bank(self, experts: int, width: int, inner: int, *, dtype: str = "f32", down: str = "") -> int:
        """The weights of some experts; returns the bank's index."""
        gate = tuple(self.weight(inner, width, dtype=dtype) for _ in range(experts))
        up = tuple(self.weight(inner, width, dtype=dtype) for _ in range(experts))
        downs = tuple(self.weight(width, inner, dtype=down or dtype) for _ in range(experts))
        self.banks.append(Bank(f"bank{len(self.banks)}", width, inner, gate, up, downs))
        return len(self.banks) - 1

    def plan(self, x: int, dtype: str = "f32") -> Plan:
        """The plan that ends in a head on x."""
        logits = self.linear(x, self.vocab, dtype=dtype)
        return Plan(
            vocab=self.vocab,
            context=self.context,
            widths=tuple(self.widths),
            nodes=tuple(self.nodes),
            weights=tuple(self.weights),
            banks=tuple(self.banks),
            states=tuple(self.states),
            logits=logits,
        )

    def tensors(self, folder: Path) -> dict[str, Tensor]:
        """Write the weights; where each lies."""
        file = folder / "weights.bin"
        file.write_bytes(self.data)
        return {
            weight.name: Tensor(weight.name, dtype, weight.shape, file, offset, size)
            for weight, (dtype, offset, size) in zip(self.weights, self.places, strict=True)
        }


def run(runtime: Runtime, tokens: Sequence[int | bytes], *, chunk: int, slot: int = 0, start: int = 0) -> list[bytes]:
    """The logits of every position of `tokens`, computed `chunk` rows at a time."""
    found: list[bytes] = []
    for at in range(0, len(tokens), chunk):
        part = tokens[at : at + chunk]
        runtime.step([row_of(token, slot, start + at + i) for i, token in enumerate(part)])
        found += [bytes(runtime.logits(i)) for i in range(len(part))]
    return found


def floats(rows: Sequence[bytes]) -> Any:
    """Rows of float32 bytes as an array [rows, vocab]."""
    return np.stack([np.frombuffer(row, np.float32) for row in rows])


def error(found: Sequence[bytes], expected: Sequence[bytes]) -> float:
    """The difference of two runs in relative norm, of the worst row."""
    a, b = floats(found).astype(np.float64), floats(expected).astype(np.float64)
    return float((np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)).max())
