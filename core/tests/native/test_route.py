"""The choice of experts, natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri import _native
from colibri.compute.native import NativeRuntime

from .agreement import check_agreement, refusal
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
def test_scores_that_are_no_numbers_still_choose_different_experts(
    number: float, score: str, isa: str, tmp_path: Path
) -> None:
    d = Draft(vocab=6)
    table = np.zeros((6, 8), np.float32)
    for token, places in enumerate(([], [0, 3], [1, 2, 3, 4, 5, 6, 7], [7], [0, 1], range(8))):
        table[token, list(places)] = number
    scores = d.node("embed", [], 8, [d.given(table)])
    for bias in (-1, d.given(np.array([0, 0, np.nan, np.inf, -np.inf, 1, -1, 0], np.float32))):
        for groups in (1, 4):
            how = {"top_k": 3, "score": score, "groups": groups, "top_groups": (groups + 1) // 2}
            chosen = d.node("route", [scores], 6, [bias], **how)  # type: ignore[arg-type]
            plan = msgspec.structs.replace(d.plan(chosen), logits=chosen)
            runtime = NativeRuntime.load(plan, d.tensors(tmp_path), isa=isa)
            for row in floats(run(runtime, range(6), chunk=6)):
                assert len(set(row[:3]) & set(range(8))) == 3


def test_a_table_with_rows_behind_the_vocabulary(tmp_path: Path) -> None:
    d = Draft(seed=1)
    x = d.embed(6)
    named = d.given(np.arange(2 * (d.vocab + 5)).reshape(-1, 2) % 6, "i64")
    check_agreement(d, d.node("route", [x], 4, [-1, named], top_k=2, score="sigmoid"), tmp_path)


def _bent(
    width: int = 24, out: int = 8, bias: int = 0, table: object = None, dtype: str = "i64", **attrs: object
) -> Callable[[Draft, int], int]:
    def build(d: Draft, x: int) -> int:
        weights = [d.weight(bias) if bias else -1, d.given(np.array(table), dtype) if table is not None else -1]
        return d.node("route", [d.linear(x, width)], out, weights, **{"top_k": 4, **attrs})  # type: ignore[arg-type]

    return build


def _experts(count: int) -> Callable[[Draft, int], int]:
    """A bank of `count` experts, of which a router that scores 6, the last one always chosen, knows 5."""

    def build(d: Draft, x: int) -> int:
        routes = d.node("route", [d.linear(x, 6)], 5, top_k=2, shared=1)
        return d.node("experts", [x, routes], 24, bank=d.bank(count, 24, 8))

    return build


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "score": (_bent(score="charm"), "score 'charm' is unknown"),
    "nothing is chosen": (_bent(top_k=0), "top_k is 0"),
    "more than there are": (_bent(top_k=25, out=50), "top_k is 25, it must be 1 to 24"),
    "more than may be": (_bent(width=1500, top_k=1025, out=2050), "top_k is 1025, it must be 1 to 1024"),
    "more than there are but the shared": (_bent(top_k=4, shared=21, out=29), "top_k is 4, it must be 1 to 3"),
    "all shared": (_bent(shared=24), "shared is 24, it must be 0 to 23"),
    "fewer than none shared": (_bent(shared=-1), "shared is -1"),
    "result": (_bent(out=9), "width of the result is 9, it must be 8"),
    "result with shared": (_bent(shared=2), "width of the result is 8, it must be 10"),
    "no groups": (_bent(groups=0), "groups is 0"),
    "uneven groups": (_bent(groups=5), "groups is 5, which does not divide 24"),
    "groups of the shared": (_bent(groups=4, shared=2, out=10), "groups is 4, which does not divide 22"),
    "no group is kept": (_bent(groups=4, top_groups=0), "top_groups is 0"),
    "more groups than there are": (_bent(groups=4, top_groups=5), "top_groups is 5"),
    "too few groups": (_bent(groups=12, top_groups=1), "1 groups of 2 experts, 4 are to be chosen"),
    "bias": (_bent(bias=23), "'w1' is [1, 23], it must be [1, 24]"),
    "bias of the shared": (_bent(bias=24, shared=2, out=10), "'w1' is [1, 24], it must be [1, 22]"),
    "factor": (_bent(factor=float("inf")), "factor is inf"),
    "short table": (_bent(table=[[0, 1, 2, 3]] * 39), "'w1' has 39 rows for a vocabulary of 40"),
    "narrow table": (_bent(table=[[0, 1, 2]] * 40), "'w1' is [40, 3], it must be [40, 4]"),
    "table beyond the experts": (_bent(table=[[0, 1, 2, 3]] * 39 + [[0, 24, 1, 2]]), "'w1' names expert 24 of 24 in row 39"),
    "table far beyond the experts": (_bent(table=[[0, 1, 2, 2**62]] * 40), "of 24 in row 0"),
    "table below the experts": (_bent(table=[[0, 1, -1, 2]] * 40), "names expert -1 of 24 in row 0"),
    "table of halves": (_bent(table=[[0, 1, 0.5, 2]] * 40, dtype="f32"), "names expert 0.5 of 24 in row 0"),
    "table of no numbers": (_bent(table=[[0, 1, float("nan"), 2]] * 40, dtype="f32"), "names expert nan of 24 in row 0"),
    "table with a bias": (_bent(table=[[0, 1, 2, 3]] * 40, bias=24), "a bias and a table"),
    "experts: more than are routed": (_experts(6), "number of routed experts is 5, it must be 6"),
    "experts: fewer than are routed": (_experts(4), "number of routed experts is 5, it must be 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
