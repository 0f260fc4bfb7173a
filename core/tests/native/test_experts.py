"""The experts' answers, natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft

SITU = {"kind": "situ", "beta": 1.5, "linear_beta": 0.7}


def _experts(
    d: Draft, x: int, *, count: int = 6, top_k: int = 2, inner: int = 10, shared: int = 0, dtype: str = "f32", **how: object
) -> int:
    width = d.widths[x]
    attrs = {"top_k": top_k, "score": "sigmoid", "normalise": True, "shared": shared}
    routes = d.node("route", [d.linear(x, count + shared)], 2 * top_k + shared, **attrs)  # type: ignore[arg-type]
    return d.node("experts", [x, routes], width, bank=d.bank(count, width, inner, dtype=dtype), **how)  # type: ignore[arg-type]


OPS: dict[str, Callable[[Draft, int], int]] = {
    "experts": lambda d, x: _experts(d, x),
    "experts as said": lambda d, x: _experts(d, x, kind="silu", limit=0.0),
    "experts with a limit": lambda d, x: _experts(d, x, kind="silu", limit=0.4),
    "experts with caps": lambda d, x: _experts(d, x, **SITU),
    "all experts with caps": lambda d, x: _experts(d, x, count=3, top_k=3, **SITU),
    "one expert with a limit": lambda d, x: _experts(d, x, top_k=1, limit=0.2),
    "experts beside shared ones": lambda d, x: _experts(d, x, shared=2, limit=0.4),
    "experts of stored bf16 with caps": lambda d, x: _experts(d, x, dtype="bf16", **SITU),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path)


def test_the_weights_of_shared_ones_can_be_taken_from_the_routes(tmp_path: Path) -> None:
    d = Draft(seed=5)
    x = d.embed(24)
    routes = d.node("route", [d.linear(x, 7)], 5, top_k=2, score="sigmoid", normalise=True, shared=1)
    share = d.node("slice", [routes], 1, group=5, offset=4, width=1)
    always = d.node("mul", [d.linear(x, 24), share], 24)
    chosen = d.node("experts", [x, routes], 24, bank=d.bank(6, 24, 10))
    check_agreement(d, d.node("add", [chosen, always], 24), tmp_path)


def test_experts_wide_enough_to_be_shared_by_threads(tmp_path: Path) -> None:
    d = Draft(context=200, seed=3)
    x = _experts(d, d.embed(128), count=12, top_k=4, inner=300, **SITU)
    check_agreement(d, _experts(d, x, count=5, top_k=3, inner=70, limit=0.3), tmp_path, tokens=TOKENS * 6, bound=1e-5)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    count = data.draw(st.integers(1, 9))
    top_k, inner, shared = data.draw(st.integers(1, count)), data.draw(st.integers(1, 40)), data.draw(st.integers(0, 2))
    how = data.draw(st.sampled_from([{}, {"limit": 0.5}, SITU]))
    x = d.norm(d.embed(data.draw(st.integers(1, 40))))
    y = _experts(d, x, count=count, top_k=top_k, inner=inner, shared=shared, **how)
    check_agreement(d, d.node("add", [x, y], d.widths[x]), tmp_path, bound=1e-5)


def _bent(width: int = 24, out: int = 24, **how: object) -> Callable[[Draft, int], int]:
    def build(d: Draft, x: int) -> int:
        routes = d.node("route", [d.linear(x, 3)], 4, top_k=2)
        return d.node("experts", [d.linear(x, width), routes], out, bank=d.bank(3, 24, 8), **how)  # type: ignore[arg-type]

    return build


def _without_route(d: Draft, x: int) -> int:
    """Indices that a route made, changed on their way."""
    routes = d.node("route", [d.linear(x, 3)], 4, top_k=2)
    return d.node("experts", [x, d.node("scale", [routes], 4, factor=9.0)], 24, bank=d.bank(3, 24, 8))


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "x": (_bent(width=23), "width of x is 23, it must be 24"),
    "result": (_bent(out=23), "width of the result is 23, it must be 24"),
    "kind": (_bent(kind="gelu"), "kind 'gelu' is unknown"),
    "negative limit": (_bent(limit=-1.0), "limit is -1, it must not be negative"),
    "caps without a size": (_bent(kind="situ"), "beta is missing"),
    "no cap": (_bent(**{**SITU, "beta": 0.0}), "beta is 0, it must be above 0"),
    "no linear cap": (_bent(**{**SITU, "linear_beta": -1.0}), "linear_beta is -1, it must be above 0"),
    "caps and a limit": (_bent(**SITU, limit=1.0), "unknown attribute 'limit'"),
    "no route": (_without_route, "its second input is not made by route"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)


def test_no_bank(tmp_path: Path) -> None:
    d = Draft()
    x = d.embed(24)
    routes = d.node("route", [d.linear(x, 3)], 4, top_k=2)
    assert "no bank 0" in refusal(d, d.node("experts", [x, routes], 24, bank=0), tmp_path)
