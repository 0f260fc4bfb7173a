"""The choice among rows, natively. Its numbers are values like others: the head turns them into logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri import _native
from colibri.compute.native import NativeRuntime
from colibri.testing.interpreter import InterpretedRuntime

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft, error, run


def _pooled(d: Draft, x: int, every: int, budget: int, *, expand: bool = False, **how: Any) -> int:
    return d.select(x, budget, every=every, expand=expand, pooled=d.pool(x, 6, every, ape=True), **how)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "the best": lambda d, x: d.select(x, 1),
    "some": lambda d, x: d.select(x, 5),
    "all": lambda d, x: d.select(x, len(TOKENS)),
    "more than there are": lambda d, x: d.select(x, 50),
    "without weights": lambda d, x: d.select(x, 4, weighted=False),
    "one head": lambda d, x: d.select(x, 4, heads=1, weighted=False),
    "an odd width": lambda d, x: d.select(x, 4, heads=5, width=3),
    "expanded single rows": lambda d, x: d.select(x, 4, expand=True),
    "runs": lambda d, x: _pooled(d, x, 3, 2),
    "runs expanded": lambda d, x: _pooled(d, x, 3, 2, expand=True),
    "more runs than there are, expanded": lambda d, x: _pooled(d, x, 4, 9, expand=True),
    "runs that are never complete": lambda d, x: _pooled(d, x, 30, 2),
    "runs that are never complete, expanded": lambda d, x: _pooled(d, x, 30, 2, expand=True),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path)


def test_an_index_of_many_tiles(tmp_path: Path) -> None:
    d = Draft(context=1600, seed=3)
    x = d.select(d.embed(24), 40, heads=3)
    tokens = [int(t) for t in d.random.integers(0, d.vocab, 1500)]
    plan = d.plan(x)
    tensors = d.tensors(tmp_path)
    expected = run(NativeRuntime.load(plan, tensors, threads=1, isa="scalar"), tokens, chunk=200)
    for isa in _native.isas():
        assert run(NativeRuntime.load(plan, tensors, threads=3, isa=isa), tokens, chunk=7) == expected
    assert error(expected, run(InterpretedRuntime(plan, tensors), tokens, chunk=250)) < 1e-5


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    x, small = d.embed(data.draw(st.integers(1, 30))), st.integers(1, 7)
    flag = st.booleans()
    how: dict[str, Any] = {"heads": data.draw(small), "weighted": data.draw(flag), "expand": data.draw(flag)}
    every = data.draw(small)
    x = _pooled(d, x, every, data.draw(small), **how) if every > 1 else d.select(x, data.draw(small), **how)
    check_agreement(d, x, tmp_path)


def _choice(folder: Path, keys: Sequence[float], budget: int, *, weight: float = 1.0) -> list[int]:
    """What is selected for the last of tokens whose keys are these numbers; its query is 1."""
    d = Draft(vocab=len(keys), context=len(keys))

    def column(numbers: Sequence[float]) -> int:
        return d.node("embed", [], 1, [d.given(np.array(numbers, np.float32)[:, None])])

    inputs = [column([1.0] * len(keys)), column(keys), column([weight] * len(keys))]
    attrs: dict[str, Any] = {"heads": 1, "scale": 1.0, "budget": budget, "every": 1, "expand": False}
    chosen = d.node("select", inputs, budget, states=[d.state(1)], **attrs)
    as_they_are = d.node("linear", [chosen], len(keys), [d.given(np.eye(len(keys), budget, dtype=np.float32))])
    plan = msgspec.structs.replace(d.plan(as_they_are), logits=as_they_are)
    found = run(NativeRuntime.load(plan, d.tensors(folder)), range(len(keys)), chunk=len(keys))[-1]
    return [int(number) for number in np.frombuffer(found, np.float32)[:budget]]


def test_the_highest_scores_are_chosen_in_the_order_of_their_rows(tmp_path: Path) -> None:
    assert _choice(tmp_path, [5, 1, 9, 3, 7], 3) == [0, 2, 4]


def test_ties_go_to_the_lower_row(tmp_path: Path) -> None:
    assert _choice(tmp_path, [2, 4, 2, 2, 4, 2], 3) == [0, 1, 4]
    assert _choice(tmp_path, [-1, -5, 1, -2, -3], 3) == [0, 1, 2]  # what is below zero counts as zero
    assert _choice(tmp_path, [1, 2, 3, 4], 2, weight=-1.0) == [0, 1]


def test_what_is_no_number_is_chosen_last(tmp_path: Path) -> None:
    nan, infinity = float("nan"), float("inf")
    assert _choice(tmp_path, [3, 1, 2, 5], 2, weight=nan) == [0, 1]
    assert _choice(tmp_path, [1, infinity, 2, infinity], 2) == [1, 3]
    assert _choice(tmp_path, [0, infinity, 2, 0], 1, weight=0.0) == [0]  # zero times infinity


def _bent(**changed: Any) -> Callable[[Draft, int], int]:
    """A selection of 3 rows of an index of width 6, all of whose parts can be replaced."""

    def build(d: Draft, x: int) -> int:
        made: dict[str, Any] = {"q": 12, "k": 6, "weights": 2, "out": 3, "state": (6,), "window": 0, "runs": 1}
        made |= {"recurrent": False, "heads": 2, "scale": 0.5, "budget": 3, "every": 1, "expand": 0, **changed}
        inputs = [d.linear(x, made.pop("q"))]
        inputs += [d.linear(x, width) if (width := made.pop(name)) else -1 for name in ("k", "weights")]
        window, every, out = made.pop("window"), made.pop("runs"), made.pop("out")
        state = d.state(*made.pop("state"), window=window, every=every, recurrent=made.pop("recurrent"))
        return d.node("select", inputs, out, states=[state], **{k: v for k, v in made.items() if v is not None})

    return build


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "heads": (_bent(heads=5), "heads is 5, which does not divide 12"),
    "no heads": (_bent(heads=0), "heads is 0"),
    "weights": (_bent(weights=3), "width of weights is 3, it must be 2"),
    "k": (_bent(k=5), "width of k is 5, it must be 6"),
    "no budget": (_bent(budget=0), "budget is 0"),
    "huge budget": (_bent(budget=2**40), "budget is"),
    "huge budget of huge runs": (_bent(budget=2**31 - 1, every=2**31 - 1, expand=1), "every is 2147483647, it must be 1"),
    "scale missing": (_bent(scale=None), "scale is missing"),
    "result": (_bent(out=4), "width of the result is 4, it must be 3"),
    "result expanded": (_bent(expand=1, out=4), "width of the result is 4, it must be 3"),
    "k for runs": (_bent(every=2, runs=2), "every is 2, it must be 1"),
    "state of runs": (_bent(runs=2), "does not keep the rows"),
    "state too narrow": (_bent(state=(5,)), "does not keep the rows"),
    "state of a window": (_bent(window=8), "keeps 8 rows, 0 are needed"),
    "recurrent state": (_bent(recurrent=True), "does not keep the rows"),
    "a state that nobody fills": (_bent(k=0), "is filled by no operation before"),
    "runs of another length": (
        lambda d, x: d.select(x, 2, every=3, pooled=d.pool(x, 6, 4)),
        "every is 3, it must be 4",
    ),
    "pooled rows of another width": (lambda d, x: d.select(x, 2, every=4, pooled=d.pool(x, 7, 4)), "does not hold the rows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)


def test_a_context_whose_positions_no_float_can_name_is_refused(tmp_path: Path) -> None:
    draft = Draft(context=2**24 + 1)
    plan = draft.plan(draft.select(draft.embed(24), 2))
    with pytest.raises(ValueError, match="more than the 16777216 positions that can be listed"):
        NativeRuntime.load(plan, draft.tensors(tmp_path))
