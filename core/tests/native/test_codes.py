"""Codes in place of tokens, natively."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colibri.compute.native import NativeRuntime
from colibri.compute.runtime import Row
from colibri.testing.interpreter import InterpretedRuntime

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft


def packed(*codes: int) -> bytes:
    return struct.pack(f"<{len(codes)}H", *codes)


def _codes(d: Draft, each: int, stride: int, width: int = 24, dtype: str = "f32") -> int:
    table = d.weight(each * stride, width, dtype=dtype)
    return d.node("codes", [], width, [table], each=each, stride=stride)


def _model(d: Draft, each: int, stride: int, width: int = 24, dtype: str = "f32") -> int:
    """Tokens or codes, each normed by itself, and attention over them."""
    x, y = d.norm(d.embed(width, dtype)), d.norm(_codes(d, each, stride, width, dtype))
    return d.attend(d.node("add", [x, y], width), heads=2, kv_heads=1, dim=8)


def _mixed(each: int, stride: int, tokens: Sequence[int] = TOKENS) -> list[int | bytes]:
    """Every run of five has two places with codes; the last code of all is among them."""
    return [
        packed(*((token * 7 + i * i + 1) % stride for i in range(each - 1)), stride - 1) if at % 5 in (1, 2) else token
        for at, token in enumerate(tokens)
    ]


@pytest.mark.parametrize(
    ("each", "stride", "dtype"), [(4, 8, "f32"), (1, 300, "f32"), (7, 1, "f32"), (80, 16, "bf16"), (3, 5, "q8_0")]
)
def test_codes_agree_with_the_interpreter(each: int, stride: int, dtype: str, tmp_path: Path) -> None:
    d = Draft(seed=each)
    width = 32 if dtype == "q8_0" else 24
    check_agreement(d, _model(d, each, stride, width, dtype), tmp_path, tokens=_mixed(each, stride))


def test_rows_wide_enough_to_be_shared_by_threads(tmp_path: Path) -> None:
    d = Draft(context=200, seed=4)
    check_agreement(d, _model(d, 40, 16, 1030), tmp_path, tokens=_mixed(40, 16, TOKENS * 6))


def test_without_codes_it_is_the_model_of_tokens(tmp_path: Path) -> None:
    d = Draft(seed=5)
    check_agreement(d, _model(d, 4, 8), tmp_path)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_rows_agree_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    each, stride = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    moments = st.lists(st.integers(0, stride - 1), min_size=each, max_size=each).map(lambda codes: packed(*codes))
    ids = data.draw(st.lists(st.integers(0, 39) | moments, min_size=3, max_size=20))
    d = Draft(seed=data.draw(st.integers(0, 99)))
    check_agreement(d, _model(d, each, stride, data.draw(st.integers(1, 40))), tmp_path, tokens=ids)


def test_a_row_with_codes_has_no_token(tmp_path: Path) -> None:
    d = Draft()
    plan, tensors = d.plan(_model(d, 2, 3)), d.tensors(tmp_path)
    for runtime in (NativeRuntime.load(plan, tensors), InterpretedRuntime(plan, tensors)):
        found = set()
        for token in (0, 5):
            runtime.step([Row(token, 0, 0, logits=True, codes=packed(1, 2))])
            found.add(bytes(runtime.logits(0)))
        runtime.step([Row(5, 0, 0, logits=True)])
        assert len(found) == 1
        assert bytes(runtime.logits(0)) not in found


def _bent(shape: tuple[int, int] = (32, 24), **attrs: object) -> Callable[[Draft, int], int]:
    def build(d: Draft, x: int) -> int:
        return d.node("codes", [], 24, [d.weight(*shape)], **{"each": 4, "stride": 8, **attrs})  # type: ignore[arg-type]

    return build


def _twice(d: Draft, x: int) -> int:
    return d.node("add", [_codes(d, 4, 8), _codes(d, 4, 9)], 24)


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "no codes": (_bent(each=0), "each is 0, it must be 1 to 65536"),
    "too many codes": (_bent(each=2**62), "each is"),
    "codes that can be nothing": (_bent(stride=0), "stride is 0, it must be 1 to 65536"),
    "more than a code can be": (_bent(stride=65537), "stride is 65537"),
    "a short table": (_bent((31, 24)), "is [31, 24], it must be [32, 24]"),
    "a long table": (_bent((33, 24)), "is [33, 24], it must be [32, 24]"),
    "a table of another width": (_bent((32, 25)), "is [32, 25], it must be [32, 24]"),
    "an input": (lambda d, x: d.node("codes", [x], 24, [d.weight(32, 24)], each=4, stride=8), "takes 0 inputs"),
    "two kinds of codes": (_twice, "reads 4 codes below 9, another operation 4 below 8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        (packed(1), "row 1 has 1 codes, 2 are needed"),
        (packed(1, 2, 0), "row 1 has 3 codes, 2 are needed"),
        (packed(0, 3), "row 1: code 3 is not below 3"),
        (packed(65535, 0), "row 1: code 65535 is not below 3"),
        (b"\0", "1 bytes are no whole number of codes"),
    ],
)
def test_rows_with_other_codes_are_refused(codes: bytes, reason: str, tmp_path: Path) -> None:
    d = Draft()
    plan, tensors = d.plan(_model(d, 2, 3)), d.tensors(tmp_path)
    native, interpreted = NativeRuntime.load(plan, tensors), InterpretedRuntime(plan, tensors)
    rows = [Row(1, 0, 0), Row(0, 0, 1, codes=codes)]
    with pytest.raises(ValueError, match=reason):
        native.step(rows)
    with pytest.raises(ValueError, match="codes that this model does not read"):
        interpreted.step(rows)
    native.step([Row(1, 0, 0)])


def test_a_model_of_tokens_reads_no_codes(tmp_path: Path) -> None:
    d = Draft()
    plan, tensors = d.plan(d.embed(24)), d.tensors(tmp_path)
    assert plan.codes is None
    for runtime in (NativeRuntime.load(plan, tensors), InterpretedRuntime(plan, tensors)):
        with pytest.raises(ValueError, match="codes"):
            runtime.step([Row(0, 0, 0, codes=packed(0))])
