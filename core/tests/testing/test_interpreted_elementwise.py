from __future__ import annotations

import math

import pytest

from .operation import compute

X = [[-4.0, -0.25, 0.0, 0.25, 3.0]]

FUNCTIONS = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "softplus": lambda x: math.log(1 + math.exp(x)),
    "tanh": lambda x: (math.exp(x) - math.exp(-x)) / (math.exp(x) + math.exp(-x)),
    "softcap": lambda x: 0.5 * math.tanh(2 * x),
    "root": lambda x: 0 if x == 0 else math.copysign(math.sqrt(max(abs(x), 0.5)), x),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_activations(kind: str) -> None:
    (found,) = compute("activate", X, attrs={"kind": kind, "limit": 0.5})
    assert found == pytest.approx([FUNCTIONS[kind](x) for x in X[0]])


def test_activations_of_very_large_values() -> None:
    x = [[-1e5, 1e5]]
    for kind, expected in (
        ("silu", [0, 1e5]),
        ("sigmoid", [0, 1]),
        ("softplus", [0, 1e5]),
        ("tanh", [-1, 1]),
        ("softcap", [-7, 7]),
        ("root", [-math.sqrt(1e5), math.sqrt(1e5)]),
    ):
        assert compute("activate", x, attrs={"kind": kind, "limit": 7.0}) == [pytest.approx(expected)]


def test_a_weight_meets_every_run_of_the_row() -> None:
    x = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert compute("add_weight", x, weights=[[10, 20]], attrs={}) == [[11, 22, 13, 24], [15, 26, 17, 28]]
    assert compute("mul_weight", x, weights=[[10, 0.5]], attrs={}) == [[10, 1, 30, 2], [50, 3, 70, 4]]
    assert compute("mul_weight", x, weights=[[3]], attrs={}) == [[3, 6, 9, 12], [15, 18, 21, 24]]


def test_a_narrower_value_meets_runs() -> None:
    x, y = [[1, 2, 3, 4]], [[10, 100]]
    assert compute("add", x, y, attrs={}) == [[11, 12, 103, 104]]
    assert compute("mul", x, y, attrs={}) == [[10, 20, 300, 400]]


def test_scale_shifts() -> None:
    assert compute("scale", [[1, -2]], attrs={"factor": 3.0, "shift": 0.5}) == [[3.5, -5.5]]


def test_log_scale_grows_with_the_position_from_the_floor_on() -> None:
    found = compute("log_scale", [[2.0]] * 4, positions=[0, 3, 4, 39], attrs={"floor": 4.0, "alpha": 0.5})
    assert [row[0] for row in found] == pytest.approx([2, 2, 2 + math.log(1.25), 2 + math.log(10)])


def test_situ_and_the_limits_of_glu() -> None:
    gate, up = [[-3.0, 9.0]], [[5.0, -7.0]]
    (found,) = compute("glu", gate, up, attrs={"kind": "silu", "limit": 4.0})
    assert found == pytest.approx([-3 / (1 + math.exp(3)) * 4, 4 / (1 + math.exp(-4)) * -4])
    (found,) = compute("glu", gate, up, attrs={"kind": "situ", "beta": 2.0, "linear_beta": 10.0})
    expected = [
        2 * math.tanh(g / 2) / (1 + math.exp(-g)) * 10 * math.tanh(u / 10) for g, u in zip(gate[0], up[0], strict=True)
    ]
    assert found == pytest.approx(expected)
