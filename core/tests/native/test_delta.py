"""The gated delta rule and its decays, natively."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft


def _decay(d: Draft, x: int, heads: int, *, bound: float = 0.0, spare: int = 0, log: bool = True) -> int:
    width = d.widths[x]
    return d.node("decay", [x], width, [d.weight(heads + spare), d.weight(width)], heads=heads, bound=bound, log=log)


def _delta(
    d: Draft, x: int, *, heads: int, dk: int, dv: int, share: int = 1, by_row: bool = False, bound: float = 0.0
) -> int:
    """`share`: heads that have a key in common."""
    keys = heads // share
    q, k, v = d.linear(x, keys * dk), d.linear(x, keys * dk), d.linear(x, heads * dv)
    decay = _decay(d, d.linear(x, heads * (dk if by_row else 1)), heads, bound=bound)
    beta = d.node("activate", [d.linear(x, heads)], heads, kind="sigmoid", limit=0.0)
    state = d.state(heads * dk * dv, recurrent=True)
    return d.node("delta", [q, k, v, decay, beta], heads * dv, states=[state], heads=heads, key_heads=keys)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "decay": lambda d, x: _decay(d, x, 24),
    "decay of runs": lambda d, x: _decay(d, x, 4),
    "decay with a bound": lambda d, x: _decay(d, x, 3, bound=-5.0),
    "decay by rates": lambda d, x: _decay(d, x, 4, log=False),
    "decay by rates with a bound": lambda d, x: _decay(d, x, 3, bound=-5.0, log=False),
    "decay of fewer heads than there are numbers": lambda d, x: _decay(d, x, 2, spare=5),
    "decay of large values": lambda d, x: _decay(d, d.node("scale", [x], 24, factor=1e4), 3),
    "decay of large values with a bound": lambda d, x: _decay(d, d.node("scale", [x], 24, factor=1e4), 3, bound=-5.0),
    "delta": lambda d, x: _delta(d, x, heads=2, dk=8, dv=5),
    "delta of one head": lambda d, x: _delta(d, x, heads=1, dk=7, dv=9),
    "delta of single values": lambda d, x: _delta(d, x, heads=3, dk=1, dv=1),
    "delta of heads that share keys": lambda d, x: _delta(d, x, heads=6, dk=6, dv=4, share=3),
    "delta of heads that share one key": lambda d, x: _delta(d, x, heads=4, dk=6, dv=8, share=4),
    "delta with a decay for every row": lambda d, x: _delta(d, x, heads=2, dk=6, dv=8, by_row=True),
    "delta of shared keys with a decay for every row": lambda d, x: _delta(d, x, heads=4, dk=5, dv=8, share=2, by_row=True),
    "delta with a bound": lambda d, x: _delta(d, x, heads=2, dk=6, dv=8, by_row=True, bound=-5.0),
    "delta of a delta": lambda d, x: _delta(d, _delta(d, x, heads=2, dk=6, dv=8), heads=3, dk=4, dv=2, by_row=True),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path, bound=5e-6)


def test_many_heads_and_rows(tmp_path: Path) -> None:
    d = Draft(context=200, seed=3)
    x = _delta(d, d.embed(96), heads=8, dk=24, dv=33, share=2)
    check_agreement(d, _delta(d, x, heads=4, dk=32, dv=16, by_row=True), tmp_path, tokens=TOKENS * 6, bound=2e-5)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    small = st.integers(1, 4)
    share, keys = data.draw(small), data.draw(small)
    dk, dv = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20))
    by_row, bound = data.draw(st.booleans()), data.draw(st.sampled_from([0.0, -5.0]))
    x = d.embed(data.draw(st.integers(1, 30)))
    y = _delta(d, x, heads=share * keys, dk=dk, dv=dv, share=share, by_row=by_row, bound=bound)
    check_agreement(d, d.norm(y), tmp_path, bound=2e-5)


def _bent(
    q: int = 12, k: int = 12, v: int = 20, decay: int = 4, beta: int = 4, out: int = 20, **attrs: int
) -> Callable[[Draft, int], int]:
    """By default: 4 heads of [6, 5], 2 keys."""
    size, recurrent = attrs.pop("size", 120), bool(attrs.pop("recurrent", 1))

    def build(d: Draft, x: int) -> int:
        inputs = [d.linear(x, width) for width in (q, k, v, decay, beta)]
        state = d.state(size, recurrent=recurrent)
        return d.node("delta", inputs, out, states=[state], **{"heads": 4, "key_heads": 2, **attrs})

    return build


def _shared(d: Draft, x: int) -> int:
    state = d.state(24 * 24, recurrent=True)
    for _ in range(2):
        inputs = [x, x, x, d.linear(x, 1), d.linear(x, 1)]
        x = d.node("delta", inputs, 24, states=[state], heads=1, key_heads=1)
    return x


def _bent_decay(a_log: int = 4, bias: int = 24, out: int = 24, **attrs: float) -> Callable[[Draft, int], int]:
    return lambda d, x: d.node("decay", [x], out, [d.weight(a_log), d.weight(bias)], **{"heads": 4, **attrs})


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "no heads": (_bent(heads=0), "heads is 0"),
    "too many heads": (_bent(heads=2**50), "heads is"),
    "no keys": (_bent(key_heads=0), "key_heads is 0"),
    "more keys than heads": (_bent(key_heads=5), "key_heads is 5"),
    "heads that can't share": (_bent(key_heads=3), "key_heads is 3, which does not divide 4"),
    "k": (_bent(k=13, q=13), "key_heads is 2, which does not divide 13"),
    "q": (_bent(q=24), "width of q is 24, it must be 12"),
    "v": (_bent(v=21), "heads is 4, which does not divide 21"),
    "decay": (_bent(decay=12), "width of decay is 12, it must be 24"),
    "beta": (_bent(beta=2), "width of beta is 2, it must be 4"),
    "result": (_bent(out=24), "width of the result is 24, it must be 20"),
    "memory too small": (_bent(size=119), "no memory of 4 heads of [6, 5]"),
    "memory too large": (_bent(size=240), "no memory of 4 heads of [6, 5]"),
    "a state of rows": (_bent(recurrent=0), "no memory of 4 heads of [6, 5]"),
    "memory of another": (_shared, "is already used"),
    "decay: heads": (_bent_decay(heads=5), "heads is 5, which does not divide 24"),
    "decay: no heads": (_bent_decay(heads=0), "heads is 0"),
    "decay: a_log": (_bent_decay(a_log=3), "'w1' has 3 values for 4 heads"),
    "decay: bias": (_bent_decay(bias=4), "'w2' is [1, 4], it must be [1, 24]"),
    "decay: result": (_bent_decay(out=4), "width of the result is 4, it must be 24"),
    "decay: bound": (_bent_decay(bound=float("nan")), "bound is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
