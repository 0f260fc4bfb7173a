"""Values brought into place."""

from __future__ import annotations

import numpy as np

from ...compute.plan import Node
from .step import Matrix, Operation, Step, attrs, runs


def _embed(step: Step, node: Node) -> Matrix:
    table = step.weight(node, 0)
    assert table is not None
    made = table[[row.token for row in step.rows]]
    made[[i for i, row in enumerate(step.rows) if row.codes]] = 0
    return made


def _codes(step: Step, node: Node) -> Matrix:
    table, how = step.weight(node, 0), attrs(node)
    assert table is not None
    made = np.zeros((len(step.rows), table.shape[1]), step.precision)
    for i, row in enumerate(step.rows):
        for run, code in enumerate(np.frombuffer(row.codes, "<u2")):
            made[i] += table[run * how["stride"] + code]
    return made


def _given(step: Step, node: Node) -> Matrix:
    return np.stack([np.frombuffer(row.given, np.float32) for row in step.rows]).astype(step.precision)


def _slice(step: Step, node: Node, x: Matrix) -> Matrix:
    how = attrs(node)
    part = runs(x, how["group"])[:, :, how["offset"] : how["offset"] + how["width"]]
    return part.reshape(len(x), -1)


def _concat(step: Step, node: Node, *values: Matrix) -> Matrix:
    groups = attrs(node)["groups"]
    parts = [x.reshape(len(x), groups, -1) for x in values]
    return np.concatenate(parts, axis=2).reshape(len(values[0]), -1)


def _tile(step: Step, node: Node, x: Matrix) -> Matrix:
    return np.hstack([x] * attrs(node)["times"])


def _sum(step: Step, node: Node, x: Matrix) -> Matrix:
    return runs(x, attrs(node)["group"]).sum(-1)


def _mix(step: Step, node: Node, x: Matrix, shares: Matrix | None = None) -> Matrix:
    parts = x.reshape(len(x), attrs(node)["n"], -1)
    return parts.mean(1) if shares is None else (shares[:, :, None] * parts).sum(1)


OPERATIONS: dict[str, Operation] = {
    "embed": _embed,
    "codes": _codes,
    "given": _given,
    "slice": _slice,
    "concat": _concat,
    "tile": _tile,
    "sum": _sum,
    "mix": _mix,
}
