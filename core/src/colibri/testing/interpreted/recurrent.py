"""Convolutions over the last rows, and memories that every row changes."""

from __future__ import annotations

import numpy as np

from ...compute.plan import Node
from .step import Matrix, Operation, Step, attrs, sigmoid


def _conv(step: Step, node: Node, x: Matrix, taps: Matrix | None = None) -> Matrix:
    how = attrs(node)
    kernel, dilation = how["kernel"], how["dilation"]
    weight = step.weight(node, 0)
    assert weight is not None
    weight = weight if how["lags"] else weight.T  # [kernel, width]
    result = np.zeros_like(x)
    for i, row in enumerate(step.rows):
        past = step.state(node, 0, row)
        past[row.position] = x[i]
        own = weight
        if taps is not None:  # [runs, kernel], each for a run of columns
            runs = taps[i].reshape(-1, kernel)
            own = weight + runs.repeat(x.shape[1] // len(runs), axis=0).T
        own = own if how["lags"] else own[::-1]
        for lag in range(kernel):
            if lag * dilation <= row.position:
                result[i] += own[lag] * past[row.position - lag * dilation]
    return result


def _delta(step: Step, node: Node, q: Matrix, k: Matrix, v: Matrix, decay: Matrix, beta: Matrix) -> Matrix:
    heads, key_heads = attrs(node)["heads"], attrs(node)["key_heads"]
    dk = k.shape[1] // key_heads
    q, k = (_unit(x.reshape(len(x), key_heads, dk)).repeat(heads // key_heads, axis=1) for x in (q, k))
    q = q / np.sqrt(dk)
    v = v.reshape(len(v), heads, -1)
    decay = np.exp(decay.reshape(len(v), heads, -1))  # [rows, heads, 1 or dk]
    result = []
    for i, row in enumerate(step.rows):
        before = step.state(node, 0, row)[row.position]
        memory = (before if row.position else 0 * before).reshape(heads, dk, -1) * decay[i][..., None]
        wrong = beta[i][:, None] * (v[i] - np.einsum("hkv,hk->hv", memory, k[i]))
        memory = memory + k[i][:, :, None] * wrong[:, None, :]
        step.state(node, 0, row)[row.position + 1] = memory.reshape(-1)
        result.append(np.einsum("hkv,hk->hv", memory, q[i]).reshape(-1))
    return np.stack(result)


def _unit(x: Matrix) -> Matrix:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def _decay(step: Step, node: Node, x: Matrix) -> Matrix:
    heads, bound = attrs(node)["heads"], attrs(node)["bound"]
    a, bias = step.weight(node, 0), step.weight(node, 1)
    assert a is not None
    assert bias is not None
    rates = (np.exp(a) if attrs(node)["log"] else -a)[:heads].repeat(x.shape[1] // heads)
    return bound * sigmoid(rates * (x + bias)) if bound else -rates * np.logaddexp(0, x + bias)


OPERATIONS: dict[str, Operation] = {"conv": _conv, "delta": _delta, "decay": _decay}
