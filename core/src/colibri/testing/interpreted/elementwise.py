"""One value, or one pair of values, at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...compute.plan import Node
from .step import Matrix, Operation, Step, attrs, sigmoid, silu


def glu(gate: Matrix, up: Matrix, how: dict[str, Any]) -> Matrix:
    """gate and up joined, as a node's attributes say."""
    if how.get("kind", "silu") == "situ":
        beta, linear = how["beta"], how["linear_beta"]
        return beta * np.tanh(gate / beta) * sigmoid(gate) * linear * np.tanh(up / linear)
    if limit := how.get("limit", 0):
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return silu(gate) * up


def _met(a: Matrix, b: Matrix) -> Matrix:
    """b with each of its values as often as a run of a has values."""
    return b.repeat(a.shape[1] // b.shape[1], axis=1)


def _add(step: Step, node: Node, a: Matrix, b: Matrix) -> Matrix:
    return a + _met(a, b)


def _mul(step: Step, node: Node, a: Matrix, b: Matrix) -> Matrix:
    return a * _met(a, b)


def _scale(step: Step, node: Node, x: Matrix) -> Matrix:
    how = attrs(node)
    return x * step.precision(how["factor"]) + step.precision(how.get("shift", 0))


def _clamp(step: Step, node: Node, x: Matrix) -> Matrix:
    how = attrs(node)
    return np.clip(x, step.precision(how["low"]), step.precision(how["high"]))


def _tiled(step: Step, node: Node, x: Matrix) -> Matrix:
    """The node's weight, as often as it fits into a row."""
    weight = step.weight(node, 0)
    assert weight is not None
    return np.tile(weight, x.shape[1] // len(weight))


def _add_weight(step: Step, node: Node, x: Matrix) -> Matrix:
    return x + _tiled(step, node, x)


def _mul_weight(step: Step, node: Node, x: Matrix) -> Matrix:
    return x * _tiled(step, node, x)


_ACTIVATIONS: dict[str, Callable[[Matrix, Any], Matrix]] = {
    "silu": lambda x, limit: silu(x),
    "sigmoid": lambda x, limit: sigmoid(x),
    "softplus": lambda x, limit: np.logaddexp(x, 0),
    "tanh": lambda x, limit: np.tanh(x),
    "softcap": lambda x, limit: limit * np.tanh(x / limit),
    "root": lambda x, limit: np.sign(x) * np.sqrt(np.maximum(np.abs(x), limit)),
}


def _activate(step: Step, node: Node, x: Matrix) -> Matrix:
    how = attrs(node)
    return _ACTIVATIONS[how["kind"]](x, step.precision(how.get("limit", 0)))


def _log_scale(step: Step, node: Node, x: Matrix) -> Matrix:
    how = attrs(node)
    lengths = (step.positions + 1) / how["floor"]
    return x * (1 + how["alpha"] * np.log(np.maximum(lengths, 1)))[:, None].astype(step.precision)


def _glu(step: Step, node: Node, gate: Matrix, up: Matrix) -> Matrix:
    return glu(gate, up, attrs(node))


OPERATIONS: dict[str, Operation] = {
    "add": _add,
    "mul": _mul,
    "scale": _scale,
    "clamp": _clamp,
    "add_weight": _add_weight,
    "mul_weight": _mul_weight,
    "activate": _activate,
    "log_scale": _log_scale,
    "glu": _glu,
}
