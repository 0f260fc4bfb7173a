"""Hashed n-grams in the interpreter, against arithmetic done by hand. The table's rows hold their own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from colibri.compute.runtime import Row
from colibri.testing.interpreter import InterpretedRuntime

from ..native.plans import Draft

EOS = 9


def _rows(
    folder: Path,
    tokens: Sequence[int],
    multipliers: Sequence[int],
    sizes: Sequence[int],
    *,
    heads: int = 1,
    parts: Sequence[int] = (100,),
) -> list[list[int]]:
    """The rows of the table that each token finds, where every head has its own 50."""
    d = Draft()
    table = np.arange(sum(parts), dtype=np.float32)[:, None]
    weights = [d.given(part) for part in np.split(table, np.cumsum(parts)[:-1])]
    attrs = {
        "heads": heads,
        "eos": EOS,
        "multipliers": tuple(multipliers),
        "sizes": tuple(sizes),
        "offsets": tuple(range(0, 50 * len(sizes), 50)),
    }
    x = d.node("ngram", [], len(sizes), weights, states=[d.state(1, window=len(multipliers))], **attrs)
    runtime = InterpretedRuntime(d.plan(x), d.tensors(folder))
    found: list[list[int]] = []
    for start in range(0, len(tokens), 2):
        runtime.step([Row(token, 0, start + i) for i, token in enumerate(tokens[start : start + 2])])
        found += runtime.values[x].astype(int).tolist()
    return found


def test_a_pair_finds_a_row(tmp_path: Path) -> None:
    """Before the first token stands the end: 7 ^ 9 * 10 = 93."""
    assert _rows(tmp_path, [7, 2, 5], [1, 10], [50]) == [[93 % 50], [(2 ^ 70) % 50], [(5 ^ 20) % 50]]


def test_longer_runs_find_rows_of_their_own(tmp_path: Path) -> None:
    found = _rows(tmp_path, [7, 2, 5], [1, 10, 100], [47, 43], parts=[20, 1, 79])
    assert found == [
        [(7 ^ 90) % 47, 50 + (7 ^ 90 ^ 900) % 43],
        [(2 ^ 70) % 47, 50 + (2 ^ 70 ^ 900) % 43],
        [(5 ^ 20) % 47, 50 + (5 ^ 20 ^ 700) % 43],
    ]


def test_heads_differ_by_their_sizes(tmp_path: Path) -> None:
    assert _rows(tmp_path, [7, 2], [1, 10], [50, 37], heads=2) == [[93 % 50, 50 + 93 % 37], [68 % 50, 50 + 68 % 37]]


def test_an_end_hides_what_stands_before_it(tmp_path: Path) -> None:
    """The own token is no end, though it may spell one."""
    found = _rows(tmp_path, [3, EOS, 4, 6, 8], [1, 10, 100], [1, 50])
    ends = EOS * 100
    assert [row[1] - 50 for row in found] == [
        (3 ^ 90 ^ ends) % 50,
        (EOS ^ 30 ^ ends) % 50,
        (4 ^ 90 ^ ends) % 50,  # not the 3 in front of the end
        (6 ^ 40 ^ ends) % 50,
        (8 ^ 60 ^ 400) % 50,
    ]


def test_products_wrap_at_64_bits(tmp_path: Path) -> None:
    """2^64 - 1 times 7 is 2^64 - 7 there; its remainder by 50, where 2^64 leaves 16, is 9."""
    assert _rows(tmp_path, [7], [-1, 0], [50]) == [[9]]
    assert _rows(tmp_path, [7], [2**63 - 1, 0], [50]) == [[(2**63 - 7) % 50]]  # 7 * 2^63 is 2^63 there
