"""What rows bring along, and the hidden rows that can be read, natively."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from colibri import _native
from colibri.compute.native import NativeRuntime
from colibri.compute.plan import Plan
from colibri.compute.runtime import Row, Runtime
from colibri.testing.interpreter import InterpretedRuntime

from .agreement import TOKENS, refusal
from .plans import Draft

BROUGHT = np.random.default_rng(8).standard_normal((len(TOKENS), 6)).astype(np.float32)

#: Logits and hidden rows, as bytes.
Found = tuple[list[bytes], list[bytes]]


def _head(d: Draft, width: int = 24) -> int:
    """Tokens and what rows bring along, in one row, and attention over them."""
    both = d.node("concat", [d.embed(width), d.node("given", [], 6)], width + 6, groups=1)
    return d.attend(d.norm(d.linear(both, width)), heads=2, kv_heads=1, dim=8)


def _normed(d: Draft) -> tuple[int, int]:
    x = d.norm(_head(d))
    return x, x


def _changed(d: Draft) -> tuple[int, int]:
    """The hidden row is also what an operation could write its result over."""
    x = d.norm(_head(d))
    return d.node("scale", [x], 24, factor=2.0, shift=1.0), x


def _early(d: Draft) -> tuple[int, int]:
    """The hidden row feeds more than the logits, much further on."""
    x = _head(d)
    mixed = d.mixture(d.attend(x, heads=3, kv_heads=3, dim=8), experts=4, top_k=2, inner=16)
    return d.attend(mixed, heads=2, kv_heads=1, dim=8), x


CASES: dict[str, Callable[[Draft], tuple[int, int]]] = {"normed": _normed, "changed": _changed, "early": _early}


def _run(runtime: Runtime, *, chunk: int, slot: int = 0, wanted: Sequence[int] = range(len(TOKENS))) -> Found:
    logits, hidden = [], []
    for at in range(0, len(TOKENS), chunk):
        rows = range(at, min(at + chunk, len(TOKENS)))
        runtime.step([Row(TOKENS[i], slot, i, logits=i in wanted, given=BROUGHT[i].tobytes()) for i in rows])
        logits += [bytes(runtime.logits(i)) for i in range(sum(row in wanted for row in rows))]
        hidden += [bytes(runtime.hidden(i)) for i in range(len(rows))]
    return logits, hidden


def _floats(rows: Sequence[bytes]) -> np.ndarray:
    return np.stack([np.frombuffer(row, np.float32) for row in rows]).astype(np.float64)


def _made(name: str, folder: Path) -> tuple[Plan, dict]:
    d = Draft(seed=2)
    x, hidden = CASES[name](d)
    return replace(d.plan(x), hidden=hidden), d.tensors(folder)


@pytest.mark.parametrize("name", CASES)
def test_hidden_rows_and_logits_are_those_of_the_interpreter(name: str, tmp_path: Path) -> None:
    plan, tensors = _made(name, tmp_path)
    assert plan.given == 6
    expected = _run(InterpretedRuntime(plan, tensors), chunk=len(TOKENS))
    alone = _run(NativeRuntime.load(plan, tensors, threads=1, isa="scalar", hidden=True), chunk=1)
    for found, wanted in zip(map(_floats, alone), map(_floats, expected), strict=True):
        assert np.linalg.norm(found - wanted, axis=1).max() < 2e-6 * np.linalg.norm(wanted, axis=1).max()
    for isa in _native.isas():
        runtime = NativeRuntime.load(plan, tensors, slots=2, threads=3, isa=isa, hidden=True)
        assert _run(runtime, chunk=len(TOKENS)) == alone
        assert _run(runtime, chunk=4, slot=1) == alone
        some = range(1, len(TOKENS), 3)
        assert _run(runtime, chunk=7, wanted=some) == ([alone[0][i] for i in some], alone[1])
        assert _run(runtime, chunk=len(TOKENS), wanted=[])[1] == alone[1]


@pytest.mark.parametrize("name", CASES)
def test_logits_are_the_same_where_hidden_rows_are_not_kept(name: str, tmp_path: Path) -> None:
    plan, tensors = _made(name, tmp_path)
    kept, plain = (NativeRuntime.load(plan, tensors, hidden=hidden) for hidden in (True, False))
    found = []
    for runtime in (kept, plain):
        runtime.step([Row(token, 0, i, logits=i % 2 == 1, given=BROUGHT[i].tobytes()) for i, token in enumerate(TOKENS)])
        found.append([bytes(runtime.logits(i)) for i in range(len(TOKENS) // 2)])
    assert found[0] == found[1]
    with pytest.raises(ValueError, match="no hidden rows are kept"):
        plain.hidden(0)


def test_logits_can_be_the_hidden_rows(tmp_path: Path) -> None:
    d = Draft()
    plan = d.plan(_head(d))
    runtime = NativeRuntime.load(replace(plan, hidden=plan.logits), d.tensors(tmp_path), hidden=True)
    logits, hidden = _run(runtime, chunk=len(TOKENS), wanted=[2, 7])
    assert logits == [hidden[2], hidden[7]]


def test_rows_far_wider_than_a_thread_takes_at_once(tmp_path: Path) -> None:
    d = Draft(seed=1)
    plan, tensors = d.plan(d.node("given", [], 5000)), d.tensors(tmp_path)
    brought = np.random.default_rng(1).standard_normal((40, 5000)).astype(np.float32)
    rows = [Row(0, 0, i, logits=True, given=brought[i].tobytes()) for i in range(40)]
    found = []
    for runtime in (NativeRuntime.load(plan, tensors, threads=3), InterpretedRuntime(plan, tensors)):
        runtime.step(rows)
        found.append(_floats([bytes(runtime.logits(i)) for i in range(40)]))
    assert np.abs(found[0] - found[1]).max() < 1e-4


def test_nothing_given_is_followed_blindly(tmp_path: Path) -> None:
    """Whatever numbers come along, indices stay in range: a step ends, and other slots are as they were."""
    plan, tensors = _made("early", tmp_path)
    runtime = NativeRuntime.load(plan, tensors, slots=2, hidden=True)
    alone = _run(runtime, chunk=len(TOKENS))
    for value in (np.nan, np.inf, -np.inf, 3e38):
        bad = np.full(6, value, np.float32).tobytes()
        runtime.step([Row(1, 1, i, logits=True, given=bad) for i in range(5)])
    assert _run(runtime, chunk=3) == alone


@pytest.mark.parametrize(("size", "found"), [(0, 6), (5, 11), (7, 13)])
def test_rows_that_bring_too_little_or_too_much_are_refused(size: int, found: int, tmp_path: Path) -> None:
    plan, tensors = _made("normed", tmp_path)
    rows = [Row(1, 0, 0, given=bytes(24)), Row(1, 0, 1, given=bytes(4 * size))]
    native = NativeRuntime.load(plan, tensors)
    with pytest.raises(ValueError, match=f"2 rows bring {found} numbers along, 6 each are needed"):
        native.step(rows)
    with pytest.raises(ValueError, match="not 6 numbers"):
        InterpretedRuntime(plan, tensors).step(rows)
    with pytest.raises(ValueError, match="no whole number of floats"):
        native.step([Row(1, 0, 0, given=bytes(23))])
    native.step(rows[:1])


def test_a_model_that_takes_nothing_is_given_nothing(tmp_path: Path) -> None:
    d = Draft()
    plan, tensors = d.plan(d.embed(24)), d.tensors(tmp_path)
    for runtime in (NativeRuntime.load(plan, tensors), InterpretedRuntime(plan, tensors)):
        assert runtime.given == 0
        with pytest.raises(ValueError, match="bring"):
            runtime.step([Row(1, 0, 0, given=bytes(4))])


def test_rows_that_are_not_there_cannot_be_read(tmp_path: Path) -> None:
    runtime = NativeRuntime.load(*_made("normed", tmp_path), hidden=True)
    with pytest.raises(ValueError, match="no hidden row 0: the last step had 0 rows"):
        runtime.hidden(0)
    runtime.step([Row(1, 0, 0, given=bytes(24)), Row(1, 0, 1, given=bytes(24))])
    for row in (-1, 2):
        with pytest.raises(ValueError, match=f"no hidden row {row}: the last step had 2 rows"):
            runtime.hidden(row)


@pytest.mark.parametrize("value", [99, -2])
def test_a_hidden_value_that_no_operation_makes_is_refused(value: int, tmp_path: Path) -> None:
    plan, tensors = _made("normed", tmp_path)
    with pytest.raises(ValueError, match=f"hidden: no node makes value {value}"):
        NativeRuntime.load(replace(plan, hidden=value), tensors, hidden=True)


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "an input": (lambda d, x: d.node("given", [x], 24), "takes 0 inputs"),
    "a weight": (lambda d, x: d.node("given", [], 24, [d.weight(24)]), "takes 0 weights"),
    "two widths": (
        lambda d, x: d.node("concat", [d.node("given", [], 6), d.node("given", [], 7)], 13, groups=1),
        "takes 7 numbers a row, another operation 6",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
