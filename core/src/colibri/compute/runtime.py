"""A loaded model: a plan, its weights, its slots. The native runtime and the interpreter of the test kit both are one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from ..family import Sampling


class Row(Struct, frozen=True):
    """One token of a step. With `sampling`, the step picks a token from this row's logits as the request's
    `draw`-th one; with `logits` alone its logits can be read afterwards."""

    token: int
    slot: int
    position: int
    sampling: Sampling | None = None
    draw: int = 0
    logits: bool = False


class Runtime(Protocol):
    """What the engine steps. Rows of a slot stand in order at consecutive positions; a row at position p forgets what
    the slot held from p on."""

    context: int
    slots: int
    vocab: int
    max_rows: int

    def step(self, rows: Sequence[Row]) -> list[int]:
        """Run the rows (at most `max_rows`) and return a token for each row with `sampling`, in order."""
        ...

    def logits(self, index: int) -> memoryview:
        """float32 logits [vocab] of the index-th row of the last step that had `sampling` or `logits`."""
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of a slot to another."""
        ...

    def describe(self) -> str:
        """Threads, code path and memory in one line."""
        ...
