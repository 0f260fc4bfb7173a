"""The scripted runtime gives every mistake away."""

from __future__ import annotations

import pytest

from colibri.compute.runtime import Row
from colibri.family import Sampling
from colibri.testing.runtime import ScriptedRuntime, alone, replying

GREEDY = Sampling()


def feed(runtime: ScriptedRuntime, ids: list[int], slot: int = 0, start: int = 0) -> int:
    """The token after `ids`."""
    rows = [Row(token, slot, start + i, GREEDY if i == len(ids) - 1 else None) for i, token in enumerate(ids)]
    [token] = runtime.step(rows)
    return token


def test_the_next_token_depends_on_all_tokens_before_it() -> None:
    runtime = ScriptedRuntime(vocab=1 << 30)
    tokens = {feed(runtime, ids) for ids in ([1, 2, 3], [2, 1, 3], [3], [1, 2, 3, 4], [0, 1, 2, 3])}
    assert len(tokens) == 5
    assert feed(runtime, [1, 2, 3]) == alone([1, 2, 3], 1, vocab=1 << 30)[0]


def test_what_a_row_overwrites_is_gone() -> None:
    runtime = ScriptedRuntime()
    feed(runtime, [1, 2, 3, 4])
    feed(runtime, [9], start=1)
    with pytest.raises(ValueError, match="out of order"):
        feed(runtime, [5], start=3)
    assert feed(runtime, [7], start=2) == alone([1, 9, 7], 1)[0]


def test_a_copy_is_a_copy() -> None:
    runtime = ScriptedRuntime()
    feed(runtime, [1, 2, 3])
    runtime.copy(0, 1, 2)
    assert feed(runtime, [5], slot=1, start=2) == alone([1, 2, 5], 1)[0]
    with pytest.raises(ValueError, match="holds 3 positions"):
        runtime.copy(0, 1, 4)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [Row(1, 0, 0)] * 9,
        [Row(1, 0, 1)],
        [Row(1, 0, 0), Row(1, 0, 2)],
        [Row(1, 0, 0), Row(1, 0, 0)],
        [Row(32, 0, 0)],
        [Row(1, 0, 0, Sampling(temperature=1.0))],
    ],
)
def test_broken_contracts(rows: list[Row]) -> None:
    with pytest.raises(ValueError, match="row"):
        ScriptedRuntime().step(rows)


def test_logits_are_those_of_the_rows_that_asked() -> None:
    runtime = ScriptedRuntime()
    [token] = runtime.step([Row(1, 0, 0), Row(2, 0, 1, logits=True), Row(3, 1, 0, GREEDY)])
    assert runtime.logits(1)[token] == 1.0
    assert max(range(32), key=lambda id: runtime.logits(0)[id]) == alone([1, 2], 1)[0]
    with pytest.raises(IndexError):
        runtime.logits(2)


def test_replies() -> None:
    runtime = ScriptedRuntime(pick=replying([4, 5], end=0))
    assert [runtime.step([Row(1, 0, draw, GREEDY, draw)]) for draw in range(4)] == [[4], [5], [0], [0]]
