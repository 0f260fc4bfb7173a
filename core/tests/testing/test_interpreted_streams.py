from __future__ import annotations

import math

import numpy as np
import pytest

from .operation import compute


def _balanced(joint: list[list[float]], iterations: int, eps: float) -> list[list[float]]:
    """Rows and columns divided by their sums in turns, number by number."""
    n = len(joint)
    for iteration in range(iterations):
        if iteration > 0:
            sums = [sum(joint[j][k] for k in range(n)) + eps for j in range(n)]
            joint = [[joint[j][k] / sums[j] for k in range(n)] for j in range(n)]
        sums = [sum(joint[j][k] for j in range(n)) + eps for k in range(n)]
        joint = [[joint[j][k] / sums[k] for k in range(n)] for j in range(n)]
    return joint


def test_sinkhorn_number_by_number() -> None:
    x, base, scale, eps = [1.0, -2, 0.5, 3, 2, 0, -1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [2.0, 3, 0.5], 0.01
    sigmoid = [1 / (1 + math.exp(-(x[i] * scale[i // 2] + base[i]))) for i in range(4)]
    powers = [math.exp(x[i] * scale[2] + base[i]) for i in range(4, 8)]
    shares = [[p / sum(powers[2 * j : 2 * j + 2]) + eps for p in powers[2 * j : 2 * j + 2]] for j in range(2)]
    for iterations in (1, 2, 5):
        attrs = {"n": 2, "iterations": iterations, "eps": eps}
        (found,) = compute("sinkhorn", [x], weights=[base, scale], attrs=attrs)
        assert found[:4] == pytest.approx([sigmoid[0] + eps, sigmoid[1] + eps, 2 * sigmoid[2], 2 * sigmoid[3]])
        assert found[4:] == pytest.approx([number for row in _balanced(shares, iterations, eps) for number in row])


def test_many_iterations_make_a_doubly_stochastic_matrix() -> None:
    x = np.random.default_rng(1).standard_normal((3, 24))
    found = compute("sinkhorn", x, weights=[np.zeros(24), np.ones(3)], attrs={"n": 4, "iterations": 60, "eps": 1e-9})
    for row in found:
        joint = np.array(row[8:]).reshape(4, 4)
        assert joint.sum(0) == pytest.approx(np.ones(4))
        assert joint.sum(1) == pytest.approx(np.ones(4))
        assert joint.min() > 0


def test_spread_writes_an_answer_into_streams_that_mix() -> None:
    x, y = [[1, 2, 10, 20]], [[100, 200]]
    coefficients = [
        [9, 9, 0.5, 2, 1, 3, 0, 4]
    ]  # what is read with plays no part; stream 0 also goes to stream 1, three times
    assert compute("spread", x, y, coefficients, attrs={"n": 2}) == [[50 + 1, 100 + 2, 200 + 3 + 40, 400 + 6 + 80]]
