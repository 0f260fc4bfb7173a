"""Pooled and selected rows in the interpreter, against arithmetic done by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.plan import State

from .rows import Rows


def _pooled(
    folder: Path, x: list[Any], every: int, gate: Any = None, *, ape: Any = None, norm: Any = None, **attrs: Any
) -> Any:
    """The pooled rows, as the last position's selection of them shows: their products with 1, one column after another."""
    wide = 1 if isinstance(x[0], (int, float)) else len(x[0])
    width = wide // 2 if attrs.get("overlap") else wide
    kept = State("rows", (wide * (1 if gate is None else 2),), window=every * (2 if attrs.get("overlap") else 1))
    rows = Rows(len(x), kept, State("rows", (width,), every=every), State("rows", (width,)))
    inputs = [rows.value(x), -1 if gate is None else rows.value(gate)]
    weights = [-1 if w is None else rows.weight(w) for w in (ape, norm)]
    rows.node("pool", inputs, 0, weights, [0, 1], **{"every": every, "overlap": False, "eps": 0.0, "unit": False, **attrs})
    # One value a column is enough for attention to show a row: what is seen besides is zero, and its logit beyond reach.
    nothing = rows.value([[0.0] * width] * len(x))
    sees = {"heads": 1, "kv_heads": 1, "scale": 1.0, "window": 1, "every": every}
    rows.node("attention", [nothing, nothing], width, states=[2, 1], **sees)
    shown = rows.run(len(rows.widths) - 1, folder, chunk=3)
    # Equal logits: the mean over the complete rows and one zero row.
    sums = [shown[i] * (1 + (i + 1) // every) for i in range(len(x))]
    last = [sums[(run + 1) * every - 1] for run in range(len(x) // every)]
    return [(b - a).tolist() for a, b in zip([0 * last[0], *last], last, strict=False)]


def test_a_mean_of_complete_runs(tmp_path: Path) -> None:
    assert _pooled(tmp_path, [1, 2, 6, 3, 3, 9, 100, 100], 3) == [[3], [5]]


def test_gates_weigh_by_column(tmp_path: Path) -> None:
    third = math.log(3)
    found = _pooled(tmp_path, [[1, 10], [5, 20]], 2, [[0, third], [0, 0]])
    assert found == [pytest.approx([3, 12.5])]
    found = _pooled(tmp_path, [[1, 10], [5, 20]], 2, [[0, third], [0, 0]], ape=[[0, -third], [third, 0]])
    assert found == [pytest.approx([4, 15])]


def test_a_run_is_joined_by_the_first_halves_of_the_run_before(tmp_path: Path) -> None:
    x = [[1, 10], [2, 20], [4, 40], [8, 80]]
    found = _pooled(tmp_path, x, 2, [[0, 0]] * 4, overlap=True)
    assert found == [pytest.approx([15]), pytest.approx([(1 + 2 + 40 + 80) / 4])]
    third = math.log(3)  # before the first run there is nothing, not rows of zeros
    found = _pooled(tmp_path, x, 2, [[third, 0]] * 4, overlap=True, ape=[[0, 0], [0, third]])
    assert found == [pytest.approx([(10 + 3 * 20) / 4]), pytest.approx([(3 * 1 + 3 * 2 + 40 + 3 * 80) / 10])]


def test_norm_and_rope_at_the_first_position(tmp_path: Path) -> None:
    assert _pooled(tmp_path, [[2, 6], [4, 2]], 2, norm=[1, 2]) == [
        pytest.approx([3 / math.sqrt(12.5), 2 * 4 / math.sqrt(12.5)])
    ]
    assert _pooled(tmp_path, [[2, 6], [4, 2]], 2, norm=[1, 2], unit=True, eps=0.5) == [
        pytest.approx([2 * 3 / math.sqrt(13), 3 * 4 / math.sqrt(13)])
    ]
    turn = {"inv_freq": (math.pi / 4,), "offset": 0, "factor": 2.0, "interleaved": True}
    found = _pooled(tmp_path, [[1, 2]] * 4, 2, **turn)
    assert found == [pytest.approx([2, 4]), pytest.approx([-4, 2])]  # position 2: a quarter turn


def _selected(folder: Path, keys: list[float], queries: Any, weights: Any = None, **attrs: Any) -> list[list[int]]:
    rows = Rows(len(keys), State("rows", (1,)))
    made = {"heads": 1, "scale": 1.0, "budget": 2, "every": 1, "expand": False, **attrs}
    inputs = [rows.value(queries), rows.value(keys), -1 if weights is None else rows.value(weights)]
    found = rows.run(rows.node("select", inputs, made["budget"], states=[0], **made), folder, chunk=2)
    return found.astype(int).tolist()


def test_the_best_rows_so_far_in_rising_order(tmp_path: Path) -> None:
    assert _selected(tmp_path, [3, 1, 2, 5], [1] * 4) == [[0, -1], [0, 1], [0, 2], [0, 3]]
    assert _selected(tmp_path, [3, 1, 2, 5], [1] * 4, budget=3, scale=-1.0)[3] == [0, 1, 2]  # all are below zero


def test_heads_are_weighed_after_what_is_below_zero_is_left_out(tmp_path: Path) -> None:
    keys, queries = [1, -1, 2, -3], [[1, -1]] * 4
    assert _selected(tmp_path, keys, queries, heads=2)[3] == [2, 3]  # 1 1 2 3
    assert _selected(tmp_path, keys, queries, [[1, -1]] * 4, heads=2)[3] == [0, 2]  # 1 -1 2 -3
    assert _selected(tmp_path, keys, queries, [[0, 0.5]] * 4, heads=2)[3] == [1, 3]


def test_ties_go_to_the_lower_row(tmp_path: Path) -> None:
    assert _selected(tmp_path, [1, 2, 1, 2, 1], [1] * 5, budget=3)[4] == [0, 1, 3]


def test_runs_are_selected_once_they_are_complete(tmp_path: Path) -> None:
    x = [1, 1, 9, 9, 5, 5, 0]
    for expand, expected in (
        (False, [[-1], [0], [0], [1], [1], [1], [1]]),
        (True, [[0, -1, -1], [0, 1, -1], [0, 1, 2], [2, 3, -1], [2, 3, 4], [2, 3, -1], [2, 3, 6]]),
    ):
        rows = Rows(7, State("rows", (1,), window=2), State("rows", (1,), every=2))
        rows.node("pool", [rows.value(x)], 0, states=[0, 1], every=2, overlap=False, eps=0.0, unit=False)
        attrs = {"heads": 1, "scale": 1.0, "budget": 1, "every": 2, "expand": expand}
        chosen = rows.node("select", [rows.value([1] * 7)], 3 if expand else 1, states=[1], **attrs)
        assert rows.run(chosen, tmp_path, chunk=4).astype(int).tolist() == expected
