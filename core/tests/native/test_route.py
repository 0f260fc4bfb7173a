"""The choice of experts, natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri import _native
from colibri.compute.native import NativeRuntime

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft, floats, run

GROUPED = {"score": "sigmoid", "groups": 4, "top_groups": 2}


def _route(d: Draft, x: int, top_k: int, *, biased: bool = False, table: bool = False, **attrs: object) -> int:
    """Routes by x as the scores."""
    shared = int(attrs.get("shared", 0))  # type: ignore[call-overload]
    experts = d.widths[x] - shared
    bias = d.given(d.random.normal(0, 0.5, experts).astype(np.float32)) if biased else -1
    named = d.given(d.random.integers(0, experts, (d.vocab, top_k)), "i64") if table else -1
    return d.node("route", [x], 2 * top_k + shared, [bias, named], top_k=top_k, **attrs)  # type: ignore[arg-type]


OPS: dict[str, Callable[[Draft, int], int]] = {
    "softmax": lambda d, x: _route(d, x, 5, score="softmax"),
    "softmax by default": lambda d, x: _route(d, x, 5),
    "softmax normalised": lambda d, x: _route(d, x, 5, normalise=True, factor=2.5),
    "softmax with shared": lambda d, x: _route(d, x, 5, normalise=True, shared=2),
    "all": lambda d, x: _route(d, x, 24, score="sigmoid"),
    "one": lambda d, x: _route(d, x, 1, score="root_softplus"),
    "sigmoid": lambda d, x: _route(d, x, 5, score="sigmoid"),
    "sigmoid by a bias": lambda d, x: _route(d, x, 5, score="sigmoid", biased=True, normalise=True, factor=2.5),
    "sigmoid with shared": lambda d, x: _route(d, x, 5, score="sigmoid", biased=True, normalise=True, shared=3),
    "sigmoid with shared as they are": lambda d, x: _route(d, x, 5, score="sigmoid", shared=3, factor=0.5),
    "root of softplus": lambda d, x: _route(d, x, 5, score="root_softplus", biased=True, normalise=True),
    "groups": lambda d, x: _route(d, x, 7, biased=True, **GROUPED),
    "groups without a bias": lambda d, x: _route(d, x, 7, **GROUPED),
    "all of the best group": lambda d, x: _route(d, x, 6, score="softmax", groups=4, top_groups=1),
    "all groups": lambda d, x: _route(d, x, 6, score="sigmoid", groups=4, top_groups=4),
    "groups of one": lambda d, x: _route(d, x, 5, score="sigmoid", groups=24, top_groups=6, biased=True),
    "groups and shared": lambda d, x: _route(d, x, 7, score="sigmoid", groups=5, top_groups=3, shared=4, normalise=True),
    "table": lambda d, x: _route(d, x, 5, score="root_softplus", table=True, normalise=True, factor=1.5),
    "table and shared": lambda d, x: _route(d, x, 5, score="sigmoid", table=True, shared=1),
    "scores without a difference": lambda d, x: _route(d, d.node("scale", [x], 24, factor=0.0), 5, score="sigmoid"),
    "groups without a difference": lambda d, x: _route(d, d.node("scale", [x], 24, factor=0.0), 9, **GROUPED),
    "scores at their end": lambda d, x: _route(
        d, d.node("scale", [x], 24, factor=30.0, shift=-150.0), 5, score="sigmoid", normalise=True, biased=True
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_choice_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    groups, size, shared = (data.draw(st.integers(low, 6)) for low in (1, 1, 0))
    top_groups = data.draw(st.integers(1, groups))
    top_k = data.draw(st.integers(1, top_groups * size))
    x = d.linear(d.embed(8), groups * size + shared)
    score = data.draw(st.sampled_from(["softmax", "sigmoid", "root_softplus"]))
    flags = {name: data.draw(st.booleans()) for name in ("normalise", "biased")}
    factor = data.draw(st.floats(0.1, 4))
    how = {"score": score, "groups": groups, "top_groups": top_groups, "shared": shared, "factor": factor, **flags}
    check_agreement(d, _route(d, x, top_k, **how), tmp_path, bound=5e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("isa", _native.isas())
@pytest.mark.parametrize("score", ["softmax", "sigmoid", "root_softplus"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_none_never_choose_what_is_not_there(number: float, score: str, isa: str, tmp_path: Path) -> None:
    """Different experts of the bank, whatever the scores and biases are."""
    for places in ([], [0, 3], [1, 2, 3, 4, 5, 6, 7], list(range(8))):
        d = Draft(vocab=4)
        table = np.zeros((4, 8), np.float32)
        table[:, places] = number
        x = d.node("embed", [], 8, [d.given(table)])
        bias = d.given(np.array([0, 0, np.nan, np.inf, -np.inf, 1, -1, 0], np.float32))
        attrs = {"top_k": 3, "score": score, "groups": 4, "top_groups": 2}
        x = d.node("route", [x], 6, [bias], **attrs)  # type: ignore[arg-type]
        x = d.node("slice", [x], 3, group=6, offset=0, width=3)
        d.widths.append(4)
        pick = d.given(np.eye(4, 3, dtype=np.float32))
        plan = d.plan(d.node("linear", [x], 4, [pick]))
        ...


def test_a_table_with_rows_behind_the_vocabulary(tmp_path: Path) -> None:
    d = Draft(seed=1)
    x = d.embed(6)
    named = d.given(np.arange(2 * (d.vocab + 5)).reshape(-1, 2) % 6, "i64")
    check_agreement(d, d.node("route", [x], 4, [-1, named], top_k=2, score="sigmoid"), tmp_path)


def _bent(width: int = 24, out: int = 8, bias: int = 0, table: object = None, dtype: str = "i64", **attrs: object) -> Callable[[Draft, int], int]:
    def build(d: Draft, x: int) -> int:
        weights = [d.weight(bias) if bias else -1, d.given(np.array(table), dtype) if table is not None else -1]
        return d.node("route", [d.linear(x, width)], out, weights, **{"top_k": 4, **attrs})  # type: ignore[arg-type]

    return build
