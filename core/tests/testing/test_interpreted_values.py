from __future__ import annotations

import pytest

from .operation import compute

ROWS = [[1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60]]


def test_slice_takes_the_same_part_of_every_run() -> None:
    found = compute("slice", ROWS, out=2, attrs={"group": 3, "offset": 1, "width": 1})
    assert found == [[2, 5], [20, 50]]
    found = compute("slice", ROWS, out=4, attrs={"group": 6, "offset": 2, "width": 4})
    assert found == [[3, 4, 5, 6], [30, 40, 50, 60]]


def test_concat_goes_run_by_run() -> None:
    other = [[-1, -2], [-3, -4]]
    assert compute("concat", ROWS, other, out=8, attrs={"groups": 1}) == [
        [1, 2, 3, 4, 5, 6, -1, -2],
        [10, 20, 30, 40, 50, 60, -3, -4],
    ]
    assert compute("concat", ROWS, other, out=8, attrs={"groups": 2}) == [
        [1, 2, 3, -1, 4, 5, 6, -2],
        [10, 20, 30, -3, 40, 50, 60, -4],
    ]


def test_tile_repeats_the_whole_row() -> None:
    assert compute("tile", [[1, 2], [3, 4]], out=4, attrs={"times": 2}) == [[1, 2, 1, 2], [3, 4, 3, 4]]


def test_sum_adds_runs() -> None:
    assert compute("sum", ROWS, out=2, attrs={"group": 3}) == [[6, 15], [60, 150]]
    assert compute("sum", ROWS, out=1, attrs={"group": 6}) == [[21], [210]]


def test_mix_weighs_runs_by_their_shares_or_alike() -> None:
    shares = [[1, -1, 0], [0.5, 0, 2]]
    assert compute("mix", ROWS, shares, out=2, attrs={"n": 3}) == [[-2, -2], [105, 130]]
    for absent in ([], [None]):
        assert compute("mix", ROWS, *absent, out=3, attrs={"n": 2}) == [[2.5, 3.5, 4.5], [25, 35, 45]]
    assert compute("mix", ROWS, None, out=2, attrs={"n": 3}) == [pytest.approx([3, 4]), pytest.approx([30, 40])]
