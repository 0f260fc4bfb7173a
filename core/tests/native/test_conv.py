"""Convolutions over the last rows, natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft


def _conv(d: Draft, x: int, kernel: int = 4, *, dilation: int = 1, lags: bool = False, runs: int = 0) -> int:
    width = d.widths[x]
    taps = d.linear(x, runs * kernel) if runs else -1
    state = d.state(width, window=(kernel - 1) * dilation + 1)
    weight = d.weight(kernel, width) if lags else d.weight(width, kernel)
    return d.node("conv", [x, taps], width, [weight], states=[state], kernel=kernel, dilation=dilation, lags=lags)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "conv": lambda d, x: _conv(d, x),
    "conv over one row": lambda d, x: _conv(d, x, 1),
    "conv over more rows than there are": lambda d, x: _conv(d, x, 30),
    "conv of rows apart": lambda d, x: _conv(d, x, dilation=3),
    "conv by lag": lambda d, x: _conv(d, x, lags=True),
    "conv by lag of rows apart": lambda d, x: _conv(d, x, 3, dilation=2, lags=True),
    "conv with a row's taps": lambda d, x: _conv(d, x, runs=6),
    "conv with a row's taps by lag": lambda d, x: _conv(d, x, lags=True, runs=3),
    "conv with taps for all columns": lambda d, x: _conv(d, x, lags=True, runs=1),
    "conv with taps for each column": lambda d, x: _conv(d, x, dilation=2, runs=24),
    "conv without an input for taps": lambda d, x: d.node(
        "conv", [x], 24, [d.weight(24, 2)], states=[d.state(24, window=2)], kernel=2, dilation=1, lags=False
    ),
    "conv that keeps all rows": lambda d, x: d.node(
        "conv", [x], 24, [d.weight(24, 2)], states=[d.state(24)], kernel=2, dilation=1, lags=False
    ),
    "conv of a conv": lambda d, x: _conv(d, _conv(d, x), 3, dilation=2),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path)


def test_rows_wide_enough_to_be_shared_by_threads(tmp_path: Path) -> None:
    d = Draft(context=200, seed=3)
    x = _conv(d, d.embed(700), dilation=5)
    check_agreement(d, _conv(d, x, 3, lags=True, runs=35), tmp_path, tokens=TOKENS * 6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    runs, run = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 7))
    kernel, dilation = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    x = d.embed(max(1, runs) * run)
    y = _conv(d, x, kernel, dilation=dilation, lags=data.draw(st.booleans()), runs=runs)
    check_agreement(d, d.node("add", [x, y], d.widths[x]), tmp_path, bound=5e-6)


def _bent(
    weight: tuple[int, ...] = (24, 4), taps: int = 0, state: tuple[int, ...] = (24,), out: int = 24, **attrs: int
) -> Callable[[Draft, int], int]:
    window, every, recurrent = attrs.pop("window", 4), attrs.pop("every", 1), bool(attrs.pop("recurrent", 0))

    def build(d: Draft, x: int) -> int:
        inputs = [x, d.linear(x, taps)] if taps else [x]
        kept = d.state(*state, window=window, every=every, recurrent=recurrent)
        return d.node("conv", inputs, out, [d.weight(*weight)], states=[kept], **{"kernel": 4, **attrs})

    return build


def _shared(d: Draft, x: int) -> int:
    made = {"weights": [d.weight(24, 4)], "states": [d.state(24, window=4)], "kernel": 4}
    return d.node("conv", [d.node("conv", [x], 24, **made)], 24, **made)  # type: ignore[arg-type]


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "result": (_bent(out=12), "width of the result is 12, it must be 24"),
    "weight": (_bent(weight=(24, 3)), "'w1' is [24, 3], it must be [24, 4]"),
    "weight of lags": (_bent(lags=1), "'w1' is [24, 4], it must be [4, 24]"),
    "no kernel": (_bent(kernel=0), "kernel is 0"),
    "huge kernel": (_bent(kernel=2**40), "kernel is"),
    "no dilation": (_bent(dilation=0), "dilation is 0"),
    "huge dilation": (_bent(dilation=2**62), "dilation is"),
    "taps of a part of the kernel": (_bent(taps=6), "kernel is 4, which does not divide 6"),
    "taps of runs that do not fit": (_bent(taps=20), "number of runs is 5, which does not divide 24"),
    "state too narrow": (_bent(state=(23,)), "does not keep the rows"),
    "state in planes": (_bent(state=(12, 12)), "does not keep the rows"),
    "state too short": (_bent(window=3), "keeps 3 rows, 4 are needed"),
    "state too short for the dilation": (_bent(dilation=2), "keeps 4 rows, 7 are needed"),
    "state of runs": (_bent(every=2), "does not keep the rows"),
    "recurrent state": (_bent(recurrent=1, window=0), "does not keep the rows"),
    "state of another": (_shared, "is already used"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
