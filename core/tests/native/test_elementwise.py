"""One value at a time, natively; values meet weights, a function or their row's position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft

KINDS: dict[str, dict[str, float]] = {
    "silu": {},
    "sigmoid": {"limit": 0.0},
    "softplus": {},
    "tanh": {},
    "softcap": {"limit": 0.7},
    "root": {"limit": 0.05},
}


def _activate(d: Draft, x: int, kind: str, **attrs: float) -> int:
    return d.node("activate", [x], d.widths[x], kind=kind, **attrs)


def _weigh(d: Draft, x: int, op: str, length: int, dtype: str = "f32") -> int:
    return d.node(op, [x], d.widths[x], [d.weight(length, dtype=dtype)])


def _run_meets(d: Draft, x: int, op: str, runs: int) -> int:
    """x and a narrower value of which nothing else is made."""
    return d.node("add", [x, d.node(op, [x, d.linear(x, runs)], d.widths[x])], d.widths[x])


OPS: dict[str, Callable[[Draft, int], int]] = {
    **{kind: lambda d, x, kind=kind: _activate(d, x, kind, **KINDS[kind]) for kind in KINDS},  # type: ignore[misc]
    "softplus of large values": lambda d, x: _activate(d, d.node("scale", [x], 24, factor=200.0), "softplus"),
    "sigmoid of large values": lambda d, x: _activate(d, d.node("scale", [x], 24, factor=200.0), "sigmoid"),
    "silu of large values": lambda d, x: _activate(d, d.node("scale", [x], 24, factor=-200.0), "silu"),
    "add_weight": lambda d, x: _weigh(d, x, "add_weight", 24),
    "add_weight of runs": lambda d, x: _weigh(d, x, "add_weight", 8),
    "mul_weight": lambda d, x: _weigh(d, x, "mul_weight", 24, "bf16"),
    "mul_weight of one number": lambda d, x: _weigh(d, x, "mul_weight", 1),
    "log_scale": lambda d, x: d.node("log_scale", [x], 24, floor=4.0, alpha=0.3),
    "log_scale later on": lambda d, x: d.node("log_scale", [x], 24, floor=100.0, alpha=0.3),
    "log_scale after attention": lambda d, x: d.node(
        "log_scale", [d.attend(x, heads=2, kv_heads=1, dim=8)], 24, floor=0.5, alpha=-0.1
    ),
    "add of a narrower value": lambda d, x: _run_meets(d, x, "add", 3),
    "mul by one number": lambda d, x: _run_meets(d, x, "mul", 1),
    "shift": lambda d, x: d.node("scale", [x], 24, factor=0.5, shift=1.25),
    "glu with a limit": lambda d, x: d.node("glu", [x, d.linear(x, 24)], 24, kind="silu", limit=0.6),
    "situ": lambda d, x: d.node("glu", [x, d.linear(x, 24)], 24, kind="situ", beta=0.5, linear_beta=1.5),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path)


@pytest.mark.parametrize("runs", [2, 4, 8])
@pytest.mark.parametrize("op", ["add", "mul"])
def test_a_narrower_value_may_take_as_much_memory_as_the_result(op: str, runs: int, tmp_path: Path) -> None:
    """Both are padded to the same size: the result must not be written where the narrower one is still read."""
    draft = Draft(seed=runs)
    check_agreement(draft, _run_meets(draft, draft.embed(16), op, runs), tmp_path)


def test_rows_wide_enough_to_be_shared_by_threads(tmp_path: Path) -> None:
    d = Draft(context=200, seed=3)
    x = d.embed(520)
    for kind, attrs in KINDS.items():
        x = d.node("add", [x, _activate(d, x, kind, **attrs)], 520)
    x = _weigh(d, _weigh(d, x, "add_weight", 104), "mul_weight", 520)
    check_agreement(d, d.node("log_scale", [x], 520, floor=30.0, alpha=0.2), tmp_path, tokens=TOKENS * 6)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    small = st.integers(1, 9)
    d = Draft(seed=data.draw(st.integers(0, 99)))
    length, times = data.draw(small), data.draw(small)
    x = d.embed(length * times)
    x = _weigh(d, x, data.draw(st.sampled_from(["add_weight", "mul_weight"])), length)
    kind = data.draw(st.sampled_from(list(KINDS)))
    x = d.node("add", [x, _activate(d, x, kind, **KINDS[kind])], length * times)
    floor, alpha = data.draw(st.floats(0.25, 50)), data.draw(st.floats(-0.25, 2))
    check_agreement(d, d.node("log_scale", [x], length * times, floor=floor, alpha=alpha), tmp_path, bound=5e-6)


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "add_weight: length": (lambda d, x: _weigh(d, x, "add_weight", 7), "length of the weight is 7, which does not"),
    "mul_weight: length": (lambda d, x: _weigh(d, x, "mul_weight", 48), "length of the weight is 48"),
    "mul_weight: a matrix": (lambda d, x: d.node("mul_weight", [x], 24, [d.weight(2, 24)]), "'w1' is [2, 24]"),
    "mul_weight: none": (lambda d, x: d.node("mul_weight", [x], 24), "takes 1 weights, not 0"),
    "add_weight: absent": (lambda d, x: d.node("add_weight", [x], 24, [-1]), "no weight -1"),
    "add_weight: result": (lambda d, x: d.node("add_weight", [x], 23, [d.weight(1)]), "width of x is 24, it must be 23"),
    "activate: kind": (lambda d, x: _activate(d, x, "gelu"), "kind 'gelu' is unknown"),
    "activate: no kind": (lambda d, x: d.node("activate", [x], 24), "kind '' is unknown"),
    "activate: no cap": (lambda d, x: _activate(d, x, "softcap"), "limit is missing"),
    "activate: a cap of 0": (lambda d, x: _activate(d, x, "softcap", limit=0.0), "limit is 0, it must be above 0"),
    "activate: a root from below 0": (lambda d, x: _activate(d, x, "root", limit=-1.0), "limit is -1, it must be above 0"),
    "activate: no number": (lambda d, x: _activate(d, x, "root", limit=float("nan")), "limit is nan"),
    "activate: result": (lambda d, x: d.node("activate", [x], 12, kind="silu"), "width of x is 24, it must be 12"),
    "log_scale: floor": (lambda d, x: d.node("log_scale", [x], 24, floor=0.0, alpha=1.0), "floor is 0, it must be above 0"),
    "log_scale: alpha": (lambda d, x: d.node("log_scale", [x], 24, floor=1.0, alpha=float("inf")), "alpha is inf"),
    "log_scale: no alpha": (lambda d, x: d.node("log_scale", [x], 24, floor=1.0), "alpha is missing"),
    "log_scale: result": (lambda d, x: d.node("log_scale", [x], 25, floor=1.0, alpha=1.0), "width of x is 24"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
