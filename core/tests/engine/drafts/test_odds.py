"""Chances follow what happens."""

from __future__ import annotations

import pytest

from colibri.engine.drafts.odds import Odds, RequestOdds


def test_a_request_begins_with_what_is_known_and_then_knows_better() -> None:
    common = Odds([{"a": 0.5}, {"b": 0.25}])
    odds = RequestOdds(common)
    assert (odds.chance("a"), odds.chance("b")) == (0.5, 0.25)
    for _ in range(60):
        odds.judge("s", ["a"], 1)
        odds.judge("s", ["b", "b"], 0)
    assert odds.chance("a") > 0.95
    assert odds.chance("b") < 0.05
    assert 0.5 < common.chances["a"] < 1
    assert RequestOdds(common).chance("a") == common.chances["a"]


def test_only_what_was_compared_counts() -> None:
    odds = RequestOdds(Odds([{"a": 0.5, "b": 0.5, "c": 0.5}]))
    odds.judge("s", ["a", "b", "c"], 1)
    assert odds.chance("a") > 0.5
    assert odds.chance("b") < 0.5
    assert odds.chance("c") == 0.5


def test_what_fails_is_tried_more_and_more_seldom_and_what_works_at_once() -> None:
    odds = RequestOdds(Odds([{"a": 0.1}]))

    def wait() -> int:
        return next(count for count in range(1, 1000) if odds.due("s"))

    waits = []
    for _ in range(7):
        waits.append(wait())
        odds.judge("s", ["a"], 0)
    assert waits == [16, 32, 64, 128, 256, 256, 256]
    odds.judge("s", ["a"], 1)
    assert wait() == 1
    odds.judge("s", ["a"], 0)
    assert wait() == 16
    assert odds.chance("a") == pytest.approx(0.1, abs=0.15)


def test_what_would_not_pay_if_it_were_right_is_tried_seldom() -> None:
    odds = RequestOdds(Odds([{"a": 0.9}]))
    assert next(count for count in range(1, 1000) if odds.due("s", hopeful=False)) == 256
    odds.judge("s", ["a"], 1)
    assert next(count for count in range(1, 1000) if odds.due("s", hopeful=False)) == 256
