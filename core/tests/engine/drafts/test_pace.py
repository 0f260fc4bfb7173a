"""What is known of a step's time."""

from __future__ import annotations

import random

import pytest

from colibri.engine.drafts.pace import Pace


def test_before_anything_is_measured_rows_cost_a_little() -> None:
    pace = Pace()
    assert pace.cost(1) == pytest.approx(1)
    assert 1 < pace.cost(4) < 2
    assert pace.cost_of(5.0) == 0


def test_times_are_learnt_as_they_compare() -> None:
    pace = Pace()
    times = {1: 0.02, 2: 0.022, 4: 0.03, 8: 0.08}
    for _ in range(200):
        for rows, seconds in times.items():
            pace.took(rows, seconds)
    for rows, seconds in times.items():
        assert pace.cost(rows) / pace.cost(1) == pytest.approx(seconds / times[1], rel=0.05)
    assert pace.cost(4) < pace.cost(6) < pace.cost(8) < pace.cost(9)
    assert pace.cost_of(0.02) == pytest.approx(pace.cost(1), rel=0.05)


def test_a_machine_that_gets_slower_changes_no_comparison() -> None:
    pace = Pace()
    for load in [1.0] * 100 + [3.0] * 100:
        pace.took(1, 0.01 * load)
        pace.took(4, 0.02 * load)
    assert pace.cost(4) / pace.cost(1) == pytest.approx(2, rel=0.05)


def test_one_step_that_was_held_up_changes_little() -> None:
    pace = Pace()
    for _ in range(50):
        pace.took(1, 0.01)
        pace.took(4, 0.02)
    pace.took(4, 30.0)
    assert pace.cost(4) / pace.cost(1) < 2.5


def test_steps_with_prompts_and_clocks_that_stand_still_teach_nothing() -> None:
    pace = Pace()
    pace.took(300, 9.0)
    pace.took(2, 0.0)
    assert pace.cost(2) == Pace().cost(2)


@pytest.mark.parametrize("seed", range(6))
def test_noise_and_changing_load_do_not_hide_what_rows_cost(seed: int) -> None:
    chance, pace, load = random.Random(seed), Pace(), 1.0
    times = {1: 1.0, 3: 1.5, 4: 1.8, 6: 3.0}
    for _ in range(300):
        rows = chance.choice(list(times))
        for _ in range(chance.randint(1, 12)):
            if chance.random() < 0.02:
                load = chance.choice([1.0, 1.0, 2.0, 3.0])
            pace.took(rows, times[rows] * load * chance.lognormvariate(0, 0.3))
    for rows, seconds in times.items():
        assert pace.cost(rows) / pace.cost(1) == pytest.approx(seconds, rel=0.3)
    assert pace.cost(1) < pace.cost(2) < pace.cost(3) < pace.cost(4) < pace.cost(5) < pace.cost(6)


def test_one_bad_moment_is_no_reason_not_to_try_again() -> None:
    pace = Pace()
    for _ in range(20):
        pace.took(1, 1.0)
        pace.took(2, 1.2)
    pace.took(4, 2.3)
    assert pace.cost(4) < 2 * pace.cost(1)
