"""Convolutions and memories in the interpreter, against arithmetic done by hand."""

from __future__ import annotations

from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri.compute.plan import State
from colibri.testing.interpreter import InterpretedRuntime

from ..native.plans import Draft, floats, run
from .operation import compute
from .rows import Rows


def _conv(folder: Path, x: Any, weight: Any, *, taps: Any = None, **attrs: Any) -> list[list[float]]:
    width = np.array(x).reshape(len(x), -1).shape[1]
    rows = Rows(len(x), State("rows", (width,)))
    how = {"kernel": 3, "dilation": 1, "lags": False, **attrs}
    inputs = [rows.value(x), -1 if taps is None else rows.value(taps)]
    found: list[list[float]] = rows.run(
        rows.node("conv", inputs, width, [rows.weight(weight)], [0], **how), folder, chunk=3
    ).tolist()
    return found


def test_conv_sums_the_last_rows_by_a_column_s_taps(tmp_path: Path) -> None:
    x = [1, 2, 3, 4, 5]
    assert _conv(tmp_path, x, [[1, 10, 100]]) == [[100], [210], [321], [432], [543]]
    assert _conv(tmp_path, x, [[1, 10, 100]], dilation=2) == [[100], [200], [310], [420], [531]]
    assert _conv(tmp_path, x, [[100], [10], [1]], lags=True) == [[100], [210], [321], [432], [543]]
    assert _conv(tmp_path, [[1, 1], [2, 20]], [[0, 1, 2], [0, 3, 5]]) == [[2, 5], [5, 103]]


def test_taps_of_a_row_are_added_to_those_of_a_run_of_columns(tmp_path: Path) -> None:
    x = [[1, 1, 1, 1], [2, 2, 3, 3]]
    weight = [[100, 200, 300, 400], [10, 20, 30, 40]]  # by lag
    taps = [[1, 2, 3, 4], [5, 6, 7, 8]]  # two runs of two taps
    by_lag = [[101, 201, 303, 403], [2 * 105 + 16, 2 * 205 + 26, 3 * 307 + 38, 3 * 407 + 48]]
    assert _conv(tmp_path, x, weight, taps=taps, kernel=2, lags=True) == by_lag
    # The other way round, taps end in the row's own as weights do.
    turned = [[tap for run in (row[1::-1], row[:1:-1]) for tap in run] for row in taps]
    assert _conv(tmp_path, x, np.array(weight[::-1]).T, taps=turned, kernel=2) == by_lag


def _delta(folder: Path, q: Any, k: Any, v: Any, decay: Any, beta: Any, *, heads: int = 1, keys: int = 1) -> Any:
    count, width = len(v), np.array(v).reshape(len(v), -1).shape[1]
    rows = Rows(count, State("recurrent", (np.array(k).shape[1] // keys * width,)))
    inputs = [rows.value(x) for x in (q, k, v, decay, beta)]
    return rows.run(rows.node("delta", inputs, width, [], [0], heads=heads, key_heads=keys), folder, chunk=2)


def test_delta_keeps_what_was_written_and_corrects_it(tmp_path: Path) -> None:
    """S becomes [6, 8]; then half of that, 3 read of 5 is corrected by half: [4, 4]; then [0, 4]."""
    q, k = [[1, 0], [0, 2], [1, 0]], [[3, 4], [1, 0], [7, 0]]
    found = _delta(tmp_path, q, k, [10, 5, 0], [0, log(0.5), 0], [1, 0.5, 1])
    assert found[:, 0].tolist() == pytest.approx([6 / sqrt(2), 4 / sqrt(2), 0], abs=1e-5)


def test_delta_fades_each_row_of_a_memory_by_itself(tmp_path: Path) -> None:
    """S is [6, 8], then [3, 8], of which 3 is made 4."""
    q, k, decay = [[1, 0], [0, 2], [1, 0]], [[3, 4], [1, 0], [0, 1]], [[0, 0], [log(0.5), 0], [0, 0]]
    found = _delta(tmp_path, q, k, [10, 5, 8], decay, [1, 0.5, 1])
    assert found[:, 0].tolist() == pytest.approx([6 / sqrt(2), 8 / sqrt(2), 4 / sqrt(2)], abs=1e-5)


def test_delta_recalls_what_belongs_to_a_key(tmp_path: Path) -> None:
    """Keys at right angles do not disturb each other; what is written again replaces what was there."""
    k = [[2, 0, 0], [0, 3, 0], [0, 0, 4], [5, 0, 0]]
    q = [[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]]
    v = [[1, -1], [2, -2], [3, -3], [4, -4]]
    found = _delta(tmp_path, q, k, v, [0] * 4, [1] * 4) * sqrt(3)
    np.testing.assert_allclose(found, [v[0], v[0], v[1], v[3]], atol=1e-5)


def test_runs_of_heads_share_a_key(tmp_path: Path) -> None:
    q, k = [[1, 1], [-1, 1]], [[1, 1], [1, -1]]  # two keys of one number
    found = _delta(
        tmp_path, q, k, [[1, 2, 3, 4], [0, 0, 0, 0]], [[0] * 4, [log(2)] * 4], [[1] * 4, [0] * 4], heads=4, keys=2
    )
    np.testing.assert_allclose(found, [[1, 2, 3, 4], [-2, -4, 6, 8]], rtol=1e-5)


def test_a_memory_begins_anew_at_position_0_and_goes_back(tmp_path: Path) -> None:
    d = Draft(seed=1)
    x = d.embed(6)
    state = d.state(12, recurrent=True)
    inputs = [d.linear(x, width) for width in (2, 2, 6, 1, 1)]
    plan = d.plan(d.node("delta", inputs, 6, states=[state], heads=1, key_heads=1))
    runtime = InterpretedRuntime(plan, d.tensors(tmp_path), slots=2)
    whole = run(runtime, range(12), chunk=5)
    assert runtime.rewind(0, 7) == 7
    np.testing.assert_allclose(floats(run(runtime, range(7, 12), chunk=2, start=7)), floats(whole[7:]), rtol=1e-5)
    assert runtime.copy(0, 1, 9) == 9
    np.testing.assert_allclose(floats(run(runtime, range(9, 12), chunk=1, slot=1, start=9)), floats(whole[9:]), rtol=1e-5)
    np.testing.assert_allclose(floats(run(runtime, range(12), chunk=12, slot=1)), floats(whole), rtol=1e-5)


@pytest.mark.parametrize(("log_of", "a"), [(True, [log(2), log(3), 99]), (False, [-2, -3, 99])])
def test_decay(log_of: bool, a: list[float]) -> None:
    x, bias = [[1.0, -2, 3, 0]], [0.5, 0, -3, 1]
    plus = [log(1 + exp(z)) for z in (1.5, -2, 0, 1)]
    (found,) = compute("decay", x, weights=[a, bias], attrs={"heads": 2, "bound": 0.0, "log": log_of})
    assert found == pytest.approx([-2 * plus[0], -2 * plus[1], -3 * plus[2], -3 * plus[3]])
    (found,) = compute("decay", x, weights=[a, bias], attrs={"heads": 2, "bound": -5.0, "log": log_of})
    assert found == pytest.approx([-5 / (1 + exp(-z)) for z in (2 * 1.5, 2 * -2, 0, 3)])
