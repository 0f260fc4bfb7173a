"""Small plans run natively in every way that must make no difference, beside the interpreter; and plans that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from colibri import _native
from colibri.compute.native import NativeRuntime
from colibri.testing.drive import row_of
from colibri.testing.interpreter import InterpretedRuntime

from .plans import Draft, floats, run

TOKENS = [3, 17, 0, 39, 8, 8, 21, 30, 2, 5, 11, 26, 1, 1, 38, 4, 9, 33, 12]


def check_agreement(
    draft: Draft, x: int, folder: Path, *, bound: float = 2e-6, tokens: Sequence[int | bytes] = TOKENS
) -> None:
    """The logits of what `draft` computes at x: the interpreter's within `bound`, and the same bytes alone or in chunks of
    any size, beside another slot, after going back, for some rows only, with more threads and on every code path."""
    plan = draft.plan(x)
    tensors = draft.tensors(folder)
    expected = run(InterpretedRuntime(plan, tensors), tokens, chunk=len(tokens))
    alone = run(NativeRuntime.load(plan, tensors, threads=1, isa="scalar"), tokens, chunk=1)
    found, wanted = floats(alone).astype(np.float64), floats(expected).astype(np.float64)
    assert np.linalg.norm(found - wanted, axis=1).max() < bound * np.linalg.norm(wanted, axis=1).max()
    for isa in _native.isas():
        runtime = NativeRuntime.load(plan, tensors, slots=2, threads=3, isa=isa)
        assert run(runtime, tokens, chunk=len(tokens)) == alone
        back = runtime.rewind(0, len(tokens) // 3)  # what can't be cut there goes back to its beginning
        assert run(runtime, tokens[back:], chunk=5, start=back) == alone[back:]
        _check_company(runtime, tokens, alone)
        _check_some_wanted(runtime, tokens, alone)


def refusal(draft: Draft, x: int, folder: Path) -> str:
    """What the native runtime says to a plan that it must refuse."""
    with pytest.raises(ValueError, match=r"^node \d+ \(") as caught:
        NativeRuntime.load(draft.plan(x), draft.tensors(folder))
    return str(caught.value)


def _check_company(runtime: NativeRuntime, tokens: Sequence[int | bytes], alone: Sequence[bytes]) -> None:
    """Both slots advance together, row by row in turns, the second one behind."""
    for at in range(0, len(tokens), 4):
        rows = []
        for i in range(at, min(at + 4, len(tokens))):
            rows.append(row_of(tokens[i], 0, i))
            if i >= 2:
                rows.append(row_of(tokens[i - 2], 1, i - 2))
        runtime.step(rows)
        assert [bytes(runtime.logits(i)) for i in range(len(rows))] == [alone[row.position] for row in rows]


def _check_some_wanted(runtime: NativeRuntime, tokens: Sequence[int | bytes], alone: Sequence[bytes]) -> None:
    wanted = range(1, len(tokens), 3)
    runtime.step([row_of(token, 1, i, logits=i in wanted) for i, token in enumerate(tokens)])
    assert [bytes(runtime.logits(i)) for i in range(len(wanted))] == [alone[i] for i in wanted]
