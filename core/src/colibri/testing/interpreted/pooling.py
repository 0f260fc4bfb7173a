"""Rows that stand for runs of positions, and the choice among rows."""

from __future__ import annotations

import numpy as np

from ...compute.plan import Node
from .norms import rms
from .step import Matrix, Operation, Step, attrs, softmax, turned


def _pool(step: Step, node: Node, x: Matrix, gate: Matrix | None = None) -> None:
    how = attrs(node)
    every, ape, norm = how["every"], step.weight(node, 0), step.weight(node, 1)
    for i, row in enumerate(step.rows):
        raw, pooled = step.state(node, 0, row), step.state(node, 1, row)
        raw[row.position] = x[i] if gate is None else np.concatenate([x[i], gate[i]])
        if (row.position + 1) % every == 0:
            run = row.position // every
            made = _pooled(raw[: row.position + 1], run, x.shape[1], how, ape)
            if norm is not None:
                made = rms(made, norm, step.precision(how["eps"]), unit=how["unit"])
            if "inv_freq" in how:
                made = turned(made.reshape(1, 1, -1), np.array([run * every]), how).reshape(-1)
            pooled[run] = made


def _pooled(raw: Matrix, run: int, width: int, how: dict[str, int], ape: Matrix | None) -> Matrix:
    """The sum of a complete run, before norm and rope. `raw` [positions, x or x | gate] ends with it."""
    every = how["every"]
    last = raw[run * every :]
    if raw.shape[1] == width:
        return last.mean(0)
    x, gates = last[:, :width], last[:, width:] + (0 if ape is None else ape)
    if how["overlap"]:
        half = width // 2
        x, gates = x[:, half:], gates[:, half:]
        if run > 0:
            before = raw[(run - 1) * every : run * every]
            x = np.vstack([before[:, :half], x])
            gates = np.vstack([before[:, width:][:, :half] + (0 if ape is None else ape[:, :half]), gates])
    return (softmax(gates.T).T * x).sum(0)


def _select(step: Step, node: Node, q: Matrix, k: Matrix | None = None, weights: Matrix | None = None) -> Matrix:
    how = attrs(node)
    heads, every = how["heads"], how["every"]
    result = np.full((len(step.rows), step.plan.widths[node.out]), -1, step.precision)
    for i, row in enumerate(step.rows):
        store = step.state(node, 0, row)
        if k is not None:
            store[row.position] = k[i]
        complete = (row.position + 1) // every
        scores = np.zeros(complete)
        for h, query in enumerate(q[i].reshape(heads, -1)):
            products = (store[:complete] * query).sum(1)  # not @, which may sum equal rows in different orders
            scores += (1 if weights is None else weights[i, h]) * np.maximum(0, products * step.precision(how["scale"]))
        chosen = np.sort(np.argsort(-scores, kind="stable")[: how["budget"]])  # stable: ties go to the lower row
        if how["expand"]:
            runs = (chosen[:, None] * every + np.arange(every)).reshape(-1)
            chosen = np.concatenate([runs, np.arange(complete * every, row.position + 1)])
        result[i, : len(chosen)] = chosen
    return result


OPERATIONS: dict[str, Operation] = {"pool": _pool, "select": _select}
