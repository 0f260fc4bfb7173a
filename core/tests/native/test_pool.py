"""Rows that stand for runs of positions, natively. What they are shows in which of them is selected, and in attention that
sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri.compute.native import NativeRuntime

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft, run

ROPE = {"inv_freq": (1.0, 0.3), "offset": 2, "factor": 1.3, "interleaved": True}


def _seen(d: Draft, x: int, width: int, pooled: int, every: int) -> int:
    """Attention that sees nothing but the row itself and the pooled ones."""
    q, k = d.linear(x, 2 * width), d.linear(x, width)
    attrs: dict[str, Any] = {"heads": 2, "kv_heads": 1, "scale": 0.4, "window": 1, "every": every}
    return d.node("attention", [q, k], 2 * width, states=[d.state(width, window=1), pooled], **attrs)


def _pool(d: Draft, x: int, every: int = 4, width: int = 8, **how: Any) -> int:
    return _seen(d, x, width, d.pool(x, width, every, **how), every)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "mean": lambda d, x: _pool(d, x, gated=False),
    "mean of single rows": lambda d, x: _pool(d, x, 1, gated=False),
    "mean with norm": lambda d, x: _pool(d, x, gated=False, norm=True),
    "mean with norm and rope": lambda d, x: _pool(d, x, gated=False, norm=True, unit=True, rope=ROPE),
    "gated": lambda d, x: _pool(d, x),
    "gated with ape": lambda d, x: _pool(d, x, ape=True),
    "gated with all": lambda d, x: _pool(d, x, 3, ape=True, norm=True, rope={**ROPE, "interleaved": False}),
    "overlapping": lambda d, x: _pool(d, x, overlap=True),
    "overlapping with all": lambda d, x: _pool(d, x, overlap=True, ape=True, norm=True, unit=True, rope=ROPE),
    "overlapping single rows": lambda d, x: _pool(d, x, 1, overlap=True, ape=True),
    "a run as long as the context": lambda d, x: _pool(d, x, len(TOKENS)),
    "a run that is never complete": lambda d, x: _pool(d, x, 64, ape=True),
    "wide rows": lambda d, x: _pool(d, x, 2, 150, overlap=True, ape=True, norm=True),
    "two pools": lambda d, x: _pool(d, _pool(d, x, 2), 3, 6, overlap=True),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path, bound=5e-6)


def test_rows_wide_enough_to_be_shared_by_threads(tmp_path: Path) -> None:
    d = Draft(context=200, seed=3)
    x = _pool(d, d.embed(24), 5, 300, overlap=True, ape=True, norm=True, rope=ROPE)
    check_agreement(d, x, tmp_path, tokens=TOKENS * 6, bound=5e-6)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    flag, width = st.booleans(), data.draw(st.integers(4, 90))
    gated = data.draw(flag)
    how: dict[str, Any] = {"gated": gated, "overlap": gated and data.draw(flag), "ape": gated and data.draw(flag)}
    how |= {"norm": data.draw(flag), "unit": data.draw(flag)}
    if data.draw(flag):
        turned = data.draw(st.integers(1, width // 2))
        offset = data.draw(st.integers(0, width - 2 * turned))
        inv_freq = tuple(0.5**i for i in range(turned))
        how["rope"] = {"inv_freq": inv_freq, "offset": offset, "factor": 1.0, "interleaved": data.draw(flag)}
    check_agreement(d, _pool(d, d.embed(10), data.draw(st.integers(1, 9)), width, **how), tmp_path, bound=2e-5)


def test_a_slot_is_remembered_within_a_run(tmp_path: Path) -> None:
    """What a run needs of rows that have long gone comes back with the slot, and to a copy of it."""
    d = Draft(context=300, seed=1)
    plan = d.plan(_pool(d, d.embed(16), 5, overlap=True, ape=True))
    tokens = [int(t) for t in d.random.integers(0, d.vocab, 300)]
    runtime = NativeRuntime.load(plan, d.tensors(tmp_path), slots=2, max_rows=8)
    whole = run(runtime, tokens[:38], chunk=8)
    runtime.remember(0)
    whole += run(runtime, tokens[38:], chunk=7, start=38)
    assert runtime.copy(0, 1, 40) == 38
    assert run(runtime, tokens[38:], chunk=3, slot=1, start=38) == whole[38:]
    assert runtime.rewind(0, 40) == 38
    assert run(runtime, tokens[38:], chunk=1, start=38) == whole[38:]


def _bent(**changed: Any) -> Callable[[Draft, int], int]:
    """A pool of runs of 4 positions to rows of 8, all of whose parts can be replaced."""

    def build(d: Draft, x: int) -> int:
        made: dict[str, Any] = {"x": 16, "gate": 16, "ape": (4, 16), "norm": (8,), "raw": (32,), "pooled": (8,), "out": 0}
        made |= {"window": 8, "runs": 4, "every": 4, "overlap": 1, "eps": 1e-6, "unit": 0, **changed}
        inputs = [d.linear(x, made.pop("x")), *([d.linear(x, gate)] if (gate := made.pop("gate")) else [-1])]
        weights = [d.weight(*shape) if (shape := made.pop(name)) else -1 for name in ("ape", "norm")]
        raw = d.state(*made.pop("raw"), window=made.pop("window"))
        pooled = d.state(*made.pop("pooled"), every=made.pop("runs"), window=made.pop("pooled_window", 0))
        states = [raw, raw if made.pop("same", 0) else pooled]
        d.node("pool", inputs, made.pop("out"), weights, states=states, **{k: v for k, v in made.items() if v is not None})
        return x

    return build


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "value": (_bent(out=8), "makes no value"),
    "gate": (_bent(gate=8), "width of gate is 8, it must be 16"),
    "overlap of a mean": (_bent(gate=0, ape=None), "overlap and ape go with a gate"),
    "ape of a mean": (_bent(gate=0, overlap=0), "overlap and ape go with a gate"),
    "odd halves": (_bent(x=15, gate=15), "does not divide 15"),
    "ape": (_bent(ape=(4, 8)), "is [4, 8], it must be [4, 16]"),
    "norm": (_bent(norm=(16,)), "is [1, 16], it must be [1, 8]"),
    "no every": (_bent(every=None), "every is missing"),
    "every 0": (_bent(every=0), "every is 0"),
    "every of another number": (_bent(every=5, ape=None), "keeps 8 rows, 10 are needed"),
    "state of other runs": (_bent(runs=5), "does not keep the rows"),
    "negative eps": (_bent(eps=-1.0), "eps is -1"),
    "raw rows too narrow": (_bent(raw=(16,)), "does not keep the rows"),
    "raw rows too few": (_bent(window=4), "keeps 4 rows, 8 are needed"),
    "pooled rows too wide": (_bent(pooled=(16,)), "does not keep the rows"),
    "pooled rows that go": (_bent(pooled_window=4), "keeps 4 rows, 0 are needed"),
    "one state for both": (_bent(same=1), "is already used"),
    "a turn beyond the row": (_bent(inv_freq=(1.0, 0.5), offset=5), "turns 4 values from 5 on of heads of 8"),
    "a turn that is no number": (_bent(inv_freq=(float("nan"),)), "inv_freq holds nan"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
