"""The choice of experts in the interpreter, against arithmetic done by hand."""

from __future__ import annotations

from math import exp, log, sqrt, tanh
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri.compute.plan import Bank
from colibri.compute.runtime import Row
from colibri.testing.interpreter import InterpretedRuntime

from ..native.plans import Draft
from .operation import compute


def _route(scores: list[float], top_k: int, *, bias: Any = None, table: Any = None, **how: Any) -> list[float]:
    """Indices, then weights."""
    attrs = {"top_k": top_k, "score": "sigmoid", "normalise": False, "factor": 1.0, **how}
    attrs = {"groups": 1, "top_groups": 1, "shared": 0, **attrs}
    (row,) = compute("route", [scores], out=2 * top_k + attrs["shared"], weights=[bias, table], attrs=attrs)
    return row


def _open(*shares: float) -> list[float]:
    """Scores whose sigmoid these are."""
    return [log(share / (1 - share)) for share in shares]


def test_scores() -> None:
    assert _route([log(1), log(4), log(3)], 2, score="softmax") == pytest.approx([1, 2, 0.5, 0.375])
    assert _route(_open(0.2, 0.9, 0.6), 2) == pytest.approx([1, 2, 0.9, 0.6])
    roots = [sqrt(log(1 + exp(z))) for z in (2, -1)]
    assert _route([-1, 2, -3], 2, score="root_softplus") == pytest.approx([1, 0, *roots])


def test_weights_are_made_to_sum_to_the_factor() -> None:
    assert _route(_open(0.2, 0.9, 0.6), 2, normalise=True, factor=2.5) == pytest.approx([1, 2, 1.5, 1.0])
    assert _route([-800, -900], 2, normalise=True) == [0, 1, 0, 0]  # none is left of them, and nothing is divided by it


def test_a_bias_chooses_and_does_not_weigh() -> None:
    assert _route(_open(0.2, 0.9, 0.6), 2, bias=[0.5, 0, 0]) == pytest.approx([1, 0, 0.9, 0.2])


def test_ties_go_to_the_lower_index() -> None:
    assert _route([0, 0, 0, 0], 3)[:3] == [0, 1, 2]
    assert _route([0, 1, 0, 1], 3)[:3] == [1, 3, 0]


def test_a_group_counts_as_much_as_its_two_best() -> None:
    scores = _open(0.9, 0.1, 0.1, 0.6, 0.5, 0.55, 0.3, 0.3, 0.8)  # of groups of three: 1.0, 1.15, 1.1
    assert _route(scores, 2, groups=3, top_groups=1)[:2] == [3, 5]
    assert _route(scores, 2, groups=3, top_groups=2)[:2] == [8, 3]
    assert _route(scores, 2, groups=3, top_groups=3)[:2] == [0, 8]
    assert _route(scores, 2, groups=3, top_groups=1, bias=[0.3, 0, 0, 0, 0, 0, 0, 0, 0])[:2] == [0, 1]
    assert _route(scores, 2, groups=9, top_groups=2)[:2] == [0, 8]
    assert _route([0] * 6, 3, groups=3, top_groups=2)[:3] == [0, 1, 2]


def test_a_bias_below_all_scores_still_leaves_the_group_its_experts() -> None:
    scores = _open(0.9, 0.8, 0.2, 0.1)
    assert _route(scores, 2, groups=2, top_groups=1, bias=[-5, -6, -7, -8])[:2] == [0, 1]


def test_shared_ones_are_always_chosen_and_share_in_the_sum() -> None:
    scores = _open(0.2, 0.4, 0.3, 0.9, 0.1)  # the last two are shared
    assert _route(scores, 2, shared=2) == pytest.approx([1, 2, 0.4, 0.3, 0.9, 0.1])
    assert _route(scores, 2, shared=2, normalise=True, factor=3.4) == pytest.approx([1, 2, 0.8, 0.6, 1.8, 0.2])
    both = [log(2), log(1), log(5)]
    assert _route(both, 1, score="softmax", shared=1) == pytest.approx([0, 2 / 8, 5 / 8])


def test_a_table_chooses_by_the_token(tmp_path: Path) -> None:
    d = Draft(vocab=3)
    scores = d.node("embed", [], 3, [d.given(np.array([_open(0.2, 0.9, 0.6)] * 3, np.float32))])
    table = d.given(np.array([[2, 0], [0, 0], [1, 2]]), "i64")
    attrs = {"top_k": 2, "score": "sigmoid", "normalise": True, "factor": 1.0}
    route = d.node("route", [scores], 4, [-1, table], **attrs)  # type: ignore[arg-type]
    runtime = InterpretedRuntime(d.plan(route), d.tensors(tmp_path))
    runtime.step([Row(2, 0, 0), Row(1, 0, 1), Row(0, 0, 2)])
    expected = [[1, 2, 0.6, 0.4], [0, 0, 0.5, 0.5], [2, 0, 0.75, 0.25]]
    np.testing.assert_allclose(runtime.values[route], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("how", "joined"),
    [
        ({}, lambda g, u: g / (1 + exp(-g)) * u),
        ({"kind": "silu", "limit": 1.5}, lambda g, u: min(g, 1.5) / (1 + exp(-min(g, 1.5))) * max(-1.5, min(u, 1.5))),
        (
            {"kind": "situ", "beta": 4.0, "linear_beta": 25.0},
            lambda g, u: 4 * tanh(g / 4) / (1 + exp(-g)) * 25 * tanh(u / 25),
        ),
    ],
)
def test_experts_answer_by_their_weights(tmp_path: Path, how: dict[str, Any], joined: Any) -> None:
    """One number in, two hidden, one out; each expert in its own way."""
    gate, up, down = [[1, -2], [0.5, 1], [2, 0.3]], [[1, 1.5], [-1, 2], [3, 0.1]], [[1, 10], [2, -20], [3, 0.5]]
    d = Draft(vocab=2)
    kinds = [
        tuple(d.given(np.array(numbers, np.float32).reshape(shape)) for numbers in kind)
        for kind, shape in ((gate, (2, 1)), (up, (2, 1)), (down, (1, 2)))
    ]
    d.banks.append(Bank("bank", 1, 2, *kinds))
    x = d.node("embed", [], 1, [d.given(np.array([[2], [-1]], np.float32))])
    scores = d.node("linear", [x], 3, [d.given(np.array([[1], [0.5], [-1]], np.float32))])
    route = d.node("route", [scores], 4, top_k=2, score="sigmoid")
    y = d.node("experts", [x, route], 1, bank=0, **how)
    runtime = InterpretedRuntime(d.plan(y), d.tensors(tmp_path))
    runtime.step([Row(0, 0, 0), Row(1, 0, 1)])

    def answer(e: int, value: float) -> float:
        return sum(w * joined(g * value, u * value) for g, u, w in zip(gate[e], up[e], down[e], strict=True))

    def share(score: float) -> float:
        return 1 / (1 + exp(-score))

    expected = [share(2) * answer(0, 2) + share(1) * answer(1, 2), share(1) * answer(2, -1) + share(-0.5) * answer(1, -1)]
    assert runtime.values[y][:, 0].tolist() == pytest.approx(expected)
