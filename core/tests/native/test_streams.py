"""Rows that hold several streams, natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft


def _sinkhorn(d: Draft, x: int, n: int, iterations: int = 20, eps: float = 1e-6) -> int:
    width = (2 + n) * n
    weights = [d.weight(width), d.weight(3)]
    return d.node("sinkhorn", [d.linear(x, width)], width, weights, n=n, iterations=iterations, eps=eps)


def _spread(d: Draft, x: int, n: int) -> int:
    width = d.widths[x]
    return d.node("spread", [x, d.linear(x, width // n), _sinkhorn(d, x, n)], width, n=n)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "sinkhorn": lambda d, x: _sinkhorn(d, x, 4),
    "sinkhorn of one stream": lambda d, x: _sinkhorn(d, x, 1),
    "sinkhorn once": lambda d, x: _sinkhorn(d, x, 3, iterations=1),
    "sinkhorn twice": lambda d, x: _sinkhorn(d, x, 3, iterations=2),
    "sinkhorn with a large eps": lambda d, x: _sinkhorn(d, x, 5, iterations=4, eps=0.3),
    "spread": lambda d, x: _spread(d, x, 4),
    "spread of one stream": lambda d, x: _spread(d, x, 1),
    "spread of streams of one value": lambda d, x: _spread(d, x, 24),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path)


def test_rows_wide_enough_to_be_shared_by_threads(tmp_path: Path) -> None:
    d = Draft(context=200, seed=3)
    x = _spread(d, d.embed(516), 4)
    check_agreement(d, _spread(d, x, 3), tmp_path, tokens=TOKENS * 6)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    n, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 20))
    x = d.embed(n * width)
    coefficients = _sinkhorn(d, x, n, data.draw(st.integers(1, 25)), data.draw(st.sampled_from([0.0, 1e-6, 0.1])))
    y = d.node("spread", [x, d.linear(x, width), coefficients], n * width, n=n)
    check_agreement(d, d.node("concat", [coefficients, y], (2 + n + width) * n, groups=n), tmp_path, bound=5e-6)


def _bent_sinkhorn(
    width: int = 24, base: int = 24, scale: int = 3, out: int = 24, **attrs: object
) -> Callable[[Draft, int], int]:
    both = {"n": 4, "iterations": 5, "eps": 1e-6, **attrs}

    def build(d: Draft, x: int) -> int:
        weights = [d.weight(base), d.weight(scale)]
        return d.node("sinkhorn", [d.linear(x, width)], out, weights, **both)  # type: ignore[arg-type]

    return build


def _bent_spread(y: int = 6, coefficients: int = 24, out: int = 24, n: int = 4) -> Callable[[Draft, int], int]:
    return lambda d, x: d.node("spread", [x, d.linear(x, y), d.linear(x, coefficients)], out, n=n)


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "sinkhorn: n": (_bent_sinkhorn(n=3), "width of x is 24, it must be 15"),
    "sinkhorn: no streams": (_bent_sinkhorn(n=0), "n is 0"),
    "sinkhorn: too many streams": (_bent_sinkhorn(n=2**30), "n is 1073741824"),
    "sinkhorn: x": (_bent_sinkhorn(width=25), "width of x is 25, it must be 24"),
    "sinkhorn: base": (_bent_sinkhorn(base=23), "'w1' is [1, 23], it must be [1, 24]"),
    "sinkhorn: scale": (_bent_sinkhorn(scale=2), "'w2' is [1, 2], it must be [1, 3]"),
    "sinkhorn: result": (_bent_sinkhorn(out=16), "width of the result is 16, it must be 24"),
    "sinkhorn: no iterations": (_bent_sinkhorn(iterations=0), "iterations is 0"),
    "sinkhorn: endless": (_bent_sinkhorn(iterations=2**40), "iterations is"),
    "sinkhorn: eps": (_bent_sinkhorn(eps=-1.0), "eps is -1, it must not be negative"),
    "spread: y": (_bent_spread(y=5), "width of x is 24, it must be 20"),
    "spread: coefficients": (_bent_spread(coefficients=16), "width of the coefficients is 16, it must be 24"),
    "spread: result": (_bent_spread(out=6), "width of the result is 6, it must be 24"),
    "spread: no streams": (_bent_spread(n=0), "n is 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
