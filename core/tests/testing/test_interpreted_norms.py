from __future__ import annotations

import math

import pytest

from .operation import compute


def test_rms_norm_about_1_and_without_a_weight() -> None:
    x = [[3, 4, 0, 5]]
    row, first, second = math.sqrt(50 / 4), math.sqrt(12.5), math.sqrt(12.5)
    assert compute("rms_norm", x, weights=[None], attrs={"eps": 0.0, "group": 0}) == [
        pytest.approx([3 / row, 4 / row, 0, 5 / row])
    ]
    for weight, factors in ([0.5, -1], [1.5, 0, 1.5, 0]), ([0.5, -1, 1, 2], [1.5, 0, 2, 3]):
        (found,) = compute("rms_norm", x, weights=[weight], attrs={"eps": 0.0, "group": 2, "unit": True})
        normed = [3 / first, 4 / first, 0, 5 / second]
        assert found == pytest.approx([n * f for n, f in zip(normed, factors, strict=True)])


def test_layer_norm() -> None:
    attrs = {"eps": 0.0}
    assert compute("layer_norm", [[1, 3]], weights=[[1, 1], [0, 0]], attrs=attrs) == [[-1, 1]]
    assert compute("layer_norm", [[1, 3], [7, 5]], weights=[[2, 3], [10, 20]], attrs=attrs) == [[8, 23], [12, 17]]
    (found,) = compute("layer_norm", [[1, 3]], weights=[[1, 1], [0, 0]], attrs={"eps": 3.0})
    assert found == pytest.approx([-0.5, 0.5])


def test_l2_clip_shortens_only_what_is_long() -> None:
    (found,) = compute("l2_clip", [[3, 4, 0.3, 0.4, 0, 0]], attrs={"group": 2, "limit": 1.0})
    assert found == pytest.approx([0.6, 0.8, 0.3, 0.4, 0, 0], abs=1e-6)


def test_softmax_of_runs() -> None:
    x = [[0, math.log(3), 1000, 1000]]
    assert compute("softmax", x, attrs={"group": 2}) == [pytest.approx([0.25, 0.75, 0.5, 0.5])]
    assert compute("softmax", x, attrs={"group": 4}) == [pytest.approx([0, 0, 0.5, 0.5])]
    assert compute("softmax", x, attrs={"group": 1}) == [[1, 1, 1, 1]]
