"""A slot that was read out and put back goes on as if it had never left memory, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri import _native
from colibri.compute.native import NativeRuntime
from colibri.compute.runtime import Row
from colibri.testing.drive import put_back
from colibri.testing.interpreter import InterpretedRuntime

from .plans import Draft, run
from .test_rewind import CONTEXT, PLANS, ROPE, ROWS, SLOTS, TOKENS, VOCAB, Fresh, Model, advance, load, models

__all__ = ["models"]


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_was_put_back_goes_on_as_before(models: dict[str, Model], name: str, data: st.DataObject) -> None:
    fresh = Fresh(models[name])
    source = load(models[name])
    # Another size of steps and of context: windows then have room for fewer or more rows.
    rows, context = data.draw(st.sampled_from([(ROWS, CONTEXT), (2, CONTEXT), (20, 120)]))
    target = NativeRuntime.load(*models[name], slots=SLOTS, max_rows=rows, context=context, threads=1)
    tokens = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=100))
    marks = data.draw(st.sets(st.integers(1, len(tokens)), max_size=6))
    for start, end in zip([0, *sorted(marks)], [*sorted(marks), len(tokens)], strict=True):
        if end > start:
            advance(source, 1, tokens[:end], end - start)
        if end in marks:
            source.remember(1)
    run(target, [3] * min(len(tokens), 50), chunk=2, slot=2)  # what the slot held before makes no difference
    wanted = data.draw(st.integers(0, len(tokens)))
    length = put_back(source, 1, wanted, target, 2, piece=data.draw(st.integers(1, 500)))
    assert length == source.reach(1, wanted)
    more = [*tokens[:length], *data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=15))]
    expected = fresh(more, len(more) - length)
    assert run(target, more[length:], chunk=2, slot=2, start=length) == expected
    # And it can be taken back, to the newest of the lengths that the source could be taken back to at least.
    back = data.draw(st.integers(0, length))
    reached = target.rewind(2, back)
    assert reached <= back
    again = [*more[:reached], *[5] * 5]
    assert run(target, again[reached:], chunk=2, slot=2, start=reached) == fresh(again, len(again) - reached)
    # Reading has left the source as it was.
    assert advance(source, 1, [*tokens, 1], 1) == fresh([*tokens, 1], 1)


@pytest.mark.parametrize("name", PLANS)
def test_the_ways_back_that_matter_are_kept(models: dict[str, Model], name: str) -> None:
    source, target = load(models[name]), load(models[name])
    for before, length in pairwise((0, 10, 30, 40, 50, 60, 70)):
        advance(source, 0, TOKENS[:length], length - before)
        source.remember(0)
    advance(source, 0, TOKENS[:77], 7)
    assert put_back(source, 0, 77, target, 0) == 77
    for length in (77, 70, 60, 10):
        assert target.reach(0, length) == length
    if name == "all":
        assert [target.reach(0, length) for length in (76, 69, 59, 9)] == [70, 60, 10, 0]


def test_an_image_is_read_while_its_slot_goes_on(models: dict[str, Model]) -> None:
    source, target = load(models["all"]), load(models["all"])
    advance(source, 0, TOKENS[:60], 60)
    image = source.image(0, 60)
    first = image.read(0, 100)
    advance(source, 0, TOKENS[:120], 60)
    blank = target.blank(0, 60, image.snapshots)
    blank.write(0, first)
    blank.write(100, image.read(100, image.size - 100))
    blank.adopt()
    assert advance(target, 0, TOKENS[:90], 30) == Fresh(models["all"])(TOKENS[:90], 30)


def test_an_image_outlives_its_runtime(models: dict[str, Model]) -> None:
    source = load(models["rows"])
    advance(source, 0, TOKENS[:20], 20)
    image = source.image(0, 20)
    expected = image.read(0, image.size)
    del source
    assert image.read(0, image.size) == expected


def test_images_that_cannot_be(models: dict[str, Model]) -> None:
    rows, memories = load(models["rows"]), load(models["all"])
    advance(rows, 0, TOKENS[:20], 20)
    for runtime, slot, length, snapshots, reason in (
        (rows, SLOTS, 5, [], "no slot"),
        (rows, -1, 5, [], "no slot"),
        (rows, 0, 0, [], "length 0 is outside"),
        (rows, 0, -1, [], "length -1 is outside"),
        (rows, 0, CONTEXT + 1, [], "is outside the context"),
        (rows, 0, 1 << 62, [], "is outside the context"),
        (rows, 0, 5, [5], "needs none"),
        (memories, 0, 5, [], "no snapshot at length 5"),
        (memories, 0, 5, [4], "no snapshot at length 5"),
        (memories, 0, 5, [5, 4, 5], "snapshots at 5 and then at 4"),
        (memories, 0, 5, [0, 5], "snapshots at 0 and then at 0"),
        (memories, 0, 5, [-3, 5], "snapshots at 0 and then at -3"),
        (memories, 0, 50, list(range(1, 51)), "50 snapshots are too many"),
    ):
        with pytest.raises(ValueError, match=reason):
            runtime.blank(slot, length, snapshots)
    image = rows.image(0, 20)
    for begin, count in ((-1, 1), (0, -1), (0, image.size + 1), (image.size, 1), (1 << 62, 1), (1, (1 << 63) - 1)):
        with pytest.raises(ValueError, match="numbers"):
            image.read(begin, count)
    assert rows.reach(0, 20) == 20  # refused before anything was emptied
    blank = rows.blank(0, 20, [])
    assert rows.reach(0, 20) == 0
    for begin, data in ((-1, bytes(4)), (blank.size, bytes(4)), (0, bytes(5)), (1 << 62, bytes(4))):
        with pytest.raises(ValueError, match=r"number|bytes"):
            blank.write(begin, data)
    blank.adopt()
    with pytest.raises(ValueError, match="adopted before"):
        blank.adopt()


def test_a_slot_that_was_used_meanwhile_is_not_overwritten(models: dict[str, Model]) -> None:
    runtime = load(models["rows"])
    blank = runtime.blank(0, 20, [])
    advance(runtime, 0, TOKENS[:3], 3)
    with pytest.raises(ValueError, match="in use"):
        blank.adopt()


def test_a_state_that_nothing_uses_is_not_read(tmp_path: Path) -> None:
    d = Draft(vocab=VOCAB, context=CONTEXT)
    x = d.attend(d.embed(8), heads=2, kv_heads=2, dim=4, rope=ROPE)
    for how in ({"recurrent": True}, {"window": 3}, {}):
        d.state(50, **how)
    source, target = (load(model) for model in [(d.plan(x), d.tensors(tmp_path))] * 2)
    advance(source, 0, TOKENS[:20], 20)
    assert source.image(0, 20).size == 20 * 2 * (4 + 4)
    assert put_back(source, 0, 20, target, 1) == 20
    assert advance(target, 1, TOKENS[:30], 10) == advance(source, 0, TOKENS[:30], 10)


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("name", PLANS)
def test_the_interpreter_does_the_same(models: dict[str, Model], name: str, precision: type[np.floating]) -> None:
    source, target = (InterpretedRuntime(*models[name], slots=2, precision=precision) for _ in range(2))
    run(source, TOKENS[:40], chunk=7)
    run(target, TOKENS[10:30], chunk=9)
    assert put_back(source, 0, 31, target, 0, piece=77) == 31
    for start, tokens in ((31, TOKENS[:40]), (12, TOKENS[40:60])):
        assert source.rewind(0, start) == target.rewind(0, start) == start
        assert run(target, tokens, chunk=2, start=start) == run(source, tokens, chunk=2, start=start)
    with pytest.raises(ValueError, match="length 0"):
        target.blank(0, 0, [])


FLOATS = st.lists(st.floats(width=32, allow_nan=False), max_size=100)


@given(FLOATS)
def test_rounding_to_f16_is_that_of_numpy(numbers: Sequence[float]) -> None:
    values = np.array(numbers, np.float32)
    found = np.frombuffer(_native.rounded("f16", values.tobytes()), np.float16)
    assert found.tolist() == np.clip(values, -65504, 65504).astype(np.float16).tolist()
    assert _native.rounded("f32", values.tobytes()) == values.tobytes()


@given(FLOATS)
def test_rounding_to_q8_keeps_half_a_step(numbers: Sequence[float]) -> None:
    values = np.clip(np.array(numbers, np.float32), -8e6, 8e6)
    data = _native.rounded("q8_0", values.tobytes())
    count = -(-len(numbers) // 32) * 32
    found = np.frombuffer(_native.dequantize("q8_0", data, count), np.float32)
    padded = np.zeros(count, np.float32)
    padded[: len(values)] = values
    most = np.abs(padded.reshape(-1, 32)).max(axis=1, initial=0, keepdims=True)
    # Half a step, the scale's own rounding, and what it can't say at all: steps below 2^-24.
    assert (np.abs(found - padded).reshape(-1, 32) <= most * (0.5 / 127 + 2**-10) + 127 * 2.0**-24).all()


def test_what_cannot_be_rounded() -> None:
    nan, large = np.array([np.nan, 1], np.float32).tobytes(), np.array([np.inf, -1e30, 1], np.float32).tobytes()
    assert np.isnan(np.frombuffer(_native.rounded("f16", nan), np.float16)[0])
    assert np.frombuffer(_native.dequantize("q8_0", _native.rounded("q8_0", nan), 32), np.float32)[:2] == pytest.approx(
        [0, 1], rel=1e-3
    )
    assert np.isfinite(np.frombuffer(_native.dequantize("q8_0", _native.rounded("q8_0", large), 32), np.float32)).all()
    for dtype, data, reason in (
        ("q4_k", bytes(4), "not to q4_k"),
        ("x", bytes(4), "unknown storage type"),
        ("f16", bytes(3), "no whole number"),
    ):
        with pytest.raises(ValueError, match=reason):
            _native.rounded(dtype, data)


def test_rows_alone_may_be_rounded(models: dict[str, Model]) -> None:
    for name, exact in (("rows", False), ("memories", True), ("all", True)):
        runtime = load(models[name])
        advance(runtime, 0, TOKENS[:20], 20)
        image = runtime.image(0, 20)
        assert (image.exact > 0) == exact
        assert (image.size > image.exact) == (name != "memories")
        runtime.step([Row(1, 0, 20)])
