"""Rows, or runs of them, brought to a size natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft


def _rms(d: Draft, x: int, length: int = 0, **attrs: float) -> int:
    return d.node("rms_norm", [x], d.widths[x], [d.weight(length) if length else -1], **{"eps": 1e-5, "group": 0, **attrs})


def _layer(d: Draft, x: int, eps: float = 1e-5, dtype: str = "f32") -> int:
    width = d.widths[x]
    return d.node("layer_norm", [x], width, [d.weight(width, dtype=dtype), d.weight(width, dtype=dtype)], eps=eps)


def _clip(d: Draft, x: int, group: int, limit: float) -> int:
    return d.node("l2_clip", [x], d.widths[x], group=group, limit=limit)


def _softmax(d: Draft, x: int, group: int) -> int:
    return d.node("softmax", [x], d.widths[x], group=group)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "rms_norm without weight": lambda d, x: _rms(d, x),
    "rms_norm of runs without weight": lambda d, x: _rms(d, x, group=6),
    "rms_norm of runs": lambda d, x: _rms(d, x, 6, group=6),
    "rms_norm of runs with the row's weight": lambda d, x: _rms(d, x, 24, group=6),
    "rms_norm about 1": lambda d, x: _rms(d, x, 24, unit=True),
    "rms_norm of runs about 1": lambda d, x: _rms(d, x, 8, group=8, unit=True),
    "rms_norm of runs about 1 with the row's weight": lambda d, x: _rms(d, x, 24, group=8, unit=True),
    "layer_norm": lambda d, x: _layer(d, x),
    "layer_norm of stored bf16": lambda d, x: _layer(d, x, 0.5, "bf16"),
    "layer_norm of one value": lambda d, x: _layer(d, d.linear(x, 1)),
    "l2_clip": lambda d, x: _clip(d, x, 24, 0.9),
    "l2_clip of runs": lambda d, x: _clip(d, x, 4, 0.3),
    "l2_clip of what is short": lambda d, x: _clip(d, x, 8, 1000.0),
    "softmax": lambda d, x: _softmax(d, x, 24),
    "softmax of runs": lambda d, x: _softmax(d, x, 3),
    "softmax of single values": lambda d, x: _softmax(d, x, 1),
    "softmax of large values": lambda d, x: _softmax(d, d.node("scale", [x], 24, factor=90.0, shift=1e4), 12),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    bound = 2e-3 if name == "softmax of large values" else 2e-6  # the shift costs its inputs their last digits
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path, bound=bound)


def test_rows_wide_enough_to_be_shared_by_threads(tmp_path: Path) -> None:
    d = Draft(context=200, seed=3)
    x = d.embed(520)
    x = d.node("concat", [_layer(d, x), _clip(d, x, 40, 1.5), _softmax(d, x, 65), _rms(d, x, 520, group=52)], 2080, groups=1)
    check_agreement(d, d.node("add", [_layer(d, x), _softmax(d, x, 2080)], 2080), tmp_path, tokens=TOKENS * 6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    group, runs = data.draw(st.integers(2, 20)), data.draw(st.integers(1, 5))
    width = group * runs
    x = d.linear(d.embed(16), width)
    weight = data.draw(st.sampled_from([0, group, width]))
    normed = _rms(d, x, weight, group=group, unit=data.draw(st.booleans()), eps=data.draw(st.floats(1e-6, 1)))
    parts = [normed, _clip(d, x, group, data.draw(st.floats(0.1, 9))), _softmax(d, x, group), _layer(d, x, 0.01)]
    check_agreement(d, d.node("concat", parts, 4 * width, groups=runs), tmp_path, bound=5e-6)


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "rms_norm: group": (lambda d, x: _rms(d, x, 5, group=5), "24 is no multiple of group 5"),
    "rms_norm: weight": (lambda d, x: _rms(d, x, 8, group=6), "'w1' is [1, 8], it must be [1, 6]"),
    "rms_norm: eps": (lambda d, x: _rms(d, x, 24, eps=-1.0), "eps is -1, it must not be negative"),
    "rms_norm: result": (lambda d, x: d.node("rms_norm", [x], 8, [-1], eps=1.0), "width of the result is 8, it must be 24"),
    "layer_norm: weight": (lambda d, x: d.node("layer_norm", [x], 24, [d.weight(23), d.weight(24)], eps=0.1), "is [1, 23]"),
    "layer_norm: bias": (lambda d, x: d.node("layer_norm", [x], 24, [d.weight(24), d.weight(23)], eps=0.1), "is [1, 23]"),
    "layer_norm: no bias": (lambda d, x: d.node("layer_norm", [x], 24, [d.weight(24), -1], eps=0.1), "no weight -1"),
    "layer_norm: eps": (lambda d, x: _layer(d, x, -0.1), "eps is -0.1, it must not be negative"),
    "layer_norm: result": (lambda d, x: d.node("layer_norm", [x], 12, [d.weight(24)] * 2, eps=0.1), "it must be 24"),
    "l2_clip: group": (lambda d, x: _clip(d, x, 9, 1.0), "group is 9, which does not divide 24"),
    "l2_clip: no group": (lambda d, x: _clip(d, x, 0, 1.0), "group is 0"),
    "l2_clip: limit": (lambda d, x: _clip(d, x, 8, 0.0), "limit is 0, it must be above 0"),
    "l2_clip: no limit": (lambda d, x: d.node("l2_clip", [x], 24, group=8), "limit is missing"),
    "softmax: group": (lambda d, x: _softmax(d, x, 48), "group is 48, which does not divide 24"),
    "softmax: result": (lambda d, x: d.node("softmax", [x], 1, group=24), "width of the result is 1, it must be 24"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
