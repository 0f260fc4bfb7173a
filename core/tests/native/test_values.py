"""Parts of rows, and sums of them, natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft


def _mix(d: Draft, x: int, n: int) -> int:
    return d.node("mix", [x, d.linear(x, n)], d.widths[x] // n, n=n)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "slice of a row": lambda d, x: d.node("slice", [x], 5, group=24, offset=7, width=5),
    "slice of runs": lambda d, x: d.node("slice", [x], 12, group=6, offset=3, width=3),
    "slice of all": lambda d, x: d.node("slice", [x], 24, group=24, offset=0, width=24),
    "slice of one value": lambda d, x: d.node("slice", [x], 3, group=8, offset=7, width=1),
    "concat": lambda d, x: d.node("concat", [x, d.linear(x, 9)], 33, groups=1),
    "concat of runs": lambda d, x: d.node("concat", [d.linear(x, 9), x, d.linear(x, 3)], 36, groups=3),
    "concat with itself": lambda d, x: d.node("concat", [x, x], 48, groups=4),
    "concat of one": lambda d, x: d.node("concat", [x], 24, groups=1),
    "tile": lambda d, x: d.node("tile", [x], 72, times=3),
    "tile of one value": lambda d, x: d.node("tile", [d.linear(x, 1)], 7, times=7),
    "sum of runs": lambda d, x: d.node("sum", [x], 3, group=8),
    "sum of a row": lambda d, x: d.node("sum", [x], 1, group=24),
    "sum of single values": lambda d, x: d.node("sum", [x], 24, group=1),
    "mean": lambda d, x: d.node("mix", [x, -1], 8, n=3),
    "mean without a second input": lambda d, x: d.node("mix", [x], 24, n=1),
    "mix": lambda d, x: _mix(d, x, 4),
    "mix of single values": lambda d, x: _mix(d, x, 24),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path)


def test_rows_wide_enough_to_be_shared_by_threads(tmp_path: Path) -> None:
    d = Draft(context=200, seed=3)
    x = d.embed(520)
    x = d.node("concat", [d.node("slice", [x], 260, group=4, offset=1, width=2), x], 780, groups=130)
    x = d.node("tile", [x], 2340, times=3)
    x = d.node("concat", [_mix(d, x, 9), d.node("mix", [x, -1], 468, n=5), d.node("sum", [x], 52, group=45)], 780, groups=1)
    check_agreement(d, x, tmp_path, tokens=TOKENS * 6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    small = st.integers(1, 12)
    d = Draft(seed=data.draw(st.integers(0, 99)))
    runs, group = data.draw(small), data.draw(small)
    x = d.embed(runs * group)
    width = data.draw(st.integers(1, group))
    offset = data.draw(st.integers(0, group - width))
    y = d.node("slice", [x], runs * width, group=group, offset=offset, width=width)
    z = d.node("tile", [y], runs * width * 3, times=3)
    both = d.node("concat", [z, x, z], runs * (6 * width + group), groups=runs)
    mixed = _mix(d, both, runs)
    check_agreement(
        d, d.node("concat", [mixed, d.node("sum", [x], runs, group=group)], 6 * width + group + runs, groups=1), tmp_path
    )


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "slice: no whole runs": (lambda d, x: d.node("slice", [x], 4, group=5, offset=0, width=1), "group is 5, which does not"),
    "slice: no group": (lambda d, x: d.node("slice", [x], 1, group=0, offset=0, width=1), "group is 0"),
    "slice: group missing": (lambda d, x: d.node("slice", [x], 1, offset=0, width=1), "group is missing"),
    "slice: beyond the run": (lambda d, x: d.node("slice", [x], 6, group=8, offset=7, width=2), "offset is 7, it must be"),
    "slice: before the run": (lambda d, x: d.node("slice", [x], 3, group=8, offset=-1, width=1), "offset is -1"),
    "slice: too wide": (lambda d, x: d.node("slice", [x], 27, group=8, offset=0, width=9), "width is 9, it must be 1 to 8"),
    "slice: result": (lambda d, x: d.node("slice", [x], 7, group=8, offset=0, width=2), "result is 7, it must be 6"),
    "concat: no groups": (lambda d, x: d.node("concat", [x, x], 48, groups=0), "groups is 0"),
    "concat: groups": (lambda d, x: d.node("concat", [x, d.linear(x, 5)], 29, groups=4), "groups is 4, which does not"),
    "concat: result": (lambda d, x: d.node("concat", [x, x], 47, groups=1), "width of the result is 47, it must be 48"),
    "concat: nothing": (lambda d, x: d.node("concat", [], 1, groups=1), "takes 1 or more inputs, not 0"),
    "concat: an absent input": (lambda d, x: d.node("concat", [x, -1], 24, groups=1), "no value -1"),
    "tile: times": (lambda d, x: d.node("tile", [x], 1, times=0), "times is 0"),
    "tile: result": (lambda d, x: d.node("tile", [x], 49, times=2), "width of the result is 49, it must be 48"),
    "tile: far too often": (lambda d, x: d.node("tile", [x], 24, times=2**31), "times is 2147483648"),
    "sum: group": (lambda d, x: d.node("sum", [x], 4, group=7), "group is 7, which does not divide 24"),
    "sum: result": (lambda d, x: d.node("sum", [x], 4, group=8), "width of the result is 4, it must be 3"),
    "mix: n": (lambda d, x: d.node("mix", [x, -1], 4, n=5), "n is 5, which does not divide 24"),
    "mix: none": (lambda d, x: d.node("mix", [x, -1], 24, n=0), "n is 0"),
    "mix: shares": (lambda d, x: d.node("mix", [x, d.linear(x, 3)], 6, n=4), "width of shares is 3, it must be 4"),
    "mix: result": (lambda d, x: d.node("mix", [x, -1], 8, n=4), "width of the result is 8, it must be 6"),
    "mix: unknown attribute": (lambda d, x: d.node("mix", [x, -1], 6, n=4, mean=True), "unknown attribute 'mean'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
