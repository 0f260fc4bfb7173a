"""A runtime in plain numpy: no blocking, no threads, no integer arithmetic. What each operation computes stands in
`interpreted/`, as close to plan.py's words as numpy allows.

It is the second opinion on the native runtime and on every family's graph. It implements compute.runtime.Runtime.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..compute.checkpoint import Tensor
from ..compute.identity import identity
from ..compute.plan import Plan
from ..compute.runtime import Phases, Row, Runtime
from ..family import Sampling
from .contents import BytesBlank, BytesImage
from .interpreted import OPERATIONS
from .interpreted.step import Matrix, Step, softmax
from .storage import values_of

if TYPE_CHECKING:
    from ..compute.experts import Experts


class InterpretedRuntime:
    """A plan with its weights as `precision` numbers. Activations are never quantised, so results differ from the native
    runtime's by its rounding on block types, and by float32 rounding elsewhere."""

    def __init__(
        self,
        plan: Plan,
        tensors: Mapping[str, Tensor],
        *,
        slots: int = 1,
        context: int = 0,
        max_rows: int = 256,
        precision: type[np.floating] = np.float64,
    ) -> None:
        self.plan, self.slots, self.max_rows, self.precision = plan, slots, max_rows, precision
        self.context = context or plan.context
        self.vocab, self.codes, self.given, self.sequential = plan.vocab, plan.codes, plan.given, False
        self.gives = plan.widths[plan.hidden] if plan.hidden >= 0 else 0
        self.draft: Runtime | None = None
        self.experts: Experts | None = None
        # Slots hold numbers of this precision, and more of them than the native runtime's.
        self.identity = f"{identity(plan, tensors)}-{np.dtype(precision).name}"
        self.values: dict[int, Matrix] = {}  # every value of the last step, for whoever looks for a difference
        self._weights = [values_of(tensors[weight.name]).astype(precision) for weight in plan.weights]
        # A row a position for what is kept by position; of what every position changes, a row for before each of them.
        # So a slot can be cut anywhere.
        self._states = [
            [np.zeros((self.context // state.every + 1, state.width), precision) for _ in range(slots)]
            for state in plan.states
        ]
        self._lengths = [0] * slots
        self._logits: list[Matrix] = []

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Run the rows; a token for each row with `sampling`. Raises ValueError for rows that break the contract."""
        self._check(rows)
        self.values = {}
        step = Step(self.plan, rows, self._weights, self._states, self.precision)
        for node in self.plan.nodes:
            inputs = [None if index < 0 else self.values[index] for index in node.inputs]
            made = OPERATIONS[node.op](step, node, *inputs)
            if node.out >= 0:
                self.values[node.out] = made
        for row in rows:
            self._lengths[row.slot] = row.position + 1
        logits = self.values[self.plan.logits]
        self._logits = [logits[i] for i, row in enumerate(rows) if row.sampling is not None or row.logits]
        return [_pick(logits[i], row.sampling, row.draw) for i, row in enumerate(rows) if row.sampling is not None]

    def logits(self, index: int) -> memoryview:
        """float32 logits [vocab] of the index-th row of the last step that had `sampling` or `logits`."""
        return memoryview(self._logits[index].astype(np.float32))

    def hidden(self, row: int) -> memoryview:
        """float32 numbers of the plan's `hidden` in a row of the last step."""
        if self.plan.hidden < 0:
            raise ValueError("no hidden rows are kept: the plan names none")
        return memoryview(self.values[self.plan.hidden][row].astype(np.float32))

    def copy(self, source: int, target: int, length: int) -> int:
        """Copy the first `length` positions of a slot to another."""
        if not 0 <= length <= self._lengths[source]:
            raise ValueError(f"slot {source} holds {self._lengths[source]} positions, not {length}")
        for slots in self._states:
            slots[target][:] = slots[source]
        self._lengths[target] = length
        return length

    def reach(self, slot: int, length: int) -> int:
        """Slots can be cut anywhere."""
        return min(length, self._lengths[slot])

    def rewind(self, slot: int, length: int) -> int:
        """Cut a slot to its first `length` positions."""
        self._lengths[slot] = min(length, self._lengths[slot])
        return self._lengths[slot]

    def remember(self, slot: int) -> None:
        """Slots can be cut anywhere."""

    def hold(self, slot: int) -> None:
        """Slots can be cut anywhere."""

    def image(self, slot: int, length: int) -> BytesImage:
        """All rows of the first `length` positions."""
        length = self.reach(slot, length)
        return BytesImage(length, (), b"".join(rows.tobytes() for rows in self._rows(slot, length)))

    def blank(self, slot: int, length: int, snapshots: Sequence[int]) -> BytesBlank:
        """A slot to be filled with all rows of `length` positions."""
        if not 1 <= length <= self.context or snapshots:
            raise ValueError(f"no slot of this model can have length {length} and snapshots {list(snapshots)}")
        self._lengths[slot] = 0
        size = sum(rows.nbytes for rows in self._rows(slot, length)) // 4

        def fill(data: bytes) -> None:
            at = 0
            for rows in self._rows(slot, length):
                rows[:] = np.frombuffer(data, self.precision, rows.size, at).reshape(rows.shape)
                at += rows.nbytes
            self._lengths[slot] = length

        return BytesBlank(size, fill)

    def _rows(self, slot: int, length: int) -> list[Matrix]:
        kinds = zip(self.plan.states, self._states, strict=True)
        return [of[slot][: length + 1 if state.kind == "recurrent" else length // state.every] for state, of in kinds]

    def phases(self) -> Phases:
        """It takes no time that counts."""
        return Phases()

    def expert_map(self) -> list[bytes]:
        """It has no experts that anybody could look at."""
        return []

    def describe(self) -> str:
        """What it computes with, in one line."""
        return f"numpy interpreter, {np.dtype(self.precision).name}"

    def _check(self, rows: Sequence[Row]) -> None:
        if not 1 <= len(rows) <= self.max_rows:
            raise ValueError(f"a step takes 1 to {self.max_rows} rows, not {len(rows)}")
        seen: dict[int, int] = {}
        for row in rows:
            if not 0 <= row.slot < self.slots or not 0 <= row.token < self.vocab or not 0 <= row.position < self.context:
                raise ValueError(f"{row} names no slot, token or position of this model")
            if row.codes and (self.codes is None or not self.codes.fit(row.codes)):
                raise ValueError(f"{row} has codes that this model does not read")
            if len(row.given) != 4 * self.given:
                raise ValueError(f"{row.slot}, {row.position}: brings {len(row.given)} bytes, not {self.given} numbers")
            if row.slot in seen and row.position != seen[row.slot]:
                raise ValueError(f"the rows of slot {row.slot} do not stand at consecutive positions")
            if row.position > seen.get(row.slot, self._lengths[row.slot]):
                raise ValueError(f"slot {row.slot} holds {self._lengths[row.slot]} positions, none before {row.position}")
            seen[row.slot] = row.position + 1


def _pick(logits: Matrix, sampling: Sampling, draw: int) -> int:
    """A token: the best one, or one drawn by (seed, draw). The distribution is the native sampler's, its dice are not."""
    if sampling.temperature <= 0:
        return int(logits.argmax())
    shares = softmax(logits.astype(np.float64) / sampling.temperature)
    order = np.argsort(-shares, kind="stable")
    kept = shares[order]
    if 0 < sampling.top_k < len(kept):
        kept[sampling.top_k :] = 0
    before = np.cumsum(kept) - kept
    kept[1:][before[1:] >= sampling.top_p * kept.sum()] = 0
    kept[kept < sampling.min_p * kept[0]] = 0
    seed = secrets.randbits(63) if sampling.seed is None else sampling.seed % (1 << 64)
    ticket = np.random.default_rng([seed, draw]).random() * math.fsum(kept)
    chosen = min(int(np.searchsorted(np.cumsum(kept), ticket, side="right")), int(np.count_nonzero(kept)) - 1)
    return int(order[chosen])
