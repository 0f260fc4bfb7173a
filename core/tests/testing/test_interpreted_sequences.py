"""Attention in the interpreter, against arithmetic done by hand. Scores are logarithms, so that shares are simple."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import pytest

from colibri.compute.plan import State

from .rows import Rows

# Keys [score, value]; with queries [1, 0] a row's share is its number among the others', and the value is the second.
KEYS = [[log(1), 10], [log(2), 20], [log(3), 30], [log(4), 40]]
QUERIES = [[1, 0]] * 4
WHOLE = [10, 50 / 3, 140 / 6, 300 / 10]


def _attention(
    rows: Rows,
    folder: Path,
    *,
    sinks: Any = None,
    sink: Any = None,
    distance: Any = None,
    profile: Any = None,
    select: int = -1,
    states: tuple[int, ...] = (0,),
    **attrs: Any,
) -> Any:
    """The values of every row."""
    inputs = [rows.value(QUERIES), rows.value(KEYS), -1, select]
    inputs += [-1 if x is None else rows.value(x) for x in (sink, distance)]
    weights = [-1 if w is None else rows.weight(w) for w in (sinks, profile)]
    how = {"heads": 1, "kv_heads": 1, "scale": 1.0, "window": 0, "every": 1, **attrs}
    return rows.run(rows.node("attention", inputs, 2, weights, states, **how), folder, chunk=3)[:, 1].tolist()


def _plain() -> Rows:
    return Rows(4, State("rows", (2,)))


def test_a_key_may_hold_its_value(tmp_path: Path) -> None:
    assert _attention(_plain(), tmp_path) == pytest.approx(WHOLE)
    assert _attention(_plain(), tmp_path, window=2) == pytest.approx([10, 50 / 3, 130 / 5, 250 / 7])


def test_a_sink_takes_a_share_and_gives_no_value(tmp_path: Path) -> None:
    assert _attention(_plain(), tmp_path, sinks=[log(2)]) == pytest.approx([10 / 3, 50 / 5, 140 / 8, 300 / 12])
    each = [log(1), log(3), log(4), log(90)]
    assert _attention(_plain(), tmp_path, sink=each) == pytest.approx([10 / 2, 50 / 6, 140 / 10, 300 / 100])


def test_logits_gain_by_how_far_back_the_key_stands(tmp_path: Path) -> None:
    profile = [[log(2), log(1), log(5)], [0, log(3), 0]]  # by distance: 2, 1, 5 and 1, 3, 1, then nothing
    found = _attention(_plain(), tmp_path, distance=[[1, 0], [1, 0], [1, 1], [0, 2]], profile=profile)
    assert found == pytest.approx(
        [
            10,
            (1 * 10 + 4 * 20) / 5,
            (5 * 10 + 6 * 20 + 6 * 30) / 17,
            (10 + 2 * 20 + 27 * 30 + 4 * 40) / 34,
        ]
    )


def test_only_selected_rows_are_seen(tmp_path: Path) -> None:
    rows = Rows(4, State("rows", (2,)), State("rows", (1,)))
    inputs = [rows.value([1] * 4), rows.value([7, 1, 5, 6])]
    attrs = {"heads": 1, "scale": 1.0, "budget": 2, "every": 1, "expand": False}
    select = rows.node("select", inputs, 2, states=[1], **attrs)
    found = _attention(rows, tmp_path, select=select)
    assert found == pytest.approx([10, 50 / 3, 100 / 4, 170 / 5])
    rows = Rows(4, State("rows", (2,)), State("rows", (1,)))
    select = rows.node("select", [rows.value([1] * 4), rows.value([7, 1, 5, 6])], 2, states=[1], **attrs)
    found = _attention(rows, tmp_path, select=select, distance=[[1]] * 4, profile=[[0, 0, log(2)]], sinks=[log(1)])
    assert found == pytest.approx([10 / 2, 50 / 4, 110 / 6, 170 / 6])


def test_pooled_rows_are_seen_besides_the_window(tmp_path: Path) -> None:
    def pooled() -> Rows:
        rows = Rows(
            4,
            State("rows", (2,), window=2),
            State("rows", (2,), window=2),
            State("rows", (2,), every=2),
            State("rows", (1,)),
        )
        pooled = rows.value([[log(5), 100], [log(5), 100], [log(2), 1], [log(8), 3]])
        rows.node("pool", [pooled], 0, states=[1, 2], every=2, overlap=False, eps=0.0, unit=False)
        return rows

    found = _attention(pooled(), tmp_path, states=(0, 2), window=2, every=2)
    # Once complete, the first run has 5 shares of 100 and the second 4 of 2.
    assert found == pytest.approx([10, (50 + 500) / 8, (130 + 500) / 10, (250 + 500 + 8) / 16])
    found = _attention(pooled(), tmp_path, states=(0, 2), window=1, every=2, sinks=[log(3)])
    assert found == pytest.approx([10 / 4, (40 + 500) / 10, (90 + 500) / 11, (160 + 500 + 8) / 16])


def test_selected_pooled_rows_are_seen_besides_the_window(tmp_path: Path) -> None:
    states = (State("rows", (2,), every=2), State("rows", (1,), window=2), State("rows", (1,), every=2))
    rows = Rows(4, State("rows", (2,), window=1), State("rows", (2,), window=2), *states)
    attrs = {"every": 2, "overlap": False, "eps": 0.0, "unit": False}
    values = rows.value([[log(5), 100], [log(5), 100], [log(2), 1], [log(8), 3]])
    rows.node("pool", [values], 0, states=[1, 2], **attrs)
    rows.node("pool", [rows.value([1, 1, 2, 2])], 0, states=[3, 4], **attrs)
    query = rows.value([1] * 4)
    select = rows.node("select", [query], 1, states=[4], heads=1, scale=1.0, budget=1, every=2, expand=False)
    found = _attention(rows, tmp_path, select=select, states=(0, 2), window=1, every=2)
    assert found == pytest.approx([10, (40 + 500) / 7, (90 + 500) / 8, (160 + 8) / 8])


def test_heads_with_keys_and_values_of_their_own(tmp_path: Path) -> None:
    rows = Rows(2, State("rows", (1, 1, 2, 2)))
    q, k = rows.value([[1, 2, 1, 2]] * 2), rows.value([[log(1), log(1)], [log(2), log(3)]])
    v = rows.value([[1, 2, 3, 4], [10, 20, 30, 40]])
    sinks = rows.weight([log(1), log(2), log(3), log(4)])
    attrs = {"heads": 4, "kv_heads": 2, "scale": 1.0, "window": 0, "every": 1}
    found = rows.run(rows.node("attention", [q, k, v], 8, [sinks], [0], **attrs), tmp_path)[1].tolist()
    # Heads 0 and 1 weigh the second row by 2 and 2^2, heads 2 and 3 by 3 and 3^2.
    shares = [(1, 2, 1), (1, 4, 2), (1, 3, 3), (1, 9, 4)]
    expected = []
    for (one, two, sink), (a, b) in zip(shares, [((1, 2), (10, 20))] * 2 + [((3, 4), (30, 40))] * 2, strict=True):
        expected += [(one * x + two * y) / (one + two + sink) for x, y in zip(a, b, strict=True)]
    assert found == pytest.approx(expected)
