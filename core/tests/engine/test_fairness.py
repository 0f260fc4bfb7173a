"""Prompts that are computed beside answers do not hold them up."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from colibri.compute.runtime import Row
from colibri.engine.fairness import Fairness
from colibri.engine.frames import Submit, Tokens
from colibri.engine.planner import Planner
from colibri.family import Sampling
from colibri.testing.runtime import ScriptedRuntime


class Timed(ScriptedRuntime):
    """A step takes a while, and longer by each row."""

    def __init__(self, row: float) -> None:
        super().__init__(context=4200, slots=5, max_rows=300)
        self.now, self.row, self.taken = 0.0, row, [(0, 0.0)]

    def step(self, rows: Sequence[Row]) -> list[int]:
        took = 0.03 + self.row * len(rows)
        self.now += took
        self.taken.append((len(rows), took))
        return super().step(rows)


@pytest.mark.parametrize("row", [0.0001, 0.001, 0.004, 0.02])
def test_a_long_prompt_never_holds_answers_for_three_of_their_steps(row: float) -> None:
    runtime = Timed(row)
    frames: list[object] = []
    planner = Planner(runtime, frames.append, chunk=256, fairness=Fairness(), clock=lambda: runtime.now)
    for id in range(4):
        planner.submit(Submit(id, [id + 1], 4000, Sampling()))
    for _ in range(20):
        planner.step()
    usual = runtime.taken[-1][1]
    alone = len(runtime.taken)
    planner.submit(Submit(9, list(range(1, 32)) * 100, 1, Sampling()))
    while not any(isinstance(frame, Tokens) and frame.id == 9 for frame in frames):
        planner.step()
    beside = runtime.taken[alone:]
    assert max(took for _, took in beside) <= 3 * usual
    most = max(rows for rows, _ in beside)
    assert most == 4 + 256 if row == 0.0001 else 8 <= most < 4 + 256
    assert len(beside) < 1000


def test_without_answers_chunks_are_whole() -> None:
    fairness = Fairness()
    fairness.took(1, 0, 0.1)
    fairness.took(1, 8, 5.0)
    assert fairness.rows(0, 256) == 256
    assert fairness.rows(1, 256) == 4
    assert fairness.rows(1, 2) == 2


def test_one_slow_step_is_no_new_usual() -> None:
    fairness = Fairness()
    for _ in range(10):
        fairness.took(2, 0, 0.1)
    fairness.took(2, 0, 60.0)
    fairness.took(2, 8, 0.3)
    assert fairness.rows(2, 256) <= 8


def test_noise_does_not_let_prompts_starve_or_answers_wait() -> None:
    noise, fairness, long, steps = random.Random(3), Fairness(), 0, 0
    for _ in range(20):
        fairness.took(3, 0, 0.05 * noise.uniform(0.8, 1.4))
    left = 4000
    while left > 0:
        rows = min(left, fairness.rows(3, 256))
        seconds = (0.05 + 0.002 * rows) * noise.uniform(0.8, 1.4)
        fairness.took(3, rows, seconds)
        long += seconds > 3 * 0.055
        left, steps = left - rows, steps + 1
    assert steps < 300
    assert long < 0.15 * steps


def test_more_answers_than_ever_before_are_judged_by_the_nearest() -> None:
    fairness = Fairness()
    fairness.took(1, 0, 0.1)
    fairness.took(4, 8, 0.16)
    assert fairness.rows(4, 256) == 12
