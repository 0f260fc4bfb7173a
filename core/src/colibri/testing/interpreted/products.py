"""Products with weights, and rotations."""

from __future__ import annotations

import numpy as np

from ...compute.plan import Node
from .step import Matrix, Operation, Step, attrs, runs, turned


def _linear(step: Step, node: Node, x: Matrix) -> Matrix:
    weight, bias = step.weight(node, 0), step.weight(node, 1)
    assert weight is not None
    return x @ weight.T if bias is None else x @ weight.T + bias


def _linear_groups(step: Step, node: Node, x: Matrix) -> Matrix:
    weight, how = step.weight(node, 0), attrs(node)
    assert weight is not None
    groups, transposed = how["groups"], how["transposed"]
    rows = (x.shape[1] if transposed else step.plan.widths[node.out]) // groups
    made = []
    for i, run in enumerate(np.hsplit(x, groups)):
        first = how["first"] + i * how["stride"]
        own = weight[first : first + rows]
        made.append(run @ own if transposed else run @ own.T)
    return np.hstack(made)


def _rope(step: Step, node: Node, x: Matrix) -> Matrix:
    how = attrs(node)
    sign = -1.0 if how.get("inverse") else 1.0
    return turned(runs(x, how["head_dim"]), step.positions, how, sign=sign).reshape(x.shape)


OPERATIONS: dict[str, Operation] = {"linear": _linear, "linear_groups": _linear_groups, "rope": _rope}
