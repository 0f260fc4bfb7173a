"""Rows of a table by hashes of the last tokens, natively."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .agreement import TOKENS, check_agreement, refusal
from .plans import Draft

MULTIPLIERS = (4295158889762567, 35454616657218897, 19285316470915801)
EOS = 8  # stands among TOKENS, twice in a row


def _ngram(
    d: Draft,
    *,
    heads: int = 2,
    dim: int = 6,
    parts: Sequence[int] = (60,),
    multipliers: Sequence[int] = MULTIPLIERS,
    eos: int = EOS,
    dtype: str = "f32",
) -> int:
    count, height = heads * (len(multipliers) - 1), sum(parts)
    sizes = [height // count - i % 3 for i in range(count)]
    offsets = [i * (height // count) for i in range(count)]
    state = d.state(1, window=len(multipliers))
    attrs = {"multipliers": tuple(multipliers), "sizes": tuple(sizes), "offsets": tuple(offsets)}
    weights = [d.weight(rows, dim, dtype=dtype) for rows in parts]
    return d.node("ngram", [], count * dim, weights, states=[state], heads=heads, eos=eos, **attrs)


OPS: dict[str, Callable[[Draft], int]] = {
    "ngram": lambda d: _ngram(d),
    "ngram of pairs": lambda d: _ngram(d, multipliers=MULTIPLIERS[:2]),
    "ngram of five": lambda d: _ngram(d, multipliers=[*MULTIPLIERS, 7, 2**40 + 1]),
    "ngram of one head": lambda d: _ngram(d, heads=1),
    "ngram in parts": lambda d: _ngram(d, parts=(1, 30, 17, 2, 10)),
    "ngram of stored bf16": lambda d: _ngram(d, dtype="bf16"),
    "ngram of products beyond 64 bits": lambda d: _ngram(d, multipliers=[2**63 - 1, -(2**63), -3, 2**62 + 9]),
    "ngram without an end among the tokens": lambda d: _ngram(d, eos=39_999),
}


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_interpreter(name: str, tmp_path: Path) -> None:
    draft = Draft(seed=len(name))
    check_agreement(draft, OPS[name](draft), tmp_path)


def test_more_rows_than_a_state_keeps(tmp_path: Path) -> None:
    d = Draft(context=300, seed=2)
    check_agreement(d, _ngram(d, heads=8, dim=40, parts=(300, 300)), tmp_path, tokens=TOKENS * 13)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_table_agrees_with_the_interpreter(tmp_path: Path, data: st.DataObject) -> None:
    d = Draft(seed=data.draw(st.integers(0, 99)))
    multipliers = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=5))
    heads = data.draw(st.integers(1, 4))
    parts = [3 * heads * (len(multipliers) - 1), *data.draw(st.lists(st.integers(1, 40), max_size=4))]
    x = _ngram(d, heads=heads, dim=data.draw(st.integers(1, 9)), parts=parts, multipliers=multipliers)
    tokens = data.draw(st.lists(st.sampled_from([EOS, 0, 1, 39]), min_size=3, max_size=20))
    check_agreement(d, x, tmp_path, tokens=tokens)


def _bent(
    parts: Sequence[tuple[int, int]] = ((8, 6), (4, 6)), out: int = 24, window: int = 3, width: int = 1, **attrs: object
) -> Callable[[Draft, int], int]:
    good = {"heads": 2, "eos": 0, "multipliers": (3, 5, 7), "sizes": (3, 3, 3, 3), "offsets": (0, 3, 6, 9)}

    def build(d: Draft, x: int) -> int:
        states = [d.state(width, window=window)]
        weights = [d.weight(*shape) for shape in parts]
        return d.node("ngram", [], out, weights, states=states, **{**good, **attrs})  # type: ignore[arg-type]

    return build


REFUSED: dict[str, tuple[Callable[[Draft, int], int], str]] = {
    "no table": (_bent(parts=()), "takes 1 or more weights, not 0"),
    "no heads": (_bent(heads=0), "heads is 0"),
    "too many heads": (_bent(heads=2**60), "heads is"),
    "one multiplier": (_bent(multipliers=(3,)), "multipliers are 1, not 2 to 64"),
    "too many multipliers": (_bent(multipliers=(3,) * 65), "multipliers are 65, not 2 to 64"),
    "multipliers that are no list": (_bent(multipliers=3), "multipliers is missing"),
    "sizes": (_bent(sizes=(3, 3, 3)), "number of sizes is 3, it must be 4"),
    "offsets": (_bent(offsets=(0, 3, 6)), "number of offsets is 3, it must be 4"),
    "a size of nothing": (_bent(sizes=(3, 0, 3, 3)), "sizes holds 0"),
    "a negative size": (_bent(sizes=(3, -1, 3, 3)), "sizes holds -1"),
    "a negative offset": (_bent(offsets=(0, 3, 6, -1)), "offsets holds -1"),
    "rows behind the table": (_bent(offsets=(0, 3, 6, 10)), "rows 10 to 13 are looked at, the table has 12"),
    "a size beyond the table": (_bent(sizes=(2**63 - 1, 3, 3, 3)), "are looked at, the table has 12"),
    "an offset beyond the table": (_bent(offsets=(0, 3, 6, 2**63 - 1)), "are looked at, the table has 12"),
    "a negative eos": (_bent(eos=-1), "eos is -1"),
    "a part of another width": (_bent(parts=((8, 6), (4, 5))), "'w2' is [4, 5], it must be [4, 6]"),
    "result": (_bent(out=12), "width of the result is 12, it must be 24"),
    "state too short": (_bent(window=2), "keeps 2 rows, 3 are needed"),
    "state of another width": (_bent(width=2), "does not keep the rows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    build, reason = REFUSED[name]
    draft = Draft()
    assert reason in refusal(draft, build(draft, draft.embed(24)), tmp_path)
