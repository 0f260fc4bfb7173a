"""What an operation sees of a step, and the functions that several of them need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compute.plan import Node, Plan, State
from ...compute.runtime import Row

#: A numpy array [rows, width]; numpy's own types would say nothing about shapes.
Matrix = Any

#: An operation: the step, the node, and its inputs, None for one that is absent.
Operation = Callable[..., Matrix]


class Step:
    """The rows of a step, and what they meet."""

    def __init__(
        self,
        plan: Plan,
        rows: Sequence[Row],
        weights: Sequence[Matrix],
        states: Sequence[Sequence[Matrix]],
        precision: type[np.floating],
    ) -> None:
        self.plan, self.rows, self.precision = plan, rows, precision
        self._weights, self._states = weights, states

    def weight(self, node: Node, index: int) -> Matrix | None:
        """The values of a node's weight; None where it is absent."""
        return self._weights[node.weights[index]] if index < len(node.weights) and node.weights[index] >= 0 else None

    def values(self, index: int) -> Matrix:
        """The values of a weight of the plan."""
        return self._weights[index]

    def kind(self, node: Node, index: int) -> State:
        """What a node's state is."""
        return self.plan.states[node.states[index]]

    def state(self, node: Node, index: int, row: Row) -> Matrix:
        """The rows that a node's state keeps for the row's slot."""
        return self._states[node.states[index]][row.slot]

    @property
    def positions(self) -> Matrix:
        """The rows' positions."""
        return np.array([row.position for row in self.rows])


def attrs(node: Node) -> dict[str, Any]:
    """A node's attributes."""
    return dict(node.attrs)


def runs(x: Matrix, group: int) -> Matrix:
    """[rows, width] as [rows, runs, group]; group 0 is the whole row."""
    return x.reshape(len(x), -1, group or x.shape[-1])


def silu(x: Matrix) -> Matrix:
    return x * sigmoid(x)


def sigmoid(x: Matrix) -> Matrix:
    e = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def softmax(x: Matrix) -> Matrix:
    """Over the last dimension."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned(heads: Matrix, positions: Matrix, turning: dict[str, Any], *, sign: float = 1.0) -> Matrix:
    """Heads [rows, heads, head_dim] rotated by positions [rows], as a node's attributes say."""
    inv_freq = np.array(turning["inv_freq"])
    angles = sign * positions[:, None] * inv_freq  # [rows, n]
    cos, sin = (turning["factor"] * f(angles)[:, None, :] for f in (np.cos, np.sin))
    heads = heads.copy()
    n, first = len(inv_freq), turning["offset"]
    if turning["interleaved"]:
        one, two = slice(first, first + 2 * n, 2), slice(first + 1, first + 2 * n, 2)
    else:
        one, two = slice(first, first + n), slice(first + n, first + 2 * n)
    a, b = heads[..., one].copy(), heads[..., two].copy()
    heads[..., one] = a * cos - b * sin
    heads[..., two] = b * cos + a * sin
    return heads
