"""Runs of a row times rows of their own of one weight, natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri.compute.checkpoint import BLOCKS, TOGETHER, Scales, Tensor
from colibri.compute.native import NativeRuntime
from colibri.testing.storage import quantise, values_of

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft, error, run

#: Storage types of whole numbers or small floats that mean little without scales of their own.
CODES = {"i32", "i64", "e4m3", "e8m0", "e2m1", "i8", "u8", "u4"}


def _groups(
    d: Draft, x: int, groups: int, rows: int, *, height: int = 0, first: int = 0, stride: int = 0, dtype: str = "f32"
) -> int:
    stride = stride or rows
    weight = d.weight(height or first + (groups - 1) * stride + rows, d.widths[x] // groups, dtype=dtype)
    attrs = {"groups": groups, "first": first, "stride": stride, "transposed": False}
    return d.node("linear_groups", [x], groups * rows, [weight], **attrs)


def _transposed(
    d: Draft, x: int, groups: int, made: int, *, height: int = 0, first: int = 0, stride: int = 0, dtype: str = "f32"
) -> int:
    rows = d.widths[x] // groups
    stride = stride or rows
    weight = d.weight(height or first + (groups - 1) * stride + rows, made, dtype=dtype)
    attrs = {"groups": groups, "first": first, "stride": stride, "transposed": True}
    return d.node("linear_groups", [x], groups * made, [weight], **attrs)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "runs": lambda d, x: _groups(d, x, 4, 5),
    "one run": lambda d, x: _groups(d, x, 1, 7),
    "runs of one value": lambda d, x: _groups(d, x, 24, 2),
    "one row each": lambda d, x: _groups(d, x, 3, 1),
    "rows between others": lambda d, x: _groups(d, x, 4, 5, first=3, stride=9, height=50),
    "rows that overlap": lambda d, x: _groups(d, x, 4, 5, stride=2),
    "more rows than a panel": lambda d, x: _groups(d, x, 2, 150, first=1, stride=151),
    "transposed": lambda d, x: _transposed(d, x, 4, 5),
    "transposed, one run": lambda d, x: _transposed(d, x, 1, 7),
    "transposed, runs of one value": lambda d, x: _transposed(d, x, 24, 3),
    "transposed, rows between others": lambda d, x: _transposed(d, x, 4, 9, first=2, stride=13, height=60),
    "transposed, rows that overlap": lambda d, x: _transposed(d, x, 4, 9, stride=1),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path)


@pytest.mark.parametrize("name", ["rows between others", "transposed, rows between others"])
def test_more_rows_than_a_block(name: str, tmp_path: Path) -> None:
    draft = Draft(context=200, seed=3)
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path, tokens=TOKENS * 8)


@pytest.mark.parametrize("dtype", sorted(BLOCKS.keys() - CODES - TOGETHER.keys()))
def test_storage_types_agree_with_the_interpreter(dtype: str, tmp_path: Path) -> None:
    """What is left is the rounding of activations to int8 where the type needs that; transposed, nothing is."""
    draft = Draft(seed=5)
    x = draft.embed(512)
    y = _groups(draft, x, 2, 24, first=3, stride=30, dtype=dtype)
    rounded = dtype in ("q8_0", "q4_0", "q5_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
    check_agreement(draft, y, tmp_path, bound=0.03 if rounded else 2e-6)
    draft = Draft(seed=5)
    y = _transposed(draft, draft.embed(64), 4, 256, first=5, stride=19, dtype=dtype)
    check_agreement(draft, y, tmp_path, bound=2e-6)


@pytest.mark.parametrize("dtype", sorted(TOGETHER))
def test_runs_of_interleaved_rows_begin_where_these_do(dtype: str, tmp_path: Path) -> None:
    draft = Draft(seed=6)
    y = _groups(draft, draft.embed(512), 2, 24, first=16, stride=32, height=90, dtype=dtype)
    check_agreement(draft, y, tmp_path, bound=0.03)
    draft = Draft(seed=6)
    check_agreement(
        draft, _transposed(draft, draft.embed(64), 4, 256, first=5, stride=19, dtype=dtype), tmp_path, bound=2e-6
    )
    draft = Draft(seed=6)
    y = _groups(draft, draft.embed(512), 2, 24, first=16, stride=30, height=90, dtype=dtype)
    assert "must begin at multiples" in refusal(draft, y, tmp_path)


@pytest.mark.parametrize("transposed", [False, True])
def test_scales_go_with_the_rows_they_are_for(transposed: bool, tmp_path: Path) -> None:
    """A weight with a grid of scales is the same as one that was multiplied out."""
    random = np.random.default_rng(2)
    codes, grid = random.standard_normal((50, 12)), random.uniform(0.5, 2, (6, 3))
    made = {}
    for plain in (False, True):
        draft = Draft(seed=1)
        x = draft.embed(48)
        y = _transposed(draft, x, 4, 12, height=50) if transposed else _groups(draft, x, 4, 7, first=3, stride=11, height=50)
        plan = draft.plan(y)
        tensors = draft.tensors(tmp_path)
        scaled = _scaled(tmp_path, codes, grid)
        tensors["w1"] = _stored(tmp_path, "plain", "f32", values_of(scaled)) if plain else scaled
        made[plain] = run(NativeRuntime.load(plan, tensors, threads=2), TOKENS, chunk=7)
    assert error(made[False], made[True]) < 2e-6


def _scaled(folder: Path, codes: np.ndarray, grid: np.ndarray) -> Tensor:
    """Rows that take the scales of every second row of a larger matrix, from its third on."""
    tensor = _stored(folder, "codes", "e4m3", codes)
    scales = Scales(_stored(folder, "grid", "f32", grid), block=(20, 5), first=3, every=2)
    return Tensor(tensor.name, tensor.dtype, tensor.shape, tensor.file, tensor.offset, tensor.nbytes, scales=scales)


def _stored(folder: Path, name: str, dtype: str, values: np.ndarray) -> Tensor:
    file = folder / f"{name}.bin"
    file.write_bytes(quantise(dtype, values))
    return Tensor(name, dtype, values.shape, file, 0, file.stat().st_size)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    small = st.integers(1, 9)
    d = Draft(seed=data.draw(st.integers(0, 99)))
    groups, taken, made = data.draw(small), data.draw(small), data.draw(small)
    place = {"first": data.draw(st.integers(0, 4)), "stride": data.draw(small)}
    make = data.draw(st.sampled_from([_groups, _transposed]))
    check_agreement(d, make(d, d.linear(d.embed(8), groups * taken), groups, made, **place), tmp_path, bound=5e-6)


def _bent(height: int, width: int, out: int, **attrs: object) -> Callable[[Draft, int], int]:
    both = {"groups": 4, "first": 0, "stride": 5, "transposed": False, **attrs}
    return lambda d, x: d.node("linear_groups", [x], out, [d.weight(height, width)], **both)  # type: ignore[arg-type]


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "groups of x": (_bent(25, 5, 25, groups=5), "groups is 5, which does not divide 24"),
    "groups of the result": (_bent(20, 6, 21), "groups is 4, which does not divide 21"),
    "no groups": (_bent(20, 6, 20, groups=0), "groups is 0"),
    "columns": (_bent(20, 7, 20), "weight 'w1' has 7 columns for runs of 6"),
    "columns, transposed": (_bent(24, 7, 24, stride=6, transposed=True), "weight 'w1' has 7 columns for runs of 6"),
    "one row too few": (_bent(19, 6, 20), "weight 'w1' has 19 rows, 20 are needed"),
    "one row too few, transposed": (_bent(23, 5, 20, stride=6, transposed=True), "weight 'w1' has 23 rows, 24 are needed"),
    "first too late": (_bent(20, 6, 20, first=1), "weight 'w1' has 20 rows, 21 are needed"),
    "first before": (_bent(20, 6, 20, first=-1), "first is -1"),
    "stride too long": (_bent(20, 6, 20, stride=6), "weight 'w1' has 20 rows, 23 are needed"),
    "no stride": (_bent(20, 6, 20, stride=0), "stride is 0"),
    "stride far too long": (_bent(20, 6, 20, stride=2**31 - 1), "weight 'w1' has 20 rows, 6442450946 are needed"),
    "stride beyond counting": (_bent(20, 6, 20, stride=2**62), "stride is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
