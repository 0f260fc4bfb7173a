from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colibri.compute.runtime import Row
from colibri.testing.drive import greedy, logits_of, together


class Recorder:
    """A runtime whose logits name the row they are of; its next token is the sum of the slot's tokens, modulo 7."""

    context, slots, vocab, max_rows = 64, 4, 7, 3

    def __init__(self) -> None:
        self.steps: list[list[tuple[int, int, int]]] = []
        self.held: dict[int, list[int]] = {}
        self.shown: list[Row] = []

    def step(self, rows: Sequence[Row]) -> list[int]:
        assert 1 <= len(rows) <= self.max_rows
        self.steps.append([(row.token, row.slot, row.position) for row in rows])
        picked = []
        for row in rows:
            held = self.held.setdefault(row.slot, [])
            del held[row.position :]
            assert len(held) == row.position
            held.append(row.token)
            if row.sampling is not None:
                picked.append(sum(held) % 7)
        self.shown = [row for row in rows if row.logits or row.sampling is not None]
        return picked

    def logits(self, index: int) -> memoryview:
        row = self.shown[index]
        return memoryview(np.array([row.token, row.slot, row.position], np.float32))


def test_logits_in_chunks() -> None:
    made = Recorder()
    found = logits_of(made, [5, 6, 1, 2, 3, 4], slot=2, chunks=[1, 9])
    assert found.tolist() == [[token, 2, i] for i, token in enumerate([5, 6, 1, 2, 3, 4])]
    assert [len(step) for step in made.steps] == [1, 3, 2]
    logits_of(made, [1, 1], slot=2, start=6)
    assert made.held[2] == [5, 6, 1, 2, 3, 4, 1, 1]


def test_slots_together() -> None:
    made = Recorder()
    found = together(made, {0: [1, 2, 3], 3: [4, 5]}, {0: 2})
    assert [len(step) for step in made.steps] == [3, 2]
    assert made.held == {0: [1, 2, 3], 3: [4, 5]}
    assert found[0].tolist() == [[1, 0, 0], [2, 0, 1], [3, 0, 2]]
    assert found[3].tolist() == [[4, 3, 0], [5, 3, 1]]


def test_greedy() -> None:
    made = Recorder()
    assert greedy(made, [1, 2, 3, 4, 5], 3) == [1, 2, 4]
    assert [len(step) for step in made.steps] == [3, 1, 1, 1, 1]
    assert greedy(made, [6], 2, slot=1) == [6, 5]
