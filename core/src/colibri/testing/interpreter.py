"""A runtime in plain numpy: one line of mathematics an operation, no blocking, no threads, no integer arithmetic.

It is the second opinion on the native runtime and on every family's graph. It implements compute.runtime.Runtime.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compute.checkpoint import Tensor
from ..compute.plan import Node, Plan
from ..compute.runtime import Row
from ..family import Sampling
from .storage import dequantise

#: A numpy array [rows, width]; numpy's own types would say nothing about shapes.
Matrix = Any


class InterpretedRuntime:
    """A plan with its weights as `precision` numbers. Activations are never quantised, so results differ from the native
    runtime's by its rounding on block types, and by float32 rounding elsewhere."""

    def __init__(
        self,
        plan: Plan,
        tensors: Mapping[str, Tensor],
        *,
        slots: int = 1,
        context: int = 0,
        max_rows: int = 256,
        precision: type[np.floating] = np.float64,
    ) -> None:
        self.plan, self.slots, self.max_rows, self.precision = plan, slots, max_rows, precision
        self.context = context or plan.context
        self.vocab = plan.vocab
        self.values: dict[int, Matrix] = {}  # every value of the last step, for whoever looks for a difference
        self._weights = [_read(tensors[weight.name]).astype(precision) for weight in plan.weights]
        self._states = [
            [np.zeros((self.context, state.k_width + state.v_width), precision) for _ in range(slots)]
            for state in plan.states
        ]
        self._lengths = [0] * slots
        self._logits: list[Matrix] = []

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Run the rows; a token for each row with `sampling`. Raises ValueError for rows that break the contract."""
        self._check(rows)
        self.values = {}
        for node in self.plan.nodes:
            inputs = [self.values[index] for index in node.inputs]
            self.values[node.out] = _OPERATIONS[node.op](self, node, rows, *inputs)
        for row in rows:
            self._lengths[row.slot] = row.position + 1
        logits = self.values[self.plan.logits]
        self._logits = [logits[i] for i, row in enumerate(rows) if row.sampling is not None or row.logits]
        return [_pick(logits[i], row.sampling, row.draw) for i, row in enumerate(rows) if row.sampling is not None]

    def logits(self, index: int) -> memoryview:
        """float32 logits [vocab] of the index-th row of the last step that had `sampling` or `logits`."""
        return memoryview(self._logits[index].astype(np.float32))

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of a slot to another."""
        if not 0 <= length <= self._lengths[source]:
            raise ValueError(f"slot {source} holds {self._lengths[source]} positions, not {length}")
        for slots in self._states:
            slots[target][:length] = slots[source][:length]
        self._lengths[target] = length

    def describe(self) -> str:
        """What it computes with, in one line."""
        return f"numpy interpreter, {np.dtype(self.precision).name}"

    def _check(self, rows: Sequence[Row]) -> None:
        if not 1 <= len(rows) <= self.max_rows:
            raise ValueError(f"a step takes 1 to {self.max_rows} rows, not {len(rows)}")
        seen: dict[int, int] = {}
        for row in rows:
            if not 0 <= row.slot < self.slots or not 0 <= row.token < self.vocab or not 0 <= row.position < self.context:
                raise ValueError(f"{row} names no slot, token or position of this model")
            if row.slot in seen and row.position != seen[row.slot]:
                raise ValueError(f"the rows of slot {row.slot} do not stand at consecutive positions")
            if row.position > seen.get(row.slot, self._lengths[row.slot]):
                raise ValueError(f"slot {row.slot} holds {self._lengths[row.slot]} positions, none before {row.position}")
            seen[row.slot] = row.position + 1

    def _embed(self, node: Node, rows: Sequence[Row]) -> Matrix:
        return self._weights[node.weights[0]][[row.token for row in rows]]

    def _rms_norm(self, node: Node, rows: Sequence[Row], x: Matrix) -> Matrix:
        weight = self._weights[node.weights[0]]
        groups = x.reshape(len(x), -1, len(weight))
        mean = (groups**2).mean(-1, keepdims=True)
        return (weight * groups / np.sqrt(mean + self.precision(_attrs(node)["eps"]))).reshape(x.shape)

    def _linear(self, node: Node, rows: Sequence[Row], x: Matrix) -> Matrix:
        product = x @ self._weights[node.weights[0]].T
        return product + self._weights[node.weights[1]] if len(node.weights) > 1 else product

    def _add(self, node: Node, rows: Sequence[Row], a: Matrix, b: Matrix) -> Matrix:
        return a + b

    def _mul(self, node: Node, rows: Sequence[Row], a: Matrix, b: Matrix) -> Matrix:
        return a * b

    def _scale(self, node: Node, rows: Sequence[Row], x: Matrix) -> Matrix:
        return x * self.precision(_attrs(node)["factor"])

    def _clamp(self, node: Node, rows: Sequence[Row], x: Matrix) -> Matrix:
        return np.clip(x, self.precision(_attrs(node)["low"]), self.precision(_attrs(node)["high"]))

    def _swiglu(self, node: Node, rows: Sequence[Row], gate: Matrix, up: Matrix) -> Matrix:
        return _silu(gate) * up

    def _rope(self, node: Node, rows: Sequence[Row], x: Matrix) -> Matrix:
        attrs = _attrs(node)
        inv_freq = np.array(attrs["inv_freq"])
        angles = np.array([row.position for row in rows])[:, None] * inv_freq  # [rows, n]
        cos, sin = (attrs["factor"] * f(angles)[:, None, :] for f in (np.cos, np.sin))
        heads = x.reshape(len(x), attrs["heads"], attrs["head_dim"]).copy()
        n, first = len(inv_freq), attrs["offset"]
        if attrs["interleaved"]:
            one, two = slice(first, first + 2 * n, 2), slice(first + 1, first + 2 * n, 2)
        else:
            one, two = slice(first, first + n), slice(first + n, first + 2 * n)
        a, b = heads[..., one].copy(), heads[..., two].copy()
        heads[..., one] = a * cos - b * sin
        heads[..., two] = b * cos + a * sin
        return heads.reshape(x.shape)

    def _attention(self, node: Node, rows: Sequence[Row], q: Matrix, k: Matrix, v: Matrix) -> Matrix:
        attrs = _attrs(node)
        heads, kv_heads, window = attrs["heads"], attrs["kv_heads"], attrs["window"]
        k_width = self.plan.states[node.state].k_width
        result = []
        for row, query, key, value in zip(rows, q, k, v, strict=True):
            store = self._states[node.state][row.slot]
            store[row.position] = np.concatenate([key, value])
            first = max(0, row.position + 1 - window) if window else 0
            seen = store[first : row.position + 1]
            keys = seen[:, :k_width].reshape(len(seen), kv_heads, -1).repeat(heads // kv_heads, axis=1)
            values = seen[:, k_width:].reshape(len(seen), kv_heads, -1).repeat(heads // kv_heads, axis=1)
            scores = np.einsum("hd,thd->ht", query.reshape(heads, -1), keys) * self.precision(attrs["scale"])
            result.append(np.einsum("ht,thd->hd", _softmax(scores), values).reshape(-1))
        return np.stack(result)

    def _route(self, node: Node, rows: Sequence[Row], scores: Matrix) -> Matrix:
        attrs = _attrs(node)
        if attrs["score"] != "softmax":
            raise ValueError(f"route: unknown score {attrs['score']!r}")
        shares = _softmax(scores)
        chosen = np.argsort(-shares, axis=-1, kind="stable")[:, : attrs["top_k"]]  # stable: ties go to the lower index
        weights = np.take_along_axis(shares, chosen, -1)
        if attrs["normalise"]:
            weights = weights / weights.sum(-1, keepdims=True)
        return np.hstack([chosen.astype(self.precision), weights * self.precision(attrs["factor"])])

    def _experts(self, node: Node, rows: Sequence[Row], x: Matrix, routes: Matrix) -> Matrix:
        bank = self.plan.banks[node.bank]
        top_k = routes.shape[1] // 2
        result = np.zeros_like(x)
        for i, route in enumerate(routes):
            for expert, share in zip(route[:top_k].astype(int), route[top_k:], strict=True):
                gate, up, down = (self._weights[kind[expert]] for kind in (bank.gate, bank.up, bank.down))
                result[i] += share * (down @ (_silu(gate @ x[i]) * (up @ x[i])))
        return result


_OPERATIONS: dict[str, Callable[..., Matrix]] = {
    "embed": InterpretedRuntime._embed,
    "rms_norm": InterpretedRuntime._rms_norm,
    "linear": InterpretedRuntime._linear,
    "add": InterpretedRuntime._add,
    "mul": InterpretedRuntime._mul,
    "scale": InterpretedRuntime._scale,
    "clamp": InterpretedRuntime._clamp,
    "swiglu": InterpretedRuntime._swiglu,
    "rope": InterpretedRuntime._rope,
    "attention": InterpretedRuntime._attention,
    "route": InterpretedRuntime._route,
    "experts": InterpretedRuntime._experts,
}


def _attrs(node: Node) -> dict[str, Any]:
    return dict(node.attrs)


def _read(tensor: Tensor) -> NDArray[np.float64]:
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.offset)
        return dequantise(tensor.dtype, stream.read(tensor.nbytes), tensor.shape)


def _silu(x: Matrix) -> Matrix:
    return x * _sigmoid(x)


def _sigmoid(x: Matrix) -> Matrix:
    e = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _softmax(x: Matrix) -> Matrix:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _pick(logits: Matrix, sampling: Sampling, draw: int) -> int:
    """A token: the best one, or one drawn by (seed, draw). The distribution is the native sampler's, its dice are not."""
    if sampling.temperature <= 0:
        return int(logits.argmax())
    shares = _softmax(logits.astype(np.float64) / sampling.temperature)
    order = np.argsort(-shares, kind="stable")
    kept = shares[order]
    if 0 < sampling.top_k < len(kept):
        kept[sampling.top_k :] = 0
    before = np.cumsum(kept) - kept
    kept[1:][before[1:] >= sampling.top_p * kept.sum()] = 0
    kept[kept < sampling.min_p * kept[0]] = 0
    seed = secrets.randbits(63) if sampling.seed is None else sampling.seed % (1 << 64)
    ticket = np.random.default_rng([seed, draw]).random() * math.fsum(kept)
    chosen = min(int(np.searchsorted(np.cumsum(kept), ticket, side="right")), int(np.count_nonzero(kept)) - 1)
    return int(order[chosen])
