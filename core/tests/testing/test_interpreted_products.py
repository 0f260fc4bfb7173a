from __future__ import annotations

from .operation import compute

ROWS = [[1, 0], [0, 1], [1, 1], [2, -1], [5, 5], [7, 8]]


def test_each_run_meets_rows_of_its_own() -> None:
    x = [[1, 2, 3, 4], [10, 20, 30, 40]]
    attrs = {"groups": 2, "first": 0, "stride": 2, "transposed": False}
    assert compute("linear_groups", x, out=4, weights=[ROWS], attrs=attrs) == [[1, 2, 7, 2], [10, 20, 70, 20]]


def test_rows_between_others_are_passed_over() -> None:
    attrs = {"groups": 2, "first": 1, "stride": 3, "transposed": False}
    assert compute("linear_groups", [[1, 2, 3, 4]], out=4, weights=[ROWS], attrs=attrs) == [[2, 3, 35, 53]]
    attrs = {"groups": 2, "first": 3, "stride": 1, "transposed": False}
    assert compute("linear_groups", [[1, 2, 3, 4]], out=2, weights=[ROWS], attrs=attrs) == [[0, 35]]


def test_transposed_runs_weigh_their_rows() -> None:
    attrs = {"groups": 2, "first": 0, "stride": 3, "transposed": True}
    found = compute("linear_groups", [[1, 2, 3, 10, 100, 1000]], out=4, weights=[ROWS], attrs=attrs)
    assert found == [[1 + 3, 2 + 3, 20 + 500 + 7000, -10 + 500 + 8000]]
