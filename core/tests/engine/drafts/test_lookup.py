"""Prompt lookup finds what repeats, and nothing that does not."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from colibri.engine.drafts.lookup import Pairs, PromptLookup
from colibri.engine.drafts.source import Ask


def drafted(tokens: Sequence[int], most: int = 8, **fields: object) -> list[int]:
    lookup = PromptLookup(1, 5)
    ask = Ask(0, tokens, most, **fields)
    [found] = lookup.draft([(ask, len(lookup.outlook(ask)))])
    return found


def test_what_followed_the_last_tokens_before_is_drafted() -> None:
    assert drafted([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]) == [3, 4, 5, 6, 7]


def test_no_draft_without_a_match_of_two_tokens() -> None:
    assert drafted([1, 2, 3, 4, 9, 2]) == []
    assert drafted([1]) == drafted([1, 1]) == []


def test_no_more_than_is_asked_for() -> None:
    assert drafted([1, 2, 3, 4, 5, 1, 2], most=2) == [3, 4]
    assert drafted([1, 2, 3, 4, 5, 1, 2], most=0) == []


def test_the_longest_match_wins_and_the_latest_among_equals() -> None:
    assert drafted([7, 1, 2, 3, 9, 1, 2, 4, 8, 7, 1, 2], most=1) == [3]
    assert drafted([5, 1, 2, 3, 6, 1, 2, 4, 8, 1, 2], most=1) == [4]


def test_a_run_goes_on() -> None:
    assert drafted([1, 2, 1, 2, 1, 2]) == [1, 2, 1, 2, 1]
    assert drafted([4, 4, 4]) == [4] * 5


def test_a_draft_ends_before_a_stop_and_before_a_sound() -> None:
    assert drafted([1, 2, 3, 0, 5, 1, 2], stops=frozenset([0])) == [3]
    assert drafted([1, 2, 3, -77, 5, 1, 2]) == [3]
    assert drafted([1, 2, -77, 5, 1, 2]) == []


def test_longer_matches_are_another_kind() -> None:
    text = list(range(100, 140))
    lookup = PromptLookup(1, 5)
    kinds = [list(lookup.outlook(Ask(0, [*text, 1, *text[:seen]], 3))) for seen in (2, 3, 12, 14)]
    assert kinds == [
        ["lookup 2", "lookup 2", "lookup 4"],
        ["lookup 2", "lookup 4", "lookup 4"],
        ["lookup 8", "lookup 8", "lookup 8"],
        ["lookup 8", "lookup 8", "lookup 16"],
    ]
    assert {kind for some in kinds for kind in some} == set(lookup.priors)


def test_slots_know_only_their_own_text_and_only_the_present_one() -> None:
    lookup = PromptLookup(2, 5)
    text = [1, 2, 3, 4, 1, 2]
    assert lookup.outlook(Ask(0, text, 1))
    assert not lookup.outlook(Ask(1, [9, 8, 1, 2], 1))
    lookup.rewind(0, 0)
    assert not lookup.outlook(Ask(0, [5, 6, 7, 8, 1, 2], 1))
    lookup.copy(0, 1, 0)
    assert not lookup.outlook(Ask(1, [7, 7, 1, 2], 1))


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(1, 9), max_size=20))
def test_a_growing_text_is_matched_as_a_whole_one(tokens: list[int], steps: list[int]) -> None:
    growing, at = Pairs(), 0
    for step in steps:
        at = min(at + step, len(tokens))
        end, length = growing.match(tokens[:at])
        assert (end, length) == Pairs().match(tokens[:at])
        assert (end == 0) == (length == 0)
        if length:
            assert 2 <= length <= end < at
            assert tokens[end - length : end] == tokens[at - length : at]
