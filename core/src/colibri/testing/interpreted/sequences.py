"""What a row makes of the rows before it."""

from __future__ import annotations

import numpy as np

from ...compute.plan import Node
from .step import Matrix, Operation, Step, attrs, softmax


def _attention(
    step: Step,
    node: Node,
    q: Matrix,
    k: Matrix,
    v: Matrix | None = None,
    select: Matrix | None = None,
    sink: Matrix | None = None,
    distance: Matrix | None = None,
) -> Matrix:
    how = attrs(node)
    heads, kv_heads, window = how["heads"], how["kv_heads"], how["window"]
    width, v_dim = k.shape[1] // kv_heads, step.plan.widths[node.out] // heads
    pooled = len(node.states) == 2
    sinks, profile = step.weight(node, 0), step.weight(node, 1)
    result = []
    for i, row in enumerate(step.rows):
        store = step.state(node, 0, row)
        store[row.position] = k[i] if v is None else np.concatenate([k[i], v[i]])
        first = max(0, row.position + 1 - window) if window else 0
        chosen = None if select is None else select[i][select[i] >= 0].astype(int)
        positions = np.arange(first, row.position + 1)
        if pooled:
            complete = np.arange((row.position + 1) // how["every"])
            seen = np.vstack([store[positions], step.state(node, 1, row)[complete if chosen is None else chosen]])
        else:
            positions = positions if chosen is None else np.intersect1d(positions, chosen)
            seen = store[positions]
        keys = seen[:, : kv_heads * width].reshape(len(seen), kv_heads, width)
        values = keys[..., :v_dim] if v is None else seen[:, kv_heads * width :].reshape(len(seen), kv_heads, v_dim)
        keys, values = (x.repeat(heads // kv_heads, axis=1) for x in (keys, values))
        scores = np.einsum("hd,thd->ht", q[i].reshape(heads, -1), keys) * step.precision(how["scale"])
        if distance is not None and profile is not None:
            back = row.position - positions
            near = back < profile.shape[1]
            scores[:, near] += distance[i].reshape(heads, -1) @ profile[:, back[near]]
        extra = sinks if sink is None else sink[i]
        if extra is not None:
            scores = np.hstack([scores, extra[:, None]])
        shares = softmax(scores)[:, : len(seen)]
        result.append(np.einsum("ht,thd->hd", shares, values).reshape(-1))
    return np.stack(result)


OPERATIONS: dict[str, Operation] = {"attention": _attention}
