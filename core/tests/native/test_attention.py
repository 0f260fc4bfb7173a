"""Attention natively: what it sees besides the rows before it, and what its logits gain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri import _native
from colibri.compute.native import NativeRuntime
from colibri.testing.interpreter import InterpretedRuntime

from .agreement import check_agreement, refusal
from .plans import Draft, error, run


def _attention(
    d: Draft,
    x: int,
    *,
    heads: int = 4,
    kv_heads: int = 2,
    dim: int = 6,
    v_dim: int = 6,
    shares: bool = False,
    window: int = 0,
    select: int = -1,
    pooled: int = -1,
    sinks: bool = False,
    sink: bool = False,
    extent: int = 0,
) -> int:
    """Attention on x. `shares`: a key's first values are its value. `extent`: of a profile of 3 values a head."""
    inputs = [d.linear(x, heads * dim), d.linear(x, kv_heads * dim), -1 if shares else d.linear(x, kv_heads * v_dim), select]
    inputs += [d.linear(x, heads) if sink else -1, d.linear(x, heads * 3) if extent else -1]
    weights = [d.weight(heads) if sinks else -1, d.weight(3, extent) if extent else -1]
    states = [d.state(*[dim] * kv_heads, *[v_dim] * (0 if shares else kv_heads), window=window)]
    if pooled >= 0:
        states.append(pooled)
    attrs: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "scale": 0.4, "window": window}
    attrs["every"] = d.states[pooled].every if pooled >= 0 else 1
    return d.node("attention", inputs, heads * v_dim, weights, states=states, **attrs)


def _twice(d: Draft, x: int, select: int) -> int:
    return _attention(d, _attention(d, x, select=select), v_dim=3, select=select)


def _runs(d: Draft, x: int, budget: int, **how: Any) -> int:
    """Attention over the best runs of four and the last, incomplete one."""
    return _attention(d, x, select=d.select(x, budget, every=4, expand=True, pooled=d.pool(x, 6, 4, ape=True)), **how)


def _compressed(d: Draft, x: int, *, budget: int = 0, every: int = 3, window: int = 5, **how: Any) -> int:
    """Attention over a window and pooled rows: all, or the best of them by an index of the same runs."""
    pooled = d.pool(x, 6, every, overlap=True, ape=True, norm=True)
    index = d.pool(x, 4, every, overlap=True) if budget else -1
    select = d.select(x, budget, width=4, every=every, pooled=index) if budget else -1
    return _attention(d, x, kv_heads=1, shares=True, window=window, select=select, pooled=pooled, **how)


OPS: dict[str, Callable[[Draft, int], int]] = {
    "keys that hold their values": lambda d, x: _attention(d, x, shares=True, v_dim=4),
    "selected": lambda d, x: _attention(d, x, select=d.select(x, 5)),
    "selected, of one key head that holds its values": lambda d, x: _attention(
        d, x, heads=40, kv_heads=1, shares=True, v_dim=5, select=d.select(x, 3)
    ),
    "all selected": lambda d, x: _attention(d, x, select=d.select(x, 30)),
    "one selection for two": lambda d, x: _twice(d, x, d.select(x, 4)),
    "selected runs": lambda d, x: _runs(d, x, 2),
    "all runs selected": lambda d, x: _runs(d, x, 9),
    "pooled": lambda d, x: _compressed(d, x),
    "pooled without a window": lambda d, x: _compressed(d, x, window=0),
    "pooled runs as long as the context": lambda d, x: _compressed(d, x, every=60),
    "pooled, with sinks": lambda d, x: _compressed(d, x, sinks=True),
    "pooled and selected": lambda d, x: _compressed(d, x, budget=2),
    "pooled and selected, with sinks": lambda d, x: _compressed(d, x, budget=2, sinks=True, heads=36),
    "pooled and all selected": lambda d, x: _compressed(d, x, budget=30, window=2),
    "sinks": lambda d, x: _attention(d, x, sinks=True),
    "sinks in a window": lambda d, x: _attention(d, x, sinks=True, window=3),
    "a sink for every row": lambda d, x: _attention(d, x, sink=True, heads=6, v_dim=5),
    "distance": lambda d, x: _attention(d, x, extent=40),
    "distance of a few rows": lambda d, x: _attention(d, x, extent=4),
    "distance of the row itself": lambda d, x: _attention(d, x, extent=1),
    "distance in a window": lambda d, x: _attention(d, x, extent=7, window=7, sinks=True),
    "distance within a window": lambda d, x: _attention(d, x, extent=3, window=7),
    "distance beyond a window": lambda d, x: _attention(d, x, extent=30, window=3, sink=True),
    "distance of selected rows": lambda d, x: _attention(d, x, extent=6, select=d.select(x, 5), sinks=True),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft, draft.embed(24)), tmp_path, bound=5e-6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_shape_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d, flag = Draft(seed=data.draw(st.integers(0, 99))), st.booleans()
    small, window = st.integers(1, 5), data.draw(st.sampled_from([0, 1, 4]))
    x, dim = d.embed(10), data.draw(st.integers(1, 40))
    how: dict[str, Any] = {"dim": dim, "heads": data.draw(small)}
    how |= {"sink": True} if data.draw(flag) else {"sinks": data.draw(flag)}
    if data.draw(flag):
        every = data.draw(small)
        how |= {"kv_heads": 1, "shares": True, "pooled": d.pool(x, dim, every), "window": window}
        how["v_dim"] = data.draw(st.integers(1, dim))
        if data.draw(flag):
            how["select"] = d.select(x, data.draw(small), every=every, pooled=d.pool(x, 6, every))
    else:
        group, kv_heads, shares = how["heads"], data.draw(small), data.draw(flag)
        how |= {"heads": group * kv_heads, "kv_heads": kv_heads, "shares": shares, "extent": data.draw(st.integers(0, 9))}
        how["v_dim"] = data.draw(st.integers(1, dim if shares else 40))
        how |= {"select": d.select(x, data.draw(small))} if data.draw(flag) else {"window": window}
    check_agreement(d, _attention(d, x, **how), tmp_path, bound=2e-5)


LONG: dict[str, Callable[[Draft, int], int]] = {
    "selected": lambda d, x: _attention(d, x, select=d.select(x, 600), sinks=True),
    "selected runs": lambda d, x: _runs(d, x, 150, shares=True),
    "pooled": lambda d, x: _compressed(d, x, every=2, window=530, sinks=True),
    "pooled and selected": lambda d, x: _compressed(d, x, every=2, window=40, budget=520),
    "distance": lambda d, x: _attention(d, x, extent=700, sinks=True),
    "distance of selected rows": lambda d, x: _attention(d, x, extent=700, select=d.select(x, 600)),
}


@pytest.mark.parametrize("name", LONG)
def test_many_tiles(name: str, tmp_path: Path) -> None:
    """Long contexts are walked in tiles; the sums must come out as over one, whatever a step holds."""
    d = Draft(context=1400, seed=2)
    plan = d.plan(LONG[name](d, d.embed(16)))
    tensors = d.tensors(tmp_path)
    tokens = [int(t) for t in d.random.integers(0, d.vocab, 1200)]
    whole = run(NativeRuntime.load(plan, tensors, threads=1, isa="scalar"), tokens, chunk=256)
    for isa in _native.isas():
        assert run(NativeRuntime.load(plan, tensors, threads=3, isa=isa), tokens, chunk=41) == whole
    expected = run(InterpretedRuntime(plan, tensors), tokens, chunk=256)
    assert error(whole, expected) < 2e-5


def test_a_list_of_all_rows_gives_the_bits_of_no_list(tmp_path: Path) -> None:
    d = Draft(context=700)
    x = d.embed(16)
    listed = d.plan(_attention(d, x, extent=9, select=d.select(x, 700)))
    nodes = [
        msgspec.structs.replace(node, inputs=(*node.inputs[:3], -1, *node.inputs[4:])) if node.op == "attention" else node
        for node in listed.nodes
    ]
    unlisted = msgspec.structs.replace(listed, nodes=tuple(nodes))
    tensors = d.tensors(tmp_path)
    tokens = [int(t) for t in d.random.integers(0, d.vocab, 700)]
    one, other = (run(NativeRuntime.load(plan, tensors), tokens, chunk=100) for plan in (listed, unlisted))
    assert one == other


def _bent(**changed: Any) -> Callable[[Draft, int], int]:
    """Attention of four heads of 6 on two key heads, all of whose parts can be replaced."""

    def build(d: Draft, x: int) -> int:
        made: dict[str, Any] = {"q": 24, "k": 12, "v": 12, "sink": 0, "distance": 0, "planes": (6, 6, 6, 6), "out": 24}
        made |= {"sinks": None, "profile": None, "select": None, "pooled": None}
        made |= {"heads": 4, "kv_heads": 2, "scale": 0.4, "window": 0, "every": 1, **changed}
        inputs = [d.linear(x, width) if (width := made.pop(name)) else -1 for name in ("q", "k", "v")]
        select = made.pop("select")
        inputs.append(select(d, x) if select else -1)
        inputs += [d.linear(x, width) if (width := made.pop(name)) else -1 for name in ("sink", "distance")]
        weights = [d.weight(*shape) if (shape := made.pop(name)) else -1 for name in ("sinks", "profile")]
        states = [d.state(*made.pop("planes"), window=made["window"])]
        pooled, out = made.pop("pooled"), made.pop("out")
        states += [pooled(d, x)] if pooled else []
        return d.node("attention", inputs, out, weights, states=states, **made)

    return build


def _pool(d: Draft, x: int) -> int:
    return d.pool(x, 6, 4)


SHARED = {"kv_heads": 1, "k": 6, "v": 0, "planes": (6,)}

REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "every of what is not pooled": (_bent(every=2), "every is 2, it must be 1"),
    "pooled rows of several key heads": (_bent(pooled=_pool, every=4), "one key head"),
    "pooled rows and values": (
        _bent(**{**SHARED, "v": 6, "planes": (6, 6)}, pooled=_pool, every=4),
        "whose keys are its values",
    ),
    "pooled rows of another width": (
        _bent(**SHARED, pooled=lambda d, x: d.pool(x, 7, 4), every=4),
        "does not hold the rows",
    ),
    "pooled rows of other runs": (_bent(**SHARED, pooled=lambda d, x: d.pool(x, 6, 3), every=4), "every is 4, it must be 3"),
    "pooled rows nobody makes": (
        _bent(**SHARED, pooled=lambda d, x: d.state(6, every=4), every=4),
        "filled by no operation",
    ),
    "rows of its own as pooled ones": (_bent(**SHARED, pooled=lambda d, x: 0, every=1), "is filled by no operation"),
    "selected by something else": (_bent(select=lambda d, x: d.linear(x, 3)), "not chosen by select"),
    "selected runs": (
        _bent(select=lambda d, x: d.select(x, 2, every=4, pooled=_pool(d, x))),
        "every of the selected rows is 4, it must be 1",
    ),
    "selected positions of pooled rows": (
        _bent(**SHARED, pooled=_pool, every=4, select=lambda d, x: d.select(x, 2)),
        "every of the selected rows is 1, it must be 4",
    ),
    "selected from a window": (_bent(window=4, select=lambda d, x: d.select(x, 2)), "a window or selected rows, not both"),
    "sink": (_bent(sink=3), "width of sink is 3, it must be 4"),
    "sinks": (_bent(sinks=(3,)), "is [1, 3], it must be [1, 4]"),
    "sink and sinks": (_bent(sink=4, sinks=(4,)), "takes sink or sinks, not both"),
    "distance alone": (_bent(distance=12), "distance and profile go together"),
    "profile alone": (_bent(profile=(3, 5)), "distance and profile go together"),
    "distance for another profile": (_bent(distance=12, profile=(4, 5)), "width of distance is 12, it must be 16"),
    "distance of pooled rows": (
        _bent(**SHARED, pooled=_pool, every=4, distance=12, profile=(3, 5)),
        "stand at no distance",
    ),
    "values wider than the keys": (_bent(**SHARED, out=28), "values of 7 from keys of 6"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
