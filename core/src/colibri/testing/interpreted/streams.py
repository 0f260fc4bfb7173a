"""Rows that hold several streams: how a block reads from them and writes to them."""

from __future__ import annotations

import numpy as np

from ...compute.plan import Node
from .step import Matrix, Operation, Step, attrs, sigmoid, softmax


def _sinkhorn(step: Step, node: Node, x: Matrix) -> Matrix:
    how, base, scale = attrs(node), step.weight(node, 0), step.weight(node, 1)
    assert base is not None
    assert scale is not None
    n, eps = how["n"], step.precision(how["eps"])
    pre, post, joint = slice(n), slice(n, 2 * n), slice(2 * n, None)
    read = sigmoid(x[:, pre] * scale[0] + base[pre]) + eps
    written = 2 * sigmoid(x[:, post] * scale[1] + base[post])
    kept = softmax((x[:, joint] * scale[2] + base[joint]).reshape(len(x), n, n)) + eps
    kept = kept / (kept.sum(1, keepdims=True) + eps)
    for _ in range(how["iterations"] - 1):
        kept = kept / (kept.sum(2, keepdims=True) + eps)
        kept = kept / (kept.sum(1, keepdims=True) + eps)
    return np.hstack([read, written, kept.reshape(len(x), -1)])


def _spread(step: Step, node: Node, x: Matrix, y: Matrix, coefficients: Matrix) -> Matrix:
    n = attrs(node)["n"]
    post, joint = coefficients[:, n : 2 * n], coefficients[:, 2 * n :].reshape(len(x), n, n)
    streams = x.reshape(len(x), n, -1)
    kept = np.einsum("tjk,tjd->tkd", joint, streams)
    return (post[:, :, None] * y[:, None, :] + kept).reshape(x.shape)


OPERATIONS: dict[str, Operation] = {"sinkhorn": _sinkhorn, "spread": _spread}
