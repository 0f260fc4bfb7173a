"""More effort is never less, and what a client leaves open is filled in."""

from __future__ import annotations

from itertools import pairwise

import pytest

from colibri.chat.conversation import TurnOptions
from colibri.chat.thinking import EFFORTS, nearest_effort, with_defaults
from colibri.family import Capabilities

FAMILIES = [("high", "max"), ("low", "high", "max"), ("low", "medium", "xhigh"), EFFORTS[1:], ("low",), ("deep", "deeper")]


@pytest.mark.parametrize("efforts", FAMILIES)
def test_more_effort_is_never_less(efforts: tuple[str, ...]) -> None:
    found = [nearest_effort(word, efforts) for word in EFFORTS[1:]]
    assert all(word in efforts for word in found)
    assert all(efforts.index(str(a)) <= efforts.index(str(b)) for a, b in pairwise(found))


def test_a_word_the_family_knows_stays() -> None:
    assert nearest_effort("deep", ("deep", "deeper")) == "deep"
    assert nearest_effort("minimal", ("high", "max")) == "high"
    assert nearest_effort("medium", ("low", "high", "max")) == "high"
    assert nearest_effort("max", ("low", "medium", "xhigh")) == "xhigh"
    assert nearest_effort("high", ()) is None


def test_past_turns_keep_their_reasoning_where_nothing_is_thought_now() -> None:
    claims = Capabilities(thinking="optional", preserve=True)
    assert with_defaults(TurnOptions(), claims, None).preserve_thinking is True
    assert with_defaults(TurnOptions(), claims, True).preserve_thinking is None
    assert with_defaults(TurnOptions(effort="high"), claims, None) == TurnOptions(effort="high")
    assert with_defaults(TurnOptions(preserve_thinking=False), claims, False).preserve_thinking is False
    assert with_defaults(TurnOptions(), Capabilities(thinking="optional"), None).preserve_thinking is None
