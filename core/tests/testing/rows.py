"""Operations of the interpreter on rows that a test writes down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colibri.compute.checkpoint import open_checkpoint
from colibri.compute.plan import Node, Plan, State, Weight
from colibri.compute.runtime import Row
from colibri.testing.checkpoints import write_checkpoint
from colibri.testing.interpreter import InterpretedRuntime


class Rows:
    """A plan in the making, where position i of a slot holds token i and each value's row i is given."""

    def __init__(self, count: int, *states: State) -> None:
        self.count, self.states = count, states
        self.weights: list[Any] = []
        self.widths: list[int] = []
        self.nodes: list[Node] = []

    def value(self, rows: Any) -> int:
        """A value of these rows; numbers are rows of one."""
        table = np.array(rows, np.float64).reshape(self.count, -1)
        return self.node("embed", [], table.shape[1], [self.weight(table)])

    def weight(self, values: Any) -> int:
        self.weights.append(np.array(values, np.float32))
        return len(self.weights) - 1

    def node(
        self, op: str, inputs: Sequence[int], width: int, weights: Sequence[int] = (), states: Sequence[int] = (), **how: Any
    ) -> int:
        """Add an operation; returns the value it makes, -1 where it makes none (width 0)."""
        out = len(self.widths) if width else -1
        self.widths += [width] if width else []
        self.nodes.append(Node(op, tuple(inputs), out, tuple(weights), states=tuple(states), attrs=how))
        return out

    def run(self, value: int, folder: Path, *, chunk: int = 0) -> Any:
        """The rows [count, width] of a value, computed `chunk` (0: all) at a time."""
        arrays = {f"w{i}": array for i, array in enumerate(self.weights)}
        tensors = open_checkpoint(write_checkpoint(folder, {}, arrays)).tensors
        weights = tuple(Weight(name, array.shape) for name, array in arrays.items())
        made = tuple(self.widths), tuple(self.nodes), weights
        plan = Plan(self.count, self.count, *made, banks=(), states=self.states, logits=value)
        runtime = InterpretedRuntime(plan, tensors)
        found = []
        for start in range(0, self.count, chunk or self.count):
            runtime.step([Row(i, 0, i) for i in range(start, min(start + (chunk or self.count), self.count))])
            found.append(runtime.values[value])
        return np.vstack(found)
