"""Every op of the native runtime against the numpy interpreter, on every code path this CPU has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri import _native
from colibri.compute.checkpoint import BLOCKS
from colibri.compute.native import NativeRuntime
from colibri.testing.interpreter import InterpretedRuntime

from .plans import Draft, error, run

TOKENS = [3, 17, 0, 39, 8, 8, 21, 30, 2, 5, 11, 26]
#: Storage types of whole numbers, which are nothing without scales.
NUMBERS = {"i32", "i64", "i8", "u8", "u4"}

ROPE = {"inv_freq": (1.0, 0.3, 0.07), "offset": 0, "factor": 1.0, "interleaved": False}


def _two(d: Draft, width: int = 24) -> tuple[int, int]:
    x = d.embed(width)
    return d.linear(x, width), d.linear(x, width, bias=True)


def _rope(d: Draft, **attrs: object) -> int:
    return d.attend(d.embed(24), heads=4, kv_heads=2, dim=8, rope={**ROPE, **attrs})


OPS: dict[str, Callable[[Draft], int]] = {
    "embed": lambda d: d.embed(24),
    "embed of an odd width": lambda d: d.embed(13),
    "embed bf16": lambda d: d.embed(24, "bf16"),
    "embed q8_0": lambda d: d.embed(64, "q8_0"),
    "embed q6_k": lambda d: d.embed(256, "q6_k"),
    "rms_norm": lambda d: d.norm(d.embed(24)),
    "rms_norm of groups": lambda d: d.norm(d.embed(24), group=8),
    "linear": lambda d: d.linear(d.embed(24), 33),
    "linear with bias": lambda d: d.linear(d.embed(24), 33, bias=True),
    "add": lambda d: d.node("add", _two(d), 24),
    "add to itself": lambda d: d.node("add", [_two(d)[0]] * 2, 24),
    "mul": lambda d: d.node("mul", _two(d), 24),
    "scale": lambda d: d.node("scale", [d.embed(24)], 24, factor=-2.5),
    "clamp": lambda d: d.node("clamp", [d.embed(24)], 24, low=-0.1, high=0.3),
    "swiglu": lambda d: d.node("glu", _two(d), 24),
    "rope": lambda d: _rope(d),
    "rope from an offset": lambda d: _rope(d, offset=2),
    "rope of pairs": lambda d: _rope(d, interleaved=True, offset=1),
    "rope with a factor": lambda d: _rope(d, factor=1.3),
    "attention": lambda d: d.attend(d.embed(24), heads=3, kv_heads=3, dim=8),
    "attention of groups": lambda d: d.attend(d.embed(24), heads=6, kv_heads=2, dim=5, v_dim=7),
    "attention of one key head": lambda d: d.attend(d.embed(24), heads=40, kv_heads=1, dim=4),
    "attention in a window": lambda d: d.attend(d.embed(24), heads=2, kv_heads=1, dim=8, window=3),
    "experts": lambda d: d.mixture(d.embed(24), experts=6, top_k=2, inner=10),
    "experts normalised": lambda d: d.mixture(d.embed(24), experts=6, top_k=3, inner=10, normalise=True, factor=2.5),
    "all experts": lambda d: d.mixture(d.embed(24), experts=3, top_k=3, inner=10),
    "one expert": lambda d: d.mixture(d.embed(24), experts=5, top_k=1, inner=10),
}


@pytest.mark.parametrize("isa", _native.isas())
@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, isa: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    plan = draft.plan(OPS[name](draft))
    tensors = draft.tensors(tmp_path)
    expected = run(InterpretedRuntime(plan, tensors), TOKENS, chunk=len(TOKENS))
    for chunk in (1, 5, len(TOKENS)):
        runtime = NativeRuntime.load(plan, tensors, isa=isa, threads=2)
        assert error(run(runtime, TOKENS, chunk=chunk), expected) < 2e-6


@pytest.mark.parametrize("dtype", sorted(BLOCKS.keys() - NUMBERS))
@pytest.mark.parametrize("gap", [0, 1, 2])
def test_storage_types_agree_with_the_interpreter(dtype: str, gap: int, tmp_path: Path) -> None:
    """Also where a file puts a tensor at an odd address. What is left is the rounding of activations to int8."""
    draft = Draft(seed=gap, gap=gap)
    x = draft.linear(draft.embed(256, dtype), 256, bias=True, dtype=dtype)
    x = draft.mixture(x, experts=4, top_k=2, inner=256, dtype=dtype)
    plan = draft.plan(x, dtype)
    tensors = draft.tensors(tmp_path)
    expected = run(InterpretedRuntime(plan, tensors), TOKENS, chunk=len(TOKENS))
    found = run(NativeRuntime.load(plan, tensors, threads=2), TOKENS, chunk=7)
    exact = dtype in ("f32", "bf16", "f16")
    assert error(found, expected) < (2e-6 if exact else 0.04)


def test_experts_of_mixed_types(tmp_path: Path) -> None:
    draft = Draft(seed=4)
    plan = draft.plan(draft.mixture(draft.embed(64), experts=4, top_k=2, inner=64, dtype="q8_0", down="q4_0"))
    tensors = draft.tensors(tmp_path)
    expected = run(InterpretedRuntime(plan, tensors), TOKENS, chunk=4)
    assert error(run(NativeRuntime.load(plan, tensors), TOKENS, chunk=4), expected) < 0.04


def test_attention_over_many_tiles(tmp_path: Path) -> None:
    """Long contexts are walked in tiles; the sums must come out as over one."""
    draft = Draft(context=1400, seed=1)
    x = draft.attend(draft.embed(16), heads=4, kv_heads=2, dim=8, rope={**ROPE, "inv_freq": (1.0, 0.01)})
    plan = draft.plan(draft.attend(x, heads=2, kv_heads=1, dim=8, window=700))
    tensors = draft.tensors(tmp_path)
    tokens = [int(t) for t in draft.random.integers(0, draft.vocab, 1300)]
    expected = run(InterpretedRuntime(plan, tensors), tokens, chunk=256)
    found = run(NativeRuntime.load(plan, tensors, threads=2), tokens, chunk=256)
    assert error(found, expected) < 2e-5  # positions enter the angles as float32
    assert run(NativeRuntime.load(plan, tensors, threads=1), tokens, chunk=1) == found


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_shapes_agree_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    small = st.integers(1, 4)
    kv_heads, group, dim = data.draw(small), data.draw(small), data.draw(st.integers(2, 20))
    experts = data.draw(st.integers(1, 9))
    draft = Draft(seed=data.draw(st.integers(0, 99)), vocab=data.draw(st.integers(8, 70)))
    x = draft.norm(draft.embed(data.draw(st.integers(1, 50))))
    turned = data.draw(st.integers(1, dim // 2))
    rope = {
        "inv_freq": tuple(0.5**i for i in range(turned)),
        "offset": data.draw(st.integers(0, dim - 2 * turned)),
        "interleaved": data.draw(st.booleans()),
        "factor": data.draw(st.floats(0.5, 2)),
    }
    v_dim, window = data.draw(st.integers(1, 20)), data.draw(st.sampled_from([0, 1, 4]))
    x = draft.attend(x, heads=kv_heads * group, kv_heads=kv_heads, dim=dim, v_dim=v_dim, window=window, rope=rope)
    top_k, inner = data.draw(st.integers(1, experts)), data.draw(st.integers(1, 40))
    x = draft.mixture(x, experts=experts, top_k=top_k, inner=inner, normalise=data.draw(st.booleans()))
    plan = draft.plan(x)
    tensors = draft.tensors(tmp_path)
    tokens = data.draw(st.lists(st.integers(0, draft.vocab - 1), min_size=1, max_size=12))
    expected = run(InterpretedRuntime(plan, tensors), tokens, chunk=len(tokens))
    runtime = NativeRuntime.load(plan, tensors, threads=2, max_rows=16)
    assert error(run(runtime, tokens, chunk=data.draw(st.integers(1, 12))), expected) < 1e-5
