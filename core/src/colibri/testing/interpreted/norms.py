"""Rows, or runs of them, brought to a size."""

from __future__ import annotations

import numpy as np

from ...compute.plan import Node
from .step import Matrix, Operation, Step, attrs, runs, softmax


def rms(x: Matrix, weight: Matrix | None, eps: Matrix, *, unit: bool = False) -> Matrix:
    """Over the last dimension."""
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    if weight is None:
        return normed
    return normed * (1 + weight if unit else weight)


def _rms_norm(step: Step, node: Node, x: Matrix) -> Matrix:
    how = attrs(node)
    groups = runs(x, how["group"])
    weight = step.weight(node, 0)
    if weight is not None and len(weight) == x.shape[1]:
        weight = weight.reshape(groups.shape[1:])
    return rms(groups, weight, step.precision(how["eps"]), unit=how.get("unit", False)).reshape(x.shape)


def _layer_norm(step: Step, node: Node, x: Matrix) -> Matrix:
    weight, bias = step.weight(node, 0), step.weight(node, 1)
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return weight * centred / np.sqrt(variance + step.precision(attrs(node)["eps"])) + bias


def _l2_clip(step: Step, node: Node, x: Matrix) -> Matrix:
    how = attrs(node)
    groups = runs(x, how["group"])
    lengths = np.sqrt((groups**2).sum(-1, keepdims=True))
    limit, eps = step.precision(how["limit"]), step.precision(1e-6)
    return (groups * np.minimum(1, limit / (lengths + eps))).reshape(x.shape)


def _softmax(step: Step, node: Node, x: Matrix) -> Matrix:
    return softmax(runs(x, attrs(node)["group"])).reshape(x.shape)


OPERATIONS: dict[str, Operation] = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "l2_clip": _l2_clip,
    "softmax": _softmax,
}
