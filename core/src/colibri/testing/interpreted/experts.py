"""Mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...compute.plan import Node
from .elementwise import glu
from .step import Matrix, Operation, Step, attrs, sigmoid, softmax

_SCORES: dict[str, Callable[[Matrix], Matrix]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "root_softplus": lambda x: np.sqrt(np.logaddexp(0, x)),
}

_PLAIN: dict[str, Any] = {"score": "softmax", "groups": 1, "top_groups": 1, "normalise": False, "factor": 1.0, "shared": 0}


def _route(step: Step, node: Node, x: Matrix) -> Matrix:
    how = _PLAIN | attrs(node)
    top_k, shared = how["top_k"], how["shared"]
    scores = _SCORES[how["score"]](x)
    table = step.weight(node, 1)
    if table is None:
        chosen = _best(_ranks(step, node, scores[:, : scores.shape[1] - shared]), top_k)
    else:
        chosen = table[[row.token for row in step.rows]].astype(int)
    always = np.arange(scores.shape[1] - shared, scores.shape[1])
    weights = np.take_along_axis(scores, np.hstack([chosen, np.tile(always, (len(x), 1))]), -1)
    if how["normalise"]:
        weights = weights / (weights.sum(-1, keepdims=True) + (0 if how["score"] == "softmax" else 1e-20))
    return np.hstack([chosen.astype(step.precision), weights * step.precision(how["factor"])])


def _ranks(step: Step, node: Node, scores: Matrix) -> Matrix:
    """What experts are chosen by: -inf for those of groups that are left out."""
    how = _PLAIN | attrs(node)
    groups, bias = how["groups"], step.weight(node, 0)
    ranks = scores if bias is None else scores + bias
    grouped = ranks.reshape(len(ranks), groups, -1)
    kept = _best(np.sort(grouped, -1)[..., -2:].sum(-1), how["top_groups"])
    left_out = (np.arange(groups)[:, None] != kept[:, None, :]).all(-1)  # [rows, groups]
    return np.where(left_out[..., None], -np.inf, grouped).reshape(ranks.shape)


def _best(ranks: Matrix, count: int) -> Matrix:
    return np.argsort(-ranks, axis=-1, kind="stable")[:, :count]  # stable: ties go to the lower index


def _experts(step: Step, node: Node, x: Matrix, routes: Matrix) -> Matrix:
    bank, how = step.plan.banks[node.bank], attrs(node)
    top_k = dict(_maker(step, node.inputs[1]).attrs)["top_k"]
    result = np.zeros_like(x)
    for i, route in enumerate(routes):
        for expert, share in zip(route[:top_k].astype(int), route[top_k : 2 * top_k], strict=True):
            gate, up, down = (step.values(kind[expert]) for kind in (bank.gate, bank.up, bank.down))
            result[i] += share * (down @ glu(gate @ x[i], up @ x[i], how))
    return result


def _maker(step: Step, value: int) -> Node:
    return next(node for node in step.plan.nodes if node.out == value)


OPERATIONS: dict[str, Operation] = {"route": _route, "experts": _experts}
