"""One operation of the interpreter by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from colibri.compute.plan import Node, Plan
from colibri.compute.runtime import Row
from colibri.testing.interpreted import OPERATIONS
from colibri.testing.interpreted.step import Step


def compute(
    op: str, *inputs: Any, out: int = 0, weights: Sequence[Any] = (), positions: Sequence[int] = (), attrs: dict[str, Any]
) -> list[list[float]]:
    """What `op` makes of inputs [rows][width] and weights (None: absent). `out` is the width of its value, where that is not
    the first input's."""
    given = [None if x is None else np.array(x, float) for x in inputs]
    widths = (out or given[0].shape[1], *(0 if x is None else x.shape[1] for x in given))
    present = [np.array(w, float) for w in weights if w is not None]
    places = iter(range(len(present)))
    indices = tuple(-1 if w is None else next(places) for w in weights)
    node = Node(op, tuple(-1 if x is None else i + 1 for i, x in enumerate(given)), 0, indices, attrs=attrs)
    plan = Plan(vocab=1, context=1, widths=widths, nodes=(node,), weights=(), banks=(), states=(), logits=0)
    rows = [Row(0, 0, position) for position in positions or range(len(given[0]))]
    made = OPERATIONS[op](Step(plan, rows, present, [], np.float64), node, *given)
    assert made.shape == (len(rows), widths[0])
    return made.tolist()
